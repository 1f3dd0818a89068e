"""Classes against what other programs make of the same machines: NCCL's path types, nvidia-smi's matrices."""

from __future__ import annotations

import gzip
import itertools
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from gdsctl.model.topology import Topology
from gdsctl.parse import lspci, nccl_topo, nvidia_smi_topo

pytestmark = pytest.mark.shared

NCCL_FILES = {  # GPU functions x NIC functions, counted in the files
    "aws_p4d.24xl": 8 * 4,
    "azure_ndv2-topo": 8 * 1,
    "azure_ndv4-topo": 8 * 8,
    "rccl_topo_16p1h_vm": 16 * 8,
    "rccl_topo_4p3l": 4 * 1,
    "rccl_topo_8p6l_2nic": 8 * 2,
    "rccl_topo_8p_pcie": 8 * 1,
    "rccl_topo_8p_rome": 8 * 1,
}
# NCCL knows no NODE: two host bridges of one NUMA node are PHB to it. Its file leaves host bridges out, so that PHB and
# NODE cannot be told apart from it, and gdsctl names neither.
OURS = {"PIX": "PIX", "PXB": "PXB", "PHB": "unknown", "SYS": "SYS"}


def places(file: Path) -> tuple[dict[str, tuple[str, tuple[str, ...]]], list[str], list[str]]:
    """Of each function in the XML its CPU and the switches above it, nearest first; the GPUs; the NICs."""
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    gpus, nics = [], []

    def below(element: ET.Element, cpu: str, switches: tuple[str, ...]) -> None:
        for pci in element.findall("pci"):
            address = pci.attrib["busid"].lower()
            found[address] = cpu, switches
            if pci.attrib["class"].startswith("0x0604"):
                below(pci, cpu, (address, *switches))
            elif pci.attrib["class"].startswith(("0x03", "0x12")):
                gpus.append(address)
            elif pci.attrib["class"].startswith(("0x0200", "0x0207")):
                nics.append(address)

    for cpu in ET.parse(file).getroot().iter("cpu"):  # noqa: S314  # trusted samples of the test data
        below(cpu, cpu.attrib["numaid"], ())
    return found, gpus, nics


def nccl_type(first: tuple[str, tuple[str, ...]], second: tuple[str, tuple[str, ...]]) -> str:
    """NCCL src/graph/paths.cc: between switches PXB, over a CPU PHB, between CPUs SYS; one switch alone is PIX."""
    if first[0] != second[0]:
        return "SYS"
    common = next((switch for switch in first[1] if switch in second[1]), None)
    if common is None:
        return "PHB"
    crossed = first[1].index(common) + second[1].index(common) + 1
    return "PIX" if crossed == 1 else "PXB"


@pytest.mark.parametrize(("name", "pairs"), NCCL_FILES.items())
def test_nccl_path_types(shared: Path, name: str, pairs: int) -> None:
    file = shared / f"field/nccl/{name}.xml"
    where, gpus, nics = places(file)
    topo = nccl_topo.parse(file.read_text())
    assert {gpu.address for gpu in topo.gpus} == set(gpus)
    topology = Topology(topo.devices)
    compared = 0
    for gpu, nic in itertools.product(gpus, nics):
        assert topology.relation(gpu, nic).class_ == OURS[nccl_type(where[gpu], where[nic])], (gpu, nic)
        compared += 1
    assert compared == pairs


def matrix(file: Path) -> nvidia_smi_topo.NvidiaSmiTopo:
    lines = file.read_text().splitlines(keepends=True)
    start = next(
        number for number, line in enumerate(lines) if "the sample follows" in line or line.startswith("# ---")
    )
    return nvidia_smi_topo.parse("".join(lines[start + 1 :]))


def test_nvidia_smi_on_a_machine_of_this_build(shared: Path) -> None:
    """A server of eight H100 with a ConnectX-7 each: lspci of one, the matrix of another of the same layout.

    No public source has both of one machine. Cell by cell, GPUs and ConnectX-7 in the order of their addresses.
    """
    text = gzip.decompress((shared / "field/lspci/xe9680-8xh100.lspci-vvv.gz").read_bytes()).decode()
    devices = lspci.parse(text).devices
    gpus = [device.address for device in devices if (device.class_ or "").startswith("0302")]
    nics = [device.address for device in devices if "ConnectX-7" in (device.name or "")]
    shown = matrix(shared / "field/topo/27.txt").matrix
    topology = Topology(devices)
    ours = [[topology.relation(gpu, nic).class_ for nic in nics] for gpu in gpus]
    theirs = [[shown[f"GPU{gpu}"][f"NIC{nic}"] for nic in range(8)] for gpu in range(8)]
    assert ours == theirs
    # GPUs among themselves go over NVLink in the matrix; the NICs' columns show the PCI way: NODE in a socket, else SYS.
    between = [[topology.relation(a, b).class_ for b in nics if b != a] for a in nics]
    assert between == [[shown[f"NIC{a}"][f"NIC{b}"] for b in range(8) if b != a] for a in range(8)]


def test_a_flattened_guest_contradicts_nobody(shared: Path) -> None:
    """Azure ND A100 v4: lspci in the guest shows each function alone, the vendor's NCCL file knows the switches."""
    flat = Topology(lspci.parse((shared / "field/lspci/azure-nd-a100-guest.lspci-nn").read_text()).devices)
    topo = nccl_topo.parse((shared / "field/nccl/azure_ndv4-topo.xml").read_text())
    nics = [nic.address for nic in topo.nics if nic.address]
    pairs = [(gpu.address, nic) for gpu in topo.gpus for nic in nics]
    assert all(flat.device(gpu) and flat.device(nic) for gpu, nic in pairs)
    assert [flat.relation(gpu, nic).class_ for gpu, nic in pairs] == ["unknown"] * 64

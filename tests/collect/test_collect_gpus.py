"""GPUs joined from PCI, NVML, the driver, nvidia-smi and gdscheck."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gdsctl.collect import gpus
from gdsctl.collect.reader import Reader
from gdsctl.model.devices import NvLink
from gdsctl.model.pci import Bar, PciDevice
from gdsctl.source.opening import open_source

Machine = Callable[..., Reader]

GIB = 1 << 30


def function(address: str, **more: Any) -> PciDevice:
    facts: dict[str, Any] = {"vendor_id": "10de", "class_": "030200", "device_id": "2330"}
    return PciDevice(address=address, **(facts | more))


# An H100's regions: BAR0 is 64 bits wide, so that the framebuffer window is region 2.
H100_BARS = (
    Bar(index=0, size_bytes=16 << 20, prefetchable=False),
    Bar(index=2, size_bytes=128 * GIB, prefetchable=True),
    Bar(index=4, size_bytes=32 << 20, prefetchable=True),
)
NVML = {
    "driver_version": "570.1",
    "gpus": [
        {
            "index": 1,
            "pci_address": "00000000:1B:00.0",
            "name": "NVIDIA H100 80GB HBM3",
            "uuid": "GPU-b",
            "memory_bytes": 80 * GIB,
            "bar1_bytes": 128 * GIB,
            "compute_capability": "9.0",
            "c2c": False,
            "nvlinks": [{"link": n, "active": n < 18, "version": 4, "remote_pci": "switch"} for n in range(20)],
        },
        {"index": 0, "pci_address": "0000:43:00.0", "name": "NVIDIA H100 80GB HBM3", "nvlinks": []},
    ],
}


def gaps(reader: Reader) -> Any:
    return {(gap.key, gap.field) for gap in reader.gaps if gap.section == "gpus"}


def test_nvml(machine: Machine) -> None:
    reader = machine({}, answers={"nvml": NVML})
    first, second = gpus.collect(reader, (function("0000:1b:00.0"), function("0000:43:00.0", bars=H100_BARS)))
    assert (first.index, first.address) == (0, "0000:43:00.0")  # NVML numbers them so, whatever the addresses say
    assert (first.bar1_bytes, first.nvlinks) == (128 * GIB, ())
    assert (second.index, second.uuid, second.memory_bytes) == (1, "GPU-b", 80 * GIB)
    assert second.nvlinks == (NvLink(peer="switch", count=18, version=4),)
    assert (second.kind, second.compute_capability, second.c2c) == ("datacenter", "9.0", False)
    assert ("0000:1b:00.0", "uuid") not in gaps(reader)
    assert ("0000:43:00.0", "uuid") in gaps(reader)


def test_pci_alone(machine: Machine) -> None:
    functions = (
        function("10000:01:00.0", name="GH100 [H100 SXM5 80GB]", bars=H100_BARS),
        function("0000:9d:00.0", bars=H100_BARS),
        function("0000:07:00.0", class_="068000", device_id="22a3"),  # NVSwitch
        function("0000:9d:00.1", class_="040300"),  # the audio function of a graphics card
        function("0000:01:00.0", vendor_id="1a03", class_="030000"),  # the BMC's VGA
    )
    reader = machine({}, answers={})
    found = gpus.collect(reader, functions)
    assert [(gpu.index, gpu.address) for gpu in found] == [(0, "0000:9d:00.0"), (1, "10000:01:00.0")]
    assert [gpu.bar1_bytes for gpu in found] == [128 * GIB, 128 * GIB]
    assert [gpu.kind for gpu in found] == ["datacenter", "datacenter"]  # by device id 2330, and by name
    assert [gpu.compute_capability for gpu in found] == ["9.0", "9.0"]
    assert {("0000:9d:00.0", field) for field in ("name", "uuid", "memory_bytes", "nvlinks")} <= gaps(reader)


def test_no_gpu_is_no_record(machine: Machine) -> None:
    assert gpus.collect(machine({}), ()) == ()


def test_bars_that_nobody_read_are_a_gap(machine: Machine) -> None:
    reader = machine({})
    (gpu,) = gpus.collect(reader, (function("0000:9d:00.0", device_id="ffff"),))
    assert (gpu.bar1_bytes, gpu.kind, gpu.c2c, gpu.compute_capability) == (None, "unknown", None, None)
    assert {("0000:9d:00.0", field) for field in ("bar1_bytes", "c2c", "compute_capability")} <= gaps(reader)


def test_the_drivers_files(machine: Machine) -> None:
    path = "/proc/driver/nvidia/gpus/0000:86:00.0/information"
    reader = machine({path: "Model: \t\t NVIDIA L40S\nGPU UUID: \t GPU-1\nBus Location: \t 0000:86:00.0\n"})
    (gpu,) = gpus.collect(reader, (function("0000:86:00.0", device_id="26b9"),))
    assert (gpu.name, gpu.uuid, gpu.kind) == ("NVIDIA L40S", "GPU-1", "datacenter")


def test_nvidia_smi(machine: Machine) -> None:
    rows = (
        "0, 00000000:86:00.0, NVIDIA GeForce RTX 4090, GPU-1, 24564 MiB, 550.54.15, 8.9\n"
        "1, 00000000:87:00.0, NVIDIA RTX A6000, GPU-2, 49140 MiB, 550.54.15, 8.6\n"
    )
    first, second = gpus.collect(machine({}, outputs={"nvidia-smi-query": rows}), ())
    assert (first.kind, first.memory_bytes, first.address) == ("geforce", 24564 << 20, "0000:86:00.0")
    assert (second.kind, second.compute_capability) == ("workstation", "8.6")


def matrix(cell: Any, count: Any) -> Any:
    names = [f"GPU{n}" for n in range(count)]
    rows = ["\t" + "\t".join(names) + "\tCPU Affinity\tNUMA Affinity"]
    rows += [f"{a}\t" + "\t".join(" X " if a == b else cell for b in names) + "\t0-31\t0" for a in names]
    return "\n".join(rows) + "\n"


def test_links_of_a_full_mesh(machine: Machine) -> None:
    """Four A100 with four links to each of the other three: 12 links, all an A100 has."""
    functions = tuple(function(f"0000:0{n}:00.0", device_id="20b0") for n in (1, 2, 3, 4))
    reader = machine({}, outputs={"nvidia-smi-topo": matrix("NV4", 4)})
    found = gpus.collect(reader, functions)
    assert found[0].nvlinks == tuple(NvLink(peer=f"0000:0{n}:00.0", count=4) for n in (2, 3, 4))
    assert ("0000:01:00.0", "nvlinks") not in gaps(reader)


def test_links_through_switches(machine: Machine) -> None:
    """18 links shown towards each of 7 peers are the same 18 links: no GPU has 126."""
    reader = machine({}, outputs={"nvidia-smi-topo": matrix("NV18", 8)})
    found = gpus.collect(reader, ())
    assert [gpu.index for gpu in found] == list(range(8))
    assert all(gpu.address is None and gpu.nvlinks == (NvLink(peer="switch", count=18),) for gpu in found)


def test_no_links_in_the_matrix_is_known(machine: Machine) -> None:
    reader = machine({}, outputs={"nvidia-smi-topo": matrix("SYS", 2)})
    assert all(gpu.nvlinks == () for gpu in gpus.collect(reader, ()))
    assert ("0", "nvlinks") not in gaps(reader)
    assert ("0", "address") in gaps(reader)


def test_a_matrix_of_other_gpus_is_not_joined(machine: Machine) -> None:
    reader = machine({}, outputs={"nvidia-smi-topo": matrix("NV4", 2)})
    (gpu,) = gpus.collect(reader, (function("0000:01:00.0"),))
    assert gpu.nvlinks == ()
    assert ("0000:01:00.0", "nvlinks") in gaps(reader)


GDSCHECK = """ GDS release version: 1.11.1.6
 nvidia_fs version:  2.22 libcufile version: 2.12
 Platform: x86_64
 =========
 GPU INFO:
 =========
 GPU index 0 NVIDIA L4 bar:1 bar size (MiB):32768 supports GDS, IOMMU State: Disabled
 GPU index 1 NVIDIA L4 bar:1 bar size (MiB):32768 supports GDS, IOMMU State: Disabled
"""


def test_gdscheck_alone(machine: Machine) -> None:
    found = gpus.collect(machine({}, outputs={"gdscheck": GDSCHECK}), ())
    assert [(gpu.index, gpu.name, gpu.bar1_bytes, gpu.kind) for gpu in found] == [
        (0, "NVIDIA L4", 32 * GIB, "datacenter"),
        (1, "NVIDIA L4", 32 * GIB, "datacenter"),
    ]


def test_gdscheck_tells_equal_gpus_their_name_whatever_the_order(machine: Machine) -> None:
    functions = (function("0000:01:00.0", device_id="ffff"), function("0000:02:00.0", device_id="ffff"))
    found = gpus.collect(machine({}, outputs={"gdscheck": GDSCHECK}), functions)
    assert [gpu.name for gpu in found] == ["NVIDIA L4", "NVIDIA L4"]
    mixed = GDSCHECK.replace("index 1 NVIDIA L4", "index 1 NVIDIA A10")
    found = gpus.collect(machine({}, outputs={"gdscheck": mixed}), functions)
    assert [gpu.name for gpu in found] == [None, None]


NCCL = """<system version="1">
  <cpu numaid="0" affinity="ffff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
    <pci busid="0000:3b:00.0" class="0x030200" link_speed="16 GT/s" link_width="16">
      <gpu dev="1" sm="80" rank="1" gdr="1"><nvlink target="0000:5e:00.0" count="4" tclass="0x030200"/></gpu>
    </pci>
    <pci busid="0000:5e:00.0" class="0x030200" link_speed="16 GT/s" link_width="16">
      <gpu dev="0" sm="80" rank="0" gdr="1"><nvlink target="0000:3b:00.0" count="4" tclass="0x030200"/></gpu>
    </pci>
  </cpu>
</system>
"""


def test_a_topology_file_of_nccl(machine: Machine) -> None:
    first, second = gpus.collect(machine({}, outputs={"nccl-topo": NCCL}), ())
    assert (first.index, first.address, first.compute_capability) == (0, "0000:5e:00.0", "8.0")
    assert first.nvlinks == (NvLink(peer="0000:3b:00.0", count=4),)
    assert second.nvlinks == (NvLink(peer="0000:5e:00.0", count=4),)


def test_accelerators_of_other_makers(machine: Machine) -> None:
    functions = (
        function("0000:03:00.0", vendor_id="1002", class_="038000", bars=H100_BARS),
        function("0000:04:00.0", vendor_id="1bcf", class_="0b4000"),  # NEC Vector Engine
        function("0000:05:00.0", vendor_id="8086", class_="030000"),  # graphics of the CPU
    )
    found = gpus.collect(machine({}), functions)
    assert [(gpu.address, gpu.kind) for gpu in found] == [
        ("0000:03:00.0", "other-accelerator"),
        ("0000:04:00.0", "other-accelerator"),
    ]


def test_smi_topo(machine: Machine) -> None:
    topo = gpus.smi_topo(machine({}, outputs={"nvidia-smi-topo": matrix("PIX", 2)}))
    assert topo is not None
    assert topo["matrix"]["GPU0"]["GPU1"] == "PIX"
    assert gpus.smi_topo(machine({})) is None


def counted(*links: int) -> str:
    """`nvidia-smi nvlink -s` of GPUs with so many links up, and one more down."""
    lines: list[str] = []
    for n, up in enumerate(links):
        lines.append(f"GPU {n}: NVIDIA X (UUID: GPU-{n})\n")
        lines += [f"\t Link {link}: 26.562 GB/s\n" for link in range(up)]
        lines.append(f"\t Link {up}: <inactive>\n")
    return "".join(lines)


TWO = (function("0000:01:00.0", device_id="ffff"), function("0000:02:00.0", device_id="ffff"))


def test_counts_lead_somewhere_only_where_one_place_is_left(machine: Machine) -> None:
    reader = machine({}, outputs={"nvidia-smi-nvlink": counted(4, 4)})
    first, second = gpus.collect(reader, TWO)
    assert (first.nvlinks, second.nvlinks) == (
        (NvLink(peer="0000:02:00.0", count=4),),
        (NvLink(peer="0000:01:00.0", count=4),),
    )
    assert ("0000:01:00.0", "nvlinks") not in gaps(reader)
    three = (*TWO, function("0000:03:00.0", device_id="ffff"))
    reader = machine({}, outputs={"nvidia-smi-nvlink": counted(4, 4, 4)})
    assert [gpu.nvlinks for gpu in gpus.collect(reader, three)] == [()] * 3
    assert ("0000:01:00.0", "nvlinks") in gaps(reader)  # a ring, pairs with a cable to elsewhere: nobody says
    reader = machine({}, outputs={"nvidia-smi-nvlink": counted(0, 4, 4)})
    assert gpus.collect(reader, three)[0].nvlinks == ()
    assert ("0000:01:00.0", "nvlinks") not in gaps(reader)
    reader = machine({}, outputs={"nvidia-smi-nvlink": counted(4, 2)})
    assert [gpu.nvlinks for gpu in gpus.collect(reader, TWO)] == [(), ()]


def test_counts_beside_nvswitches(machine: Machine) -> None:
    switch = function("0000:07:00.0", class_="068000", device_id="22a3")
    reader = machine({}, outputs={"nvidia-smi-nvlink": counted(18, 18)})
    assert [gpu.nvlinks for gpu in gpus.collect(reader, (*TWO, switch))] == [(NvLink(peer="switch", count=18),)] * 2


def test_counts_tell_switches_from_a_mesh_in_the_matrix(machine: Machine) -> None:
    """NV6 to each of two peers: a GPU with 12 links up is linked to both, one with 6 reaches them through switches."""
    three = (*TWO, function("0000:03:00.0", device_id="ffff"))
    for up, expected in ((12, "0000:02:00.0"), (6, "switch")):
        outputs = {"nvidia-smi-nvlink": counted(up, up, up), "nvidia-smi-topo": matrix("NV6", 3)}
        first = gpus.collect(machine({}, outputs=outputs), three)[0]
        assert first.nvlinks[0] == NvLink(peer=expected, count=6)


def test_counts_of_another_gpu_are_not_taken(machine: Machine) -> None:
    rows = "0, 00000000:01:00.0, NVIDIA X, GPU-9, 80000 MiB, 570.1, 9.0\n1, 00000000:02:00.0, NVIDIA X, GPU-1, 80000 MiB, 570.1, 9.0\n"
    reader = machine({}, outputs={"nvidia-smi-nvlink": counted(4, 4), "nvidia-smi-query": rows})
    assert [gpu.nvlinks for gpu in gpus.collect(reader, TWO)] == [(), ()]
    assert ("0000:01:00.0", "nvlinks") in gaps(reader)


@pytest.mark.shared
def test_field_matrices(machine: Machine, shared: Path) -> None:
    """Polaris: four A100, NV4 between all. Blackwell and Hopper HGX: NV18 to switches."""

    def links(name: str) -> list[tuple[NvLink, ...]]:
        text = (shared / "field/topo" / name).read_text().split("# ---\n")[1]
        return [gpu.nvlinks for gpu in gpus.collect(machine({}, outputs={"nvidia-smi-topo": text}), ())]

    assert links("04.txt")[0] == tuple(NvLink(peer=f"GPU{n}", count=4) for n in (1, 2, 3))
    assert links("26.txt") == [(NvLink(peer="switch", count=18),)] * 8


@pytest.mark.shared
def test_a_booted_machine(shared: Path) -> None:
    """Without PCI functions, the two that the stand-in driver lists in /proc/driver/nvidia/gpus."""
    reader = Reader(open_source(str(shared / "field/vm/acs-on-nvidia-fs-2.28.4/root.tar.gz")))
    first, second = gpus.collect(reader, ())
    assert (first.address, second.address) == ("0000:26:00.0", "0000:86:00.0")
    assert second.uuid == "GPU-00000000-0000-0000-0000-000000008600"
    assert second.bar1_bytes is None

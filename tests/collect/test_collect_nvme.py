"""NVMe controllers of captured machines against nvme-cli's own lists, and of machines written down here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gdsctl.collect import nvme
from gdsctl.collect.reader import Reader
from gdsctl.model.devices import NvmeHost
from gdsctl.model.pci import PciDevice
from gdsctl.source.opening import open_source

Machine = Callable[..., Reader]


@pytest.mark.shared
@pytest.mark.parametrize("name", ["rdma-on", "rdma-612", "switches-on", "multipath", "p2pmem", "flat"])
def test_controllers_and_subsystems_as_nvme_cli_lists_them(shared: Path, name: str) -> None:
    folder = shared / "field/vm" / name
    found = {c.name: c for c in nvme.collect(Reader(open_source(str(folder / "root.tar.gz"))), ())}
    listed: dict[str, Any] = {}
    for host in json.loads((folder / "oracle/nvme-list-subsys.json").read_text()):
        for subsystem in host["Subsystems"]:
            listed |= {path["Name"]: (subsystem["Name"], path) for path in subsystem["Paths"]}
    assert set(found) == set(listed)
    for controller, (subsystem, path) in listed.items():
        ours = found[controller]
        assert (ours.subsystem, ours.transport) == (subsystem, path["Transport"])
        if path["Transport"] == "pcie":
            assert (ours.address, ours.traddr) == (path["Address"], None)
        else:
            assert ours.address is None
            assert f"traddr={ours.traddr}," in path["Address"]
    devices = {d["DevicePath"] for d in json.loads((folder / "oracle/nvme-list.json").read_text())["Devices"]}
    assert {f"/dev/{namespace}" for c in found.values() for namespace in c.namespaces} == devices


@pytest.mark.shared
def test_two_paths_to_one_head(shared: Path) -> None:
    """lspci: the one dual-port disk at 21:00.0 and 81:00.0, on the two sockets of the machine."""
    found = nvme.collect(Reader(open_source(str(shared / "field/vm/multipath/root.tar.gz"))), ())
    assert [(c.address, c.namespaces, c.multipath, c.driver) for c in found] == [
        ("0000:81:00.0", ("nvme1n1",), True, "nvme"),
        ("0000:21:00.0", ("nvme1n1",), True, "nvme"),
    ]
    assert {c.numa_node for c in found} == {0, 1}


@pytest.mark.shared
def test_memory_buffer_of_64_mib(shared: Path) -> None:
    """CMBSZ 0x0004021d: 0x40 units of 1 MiB, as p2pmem/size says too; the other five disks have none."""
    found = nvme.collect(Reader(open_source(str(shared / "field/vm/p2pmem/root.tar.gz"))), ())
    assert [c.cmb_bytes for c in found if c.cmb_bytes] == [64 * 1024 * 1024]


@pytest.mark.shared
def test_three_controllers_of_which_two_share_a_disk(shared: Path) -> None:
    """Read by eye: nvme0 (0214:90) has nvme0n1 of its own; nvme1 and nvme2 are paths of the head nvme1n1."""
    found = nvme.collect(Reader(open_source(str(shared / "field/trees/libnvme-tree-pcie.tar.xz"))), ())
    assert [(c.name, c.address, c.namespaces, c.multipath, c.numa_node) for c in found] == [
        ("nvme0", "0214:90:00.0", ("nvme0n1",), False, 1),
        ("nvme1", "052e:78:00.0", ("nvme1n1",), True, 0),
        ("nvme2", "058e:78:00.0", ("nvme1n1",), True, 2),
    ]


@pytest.mark.shared
def test_misc_device_of_linux_3_on_the_root_bus(shared: Path) -> None:
    tree = shared / "field/trees/hwloc-32em64t-2n8c+dax+nvme+mic+dimms.tar.bz2"
    disk = PciDevice(address="0000:00:02.0", class_="010802", driver="nvme")
    (found,) = nvme.collect(Reader(open_source(str(tree))), (disk,))
    assert (found.name, found.address, found.transport, found.namespaces, found.numa_node, found.subsystem) == (
        "nvme0",
        "0000:00:02.0",
        "pcie",
        ("nvme0n1",),
        None,
        None,
    )


def test_names_lie_about_the_controller(machine: Machine, link: Any) -> None:
    """Linux numbers subsystems and controllers apart: nvme1n1 may well be the disk of controller nvme0."""
    place = "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/nvme/nvme0"
    reader = machine(
        {
            "/sys/class/nvme/nvme0": link(f"../../..{place}"),
            "/sys/class/nvme-subsystem/nvme-subsys1": link("../../devices/virtual/nvme-subsystem/nvme-subsys1"),
            "/sys/devices/virtual/nvme-subsystem/nvme-subsys1/nvme0": link(f"../../../../..{place}"),
            f"{place}/nvme1n1/size": "8\n",
            f"{place}/ng1n1/dev": "242:0\n",
            f"{place}/transport": "pcie\n",
            f"{place}/address": "0000:01:00.0\n",
            f"{place}/model": "ACME Disk          \n",
            f"{place}/numa_node": "-1\n",
        }
    )
    (found,) = nvme.collect(reader, ())
    assert (found.namespaces, found.subsystem, found.multipath) == (("nvme1n1",), "nvme-subsys1", False)
    assert (found.model, found.numa_node) == ("ACME Disk", None)


def test_fabrics_pinned_to_an_interface(machine: Machine) -> None:
    place = "/sys/class/nvme/nvme3"
    reader = machine(
        {
            f"{place}/transport": "tcp\n",
            f"{place}/address": "traddr=192.0.2.9,trsvcid=4420,host_iface=ens1,src_addr=192.0.2.1\n",
        }
    )
    (found,) = nvme.collect(reader, ())
    assert (found.address, found.traddr, found.host_traddr, found.host_iface, found.driver) == (
        None,
        "192.0.2.9",
        "192.0.2.1",
        "ens1",
        "nvme_tcp",
    )
    assert found.multipath is None


def test_no_class_is_no_controller_but_an_unread_one_is_a_gap(machine: Machine, denied: OSError) -> None:
    reader = machine({"/sys/class/net": dict})
    assert nvme.collect(reader, ()) == ()
    assert reader.gaps == []
    for files in ({"/proc/version": ""}, {"/sys/class/nvme": denied}):
        reader = machine(files)
        assert nvme.collect(reader, ()) == ()
        assert [gap.section for gap in reader.gaps] == ["nvme"]


def test_fabrics_tell_their_subsystem(machine: Machine) -> None:
    place = "/sys/class/nvme/nvme3"
    files = {
        f"{place}/transport": "rdma\n",
        f"{place}/address": "traddr=192.0.2.9,trsvcid=4421,host_traddr=192.0.2.1\n",
        f"{place}/subsysnqn": "nqn.2024-01.org.example:kv\n",
        f"{place}/hostnqn": "nqn.2024-01.org.example:host\n",
        f"{place}/cntrltype": "io\n",
    }
    (found,) = nvme.collect(machine(files), ())
    assert (found.nqn, found.trsvcid, found.hostnqn, found.controller_type) == (
        "nqn.2024-01.org.example:kv",
        "4421",
        "nqn.2024-01.org.example:host",
        "io",
    )
    del files[f"{place}/subsysnqn"]
    reader = machine(files)
    assert nvme.collect(reader, ())[0].nqn is None
    assert [(gap.field, gap.settle_with) for gap in reader.gaps] == [("nqn", f"cat {place}/subsysnqn")]


@pytest.mark.shared
def test_a_captured_controller_over_soft_rdma(shared: Path) -> None:
    """rdma-612: `nvme connect -t rdma` over rdma_rxe; the names stand in the capture's own files."""
    reader = Reader(open_source(str(shared / "field" / "vm" / "rdma-612" / "root.tar.gz")))
    (found,) = (controller for controller in nvme.collect(reader, ()) if controller.transport == "rdma")
    assert (found.nqn, found.trsvcid, found.controller_type) == ("nqn.2024-01.lab.gds:disk1", "4420", "io")
    assert (found.hostnqn or "").startswith("nqn.2014-08.org.nvmexpress:uuid:")


def test_the_host_side_of_fabrics(machine: Machine, denied: OSError) -> None:
    """nvme-cli passes over lines that begin with `#`, and over empty ones (fabrics.c, discover_from_conf_file)."""
    conf = "# -t tcp -a 192.0.2.1\n\n-t rdma -a 192.0.2.9\n"
    reader = machine({"/etc/nvme/discovery.conf": conf, "/etc/nvme/hostnqn": "nqn.2024-01.org.example:host\n"})
    assert nvme.host(reader) == NvmeHost(hostnqn="nqn.2024-01.org.example:host", discovery=("-t rdma -a 192.0.2.9",))
    assert nvme.host(machine({"/etc/hosts": ""})) == NvmeHost(discovery=())
    assert nvme.host(machine({"/etc/nvme/discovery.conf": denied})).discovery is None

"""IOMMU state from its evidence, and NUMA nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from gdsctl.collect import iommu, numa, pci
from gdsctl.collect.reader import Reader
from gdsctl.model.pci import PciDevice
from gdsctl.model.software import Platform
from gdsctl.source.opening import open_source

GPU = PciDevice(address="0000:19:00.0", class_="030200", iommu_group="12")
DISK = PciDevice(address="0000:18:00.0", class_="010802", iommu_group="13")
HUB = PciDevice(address="0000:00:14.0", class_="0c0330", iommu_group="3")


def groups(**types: str) -> dict[str, str]:
    return {f"/sys/kernel/iommu_groups/{name[1:]}/type": f"{kind}\n" for name, kind in types.items()}


def state(machine, files, *devices: PciDevice, cmdline: str | None = None):
    reader = machine(files)
    return iommu.collect(reader, devices, Platform(cmdline=cmdline)), reader


@pytest.mark.parametrize(
    ("gpu", "disk", "expected"),
    [
        ("identity", "identity", "passthrough"),
        ("DMA", "DMA", "translated"),
        ("DMA-FQ", "DMA-FQ", "translated"),
        ("identity", "DMA-FQ", "translated"),
    ],
)
def test_group_types_decide(machine, gpu, disk, expected):
    result, reader = state(machine, groups(g12=gpu, g13=disk, g3="DMA"), GPU, DISK, HUB, cmdline="iommu=pt")
    assert result.state == expected
    assert not reader.gaps
    assert [(group.id, group.devices) for group in result.groups] == [
        ("3", ("0000:00:14.0",)),
        ("12", ("0000:19:00.0",)),
        ("13", ("0000:18:00.0",)),
    ]


def test_mixed_hosts_say_so(machine):
    result, _ = state(machine, groups(g12="identity", g13="DMA"), GPU, DISK)
    assert "identity 1" in result.evidence[0]
    assert "DMA 1" in result.evidence[0]


def test_a_translated_usb_hub_does_not_make_the_node_translated(machine):
    result, _ = state(machine, groups(g12="identity", g3="DMA"), GPU, HUB)
    assert result.state == "passthrough"


def test_no_groups_is_off(machine):
    result, _ = state(machine, {"/sys/kernel/iommu_groups": dict, "/sys/class/iommu": dict}, GPU, cmdline="quiet ro")
    assert result.state == "off"


def test_a_missing_folder_is_off_on_a_whole_capture(machine):
    assert state(machine, {"/sys/kernel/mm": dict, "/sys/class/net": dict}, GPU)[0].state == "off"


def test_a_bare_tree_that_lacks_the_folders_decides_nothing(tmp_path):
    (tmp_path / "sys/class/net").mkdir(parents=True)
    reader = Reader(open_source(str(tmp_path)))
    assert iommu.collect(reader, (), Platform(cmdline="quiet ro")).state == "unknown"
    assert [(gap.section, gap.field) for gap in reader.gaps] == [("iommu", "state")]
    assert iommu.collect(reader, (), Platform(cmdline="ro intel_iommu=off")).state == "off"


def test_not_captured_is_unknown_whatever_the_command_line_says_about_on(machine):
    result, reader = state(machine, {"/proc/cmdline": ""}, cmdline="ro intel_iommu=on")
    assert result.state == "unknown"
    assert any("intel_iommu=on" in line for line in result.evidence)
    assert reader.gaps[0].settle_with == "cat /sys/kernel/iommu_groups/*/type"


def test_old_kernels_without_types_fall_back_to_the_command_line(machine):
    files = {"/sys/kernel/iommu_groups/12/devices/0000:19:00.0/x": ""}
    assert state(machine, files, GPU, cmdline="intel_iommu=on iommu=pt")[0].state == "passthrough"
    assert state(machine, files, GPU, cmdline="intel_iommu=on")[0].state == "unknown"


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "expected"), [("switches-off", "off"), ("switches-pt", "passthrough"), ("switches-on", "translated")]
)
def test_booted_machines(shared: Path, name: str, expected: str):
    reader = Reader(open_source(str(shared / f"field/vm/{name}/root.tar.gz")))
    result = iommu.collect(reader, pci.collect(reader), Platform(cmdline=reader.value("/proc/cmdline")))
    assert result.state == expected
    nodes = numa.collect(reader).nodes
    # numactl --hardware beside it: two nodes, one CPU each, distances 10 and 20
    assert [(node.id, node.cpus, node.distances) for node in nodes] == [(0, "0", (10, 20)), (1, "1", (20, 10))]


def test_numa_nodes(machine):
    home = "/sys/devices/system/node"
    reader = machine(
        {
            f"{home}/node0/cpulist": "0-1\n",
            f"{home}/node0/distance": "10 32\n",
            f"{home}/node0/meminfo": "Node 0 MemTotal:       2048 kB\nNode 0 MemFree:  1024 kB\n",
            f"{home}/node10/cpulist": "\n",  # memory only
            f"{home}/node10/distance": "32 10\n",
            f"{home}/node2/cpulist": "2-3\n",
            f"{home}/online": "0,2,10\n",
            "/sys/devices/system/cpu/cpu0/topology/physical_package_id": "0\n",
            "/sys/devices/system/cpu/cpu2/topology/physical_package_id": "-1\n",
        }
    )
    nodes = numa.collect(reader).nodes
    assert [(node.id, node.cpus, node.socket) for node in nodes] == [(0, "0-1", 0), (2, "2-3", None), (10, "", None)]
    assert nodes[0].memory_bytes == 2048 * 1024
    assert nodes[0].distances == (10, 32)


def test_no_numa_folder_is_a_gap(machine):
    reader = machine({"/proc/cmdline": ""})
    assert numa.collect(reader).nodes == ()
    assert [(gap.section, gap.field, gap.reason) for gap in reader.gaps] == [("numa", "nodes", "absent")]


def test_units_that_run(machine):
    files = {"/sys/class/iommu/dmar1": dict, "/sys/class/iommu/dmar0": dict}
    assert set(state(machine, files, GPU, cmdline="ro")[0].units) == {"dmar0", "dmar1"}
    assert state(machine, {"/sys/class/iommu": dict}, GPU, cmdline="ro")[0].units == ()

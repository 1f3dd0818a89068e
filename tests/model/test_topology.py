"""Path classes, meeting points and link widths on made-up trees."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdsctl.collect import pci
from gdsctl.collect.reader import Reader
from gdsctl.model.pci import Link, PciDevice, Sriov
from gdsctl.model.topology import Topology, link_gbs
from gdsctl.parse import nccl_topo
from gdsctl.source.opening import open_source
from tests.builders import Machine, Part, Switch


def relation(machine: Machine, first: Part, second: Part):
    found = Topology(machine.devices()).relation(first.address, second.address)
    return found.class_, found.meet


def test_two_downstream_ports_of_one_switch_are_pix():
    machine = Machine()
    switch = machine.switch(machine.root_port(machine.root("0000:17", numa=0)))
    gpu, disk = machine.gpu(switch.down[0]), machine.nvme(switch.down[1])
    assert relation(machine, gpu, disk) == ("PIX", "switch")
    path = Topology(machine.devices()).path(gpu.address, disk.address)
    assert path.hops == (switch.down[0].address, switch.up.address, switch.down[1].address)


def test_a_switch_below_a_switch_is_pxb():
    machine = Machine()
    upper = machine.switch(machine.root_port(machine.root("0000:17", numa=0)))
    lower = machine.switch(upper.down[0])
    gpu, near, far = machine.gpu(lower.down[0]), machine.nvme(lower.down[1]), machine.nvme(upper.down[1])
    assert relation(machine, gpu, near) == ("PIX", "switch")
    assert relation(machine, gpu, far) == ("PXB", "switch")


def test_root_ports_of_one_host_bridge_are_phb():
    machine = Machine()
    root = machine.root("0000:17", numa=0)
    gpu, disk = machine.gpu(machine.root_port(root)), machine.nvme(machine.root_port(root))
    assert relation(machine, gpu, disk) == ("PHB", "host_bridge")


@pytest.mark.parametrize(
    ("numa", "expected"), [(0, ("NODE", "numa")), (1, ("SYS", "socket")), (None, ("unknown", None))]
)
def test_host_bridges_are_told_apart_by_numa_node(numa, expected):
    machine = Machine()
    gpu = machine.gpu(machine.root_port(machine.root("0000:17", numa=0)))
    disk = machine.nvme(machine.root_port(machine.root("0000:3a", numa=numa)))
    assert relation(machine, gpu, disk) == expected


def test_a_function_without_a_node_takes_that_of_the_bridge_above():
    machine = Machine()
    ports = [
        machine.root_port(machine.root(bus, numa=None), numa=node) for bus, node in (("0000:17", 0), ("0000:3a", 1))
    ]
    gpu, disk = machine.gpu(ports[0]), machine.nvme(ports[1])
    assert relation(machine, gpu, disk) == ("SYS", "socket")


def test_one_node_machines_need_no_numa_numbers():
    machine = Machine()
    gpu = machine.gpu(machine.root_port(machine.root("0000:17")))
    disk = machine.nvme(machine.root_port(machine.root("0000:3a")))
    assert Topology(machine.devices(), numa_nodes=1).relation(gpu.address, disk.address).class_ == "NODE"


def test_functions_of_one_card_meet_at_the_port_above():
    machine = Machine()
    port = machine.root_port(machine.root("0000:17", numa=0))
    first = machine.nic(port)
    second = machine.nic(port, beside=first)
    assert relation(machine, first, second) == ("PIX", "root_port")


def test_virtual_function_hangs_where_its_physical_one_does():
    machine = Machine()
    switch = machine.switch(machine.root_port(machine.root("0000:17", numa=0)))
    gpu, card = machine.gpu(switch.down[0]), machine.nic(switch.down[1])
    virtual = PciDevice(address="0000:1b:00.7", sriov=Sriov(is_vf=True, physfn=card.address))
    topology = Topology((*machine.devices(), virtual))
    assert topology.relation(gpu.address, virtual.address).class_ == "PIX"


@pytest.mark.parametrize(
    ("device", "upper", "lower", "expected"),
    [
        ("c030", "0000", "1000", ("PIX", True)),
        ("c010", "a064", "a064", ("PIX", True)),
        ("c030", "0000", "0000", ("PXB", False)),
    ],
)
def test_two_levels_of_a_broadcom_switch_count_as_one(device, upper, lower, expected):
    machine = Machine()
    ids = ("1000", device)
    top = machine.switch(machine.root_port(machine.root("0000:17", numa=0)), ids=ids, subsystem=("1000", upper))
    left, right = (machine.switch(port, ids=ids, subsystem=("1000", lower)) for port in top.down)
    gpu, disk = machine.gpu(left.down[0]), machine.nvme(right.down[0])
    found = Topology(machine.devices()).relation(gpu.address, disk.address)
    assert (found.class_, found.flattened) == expected


def test_a_missing_bridge_is_not_taken_for_a_root_bus():
    machine = Machine()
    switch = machine.switch(machine.root_port(machine.root("0000:17", numa=0)))
    gpu, disk = machine.gpu(switch.down[0]), machine.nvme(switch.down[1])
    devices = tuple(d for d in machine.devices() if d.address != switch.up.address)
    found = Topology(devices).relation(gpu.address, disk.address)
    assert (found.class_, found.meet) == ("unknown", None)
    assert "missing" in found.reason


def test_parents_that_go_round_end():
    loop = (
        PciDevice(address="0000:01:00.0", parent="0000:02:00.0"),
        PciDevice(address="0000:02:00.0", parent="0000:01:00.0"),
    )
    assert Topology(loop).relation("0000:01:00.0", "0000:02:00.0").class_ in ("PIX", "PXB", "unknown")


def test_unlisted_functions_have_no_class():
    assert Topology(()).relation("0000:01:00.0", "0000:02:00.0").class_ == "unknown"


def test_guests_without_switches_are_flattened():
    machine = Machine()
    root = machine.root("0000:00")
    gpu = machine.gpu(machine.root_port(root))
    topology = Topology(machine.devices())
    assert topology.flattened([gpu.address], None) is None
    assert topology.flattened([gpu.address], "none") is None
    assert "kvm" in (topology.flattened([gpu.address], "kvm") or "")
    below = machine.gpu(machine.switch(machine.root_port(root)).down[0])
    assert Topology(machine.devices()).flattened([gpu.address, below.address], "kvm") is None


# PCI Express Base Specification 6.0: lanes x GT/s x line code / 8, worked out by hand.
@pytest.mark.parametrize(
    ("gts", "width", "gbs"),
    [(2.5, 16, 4.0), (5.0, 8, 4.0), (8.0, 16, 15.754), (16.0, 4, 7.877), (32.0, 16, 63.015), (64.0, 16, 121.0)],
)
def test_link_widths(gts, width, gbs):
    assert link_gbs(gts, width) == pytest.approx(gbs, abs=0.001)


def test_a_gpu_at_rest_is_judged_by_the_lower_maximum_and_the_width_it_has():
    machine = Machine()
    gpu = machine.gpu(machine.root_port(machine.root("0000:17"), gts=16.0), gts=32.0, width=8)
    disk = machine.nvme(machine.root_port(machine.roots[0]), gts=16.0)
    degraded = machine.nvme(machine.root_port(machine.roots[0]), speed=(2.5, 16.0))
    topology = Topology(machine.devices())
    assert topology.gbs(gpu.address) == pytest.approx(15.754, abs=0.001)  # 16 GT/s x8
    assert topology.gbs(disk.address) == pytest.approx(7.877, abs=0.001)
    assert topology.gbs(degraded.address) == pytest.approx(1.0)  # 2.5 GT/s x4: a drive does not rest its link
    assert Topology([PciDevice(address="0000:01:00.0", link=Link(width=4))]).gbs("0000:01:00.0") is None


# --- any tree --------------------------------------------------------------------------------------------------------


@st.composite
def machines(draw, *, buses: tuple[int, ...] = (0x00, 0x40, 0x80)) -> Machine:
    """Up to three host bridges with ports, up to three levels of switches, and something in most slots."""
    machine = Machine()

    def fill(port: Part, depth: int) -> None:
        what = draw(st.sampled_from(("gpu", "nvme", "nic", "switch", "empty")))
        if what == "switch" and depth < 3:
            switch: Switch = machine.switch(
                port, ports=draw(st.integers(1, 3)), acs=draw(st.sampled_from((None, 0, 0x1D)))
            )
            for down in switch.down:
                fill(down, depth + 1)
        elif what in ("gpu", "nvme", "nic"):
            getattr(machine, what)(port)

    for bus in buses[: draw(st.integers(1, len(buses)))]:
        root = machine.root(f"0000:{bus:02x}", numa=draw(st.sampled_from((None, 0, 1))))
        for _ in range(draw(st.integers(1, 2))):
            fill(machine.root_port(root, acs=draw(st.sampled_from((0, 0x1D)))), 0)
    return machine


def classes(devices: tuple[PciDevice, ...], ends: list[str]) -> list[tuple[str, str | None]]:
    topology = Topology(devices)
    found = [topology.relation(a, b) for a in ends for b in ends if a != b]
    return [(one.class_, one.meet) for one in found]


@settings(max_examples=60, deadline=None)
@given(machines())
def test_both_directions_have_one_class(machine):
    topology = Topology(machine.devices())
    ends = [part.address for part in (*machine.gpus, *machine.disks, *machine.nics)]
    for first in ends:
        for second in ends:
            if first != second:
                there, back = topology.path(first, second), topology.path(second, first)
                assert topology.relation(first, second) == topology.relation(second, first)
                assert there.hops == back.hops[::-1]


@settings(max_examples=40, deadline=None)
@given(machines(), st.integers(1, 0x1FFFF))
def test_other_domain_numbers_keep_the_classes(machine, domain):
    ends = [part.address for part in (*machine.gpus, *machine.disks)]

    def moved(text: str) -> str:
        return f"{domain:04x}{text[4:]}"

    devices = tuple(
        msgspec.structs.replace(
            device,
            address=moved(device.address),
            parent=moved(device.parent) if device.parent else None,
            root_bus=moved(device.root_bus or ""),
        )
        for device in machine.devices()
    )
    assert classes(devices, [moved(end) for end in ends]) == classes(machine.devices(), ends)


@settings(max_examples=40, deadline=None)
@given(machines())
def test_the_class_is_that_of_a_plain_count(machine):
    """Against the definition taken literally: walk both ways up, count the switches in between."""
    devices = {device.address: device for device in machine.devices()}

    def above(address: str) -> list[str]:
        up = []
        while (parent := devices[address].parent) is not None:
            up.append(parent)
            address = parent
        return up

    topology = Topology(devices.values())
    for gpu in machine.gpus:
        for disk in machine.disks:
            ours, theirs = above(gpu.address), above(disk.address)
            common = [bridge for bridge in ours if bridge in theirs]
            if common:
                way = {*ours[: ours.index(common[0]) + 1], *theirs[: theirs.index(common[0])]}
                switches = sum(devices[bridge].kind == "upstream_port" for bridge in way)
                expected = "PIX" if switches <= 1 else "PXB"
            elif gpu.root is disk.root:
                expected = "PHB"
            elif None in (gpu.root.numa, disk.root.numa):
                expected = "unknown"
            else:
                expected = "NODE" if gpu.root.numa == disk.root.numa else "SYS"
            assert topology.relation(gpu.address, disk.address).class_ == expected


# --- foreign answers -------------------------------------------------------------------------------------------------


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # 8 GPUs, 4 NICs, one switch for two GPUs and a NIC; counted in the file by eye: 4 switches, 2 a socket.
        # NCCL's PHB is PHB or NODE here: the file leaves the host bridges out.
        ("aws_p4d.24xl", {"PIX": 8, "unknown": 8, "SYS": 16}),
        ("azure_ndv4-topo", {"PIX": 16, "SYS": 48}),
    ],
)
def test_nccl_topology_files(shared: Path, name, expected):
    topo = nccl_topo.parse((shared / f"field/nccl/{name}.xml").read_text())
    topology = Topology(topo.devices)
    nics = {nic.address for nic in topo.nics if nic.address}
    found: dict[str, int] = {}
    for gpu in topo.gpus:
        for nic in nics:
            class_ = topology.relation(gpu.address, nic).class_
            found[class_] = found.get(class_, 0) + 1
    assert found == expected


@pytest.mark.shared
def test_nvidia_fs_counts_the_same_bridges(shared: Path):
    """The distances of a booted kernel's nvidia-fs, from our chains by the formula of its nvfs-pci.c.

    Below one root port: bridges apart on both sides plus 1 (the common one once); else 127 (same node) or 254 (not)
    plus both chains plus 1.
    """
    reader = Reader(open_source(str(shared / "field/vm/acs-on-nvidia-fs-2.28.4/root.tar.gz")))
    topology = Topology(pci.collect(reader))
    text = reader.value("/proc/driver/nvidia-fs/peer_distance") or ""
    rows = [line.split() for line in text.splitlines()[1:]]
    assert len(rows) == 16
    for gpu, peer, _, distance, *_ in rows:
        path = topology.path(gpu, peer)
        if path.common:
            expected = len(path.up) + len(path.down) + 1
        else:
            near = topology.numa_node(gpu) == topology.numa_node(peer)
            expected = (127 if near else 254) + len(path.up) + len(path.down) + 1
        assert int(distance, 16) == expected, (gpu, peer)

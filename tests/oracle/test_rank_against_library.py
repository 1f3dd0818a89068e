"""How far libcufile takes devices to be, and in which order it prefers them, on made-up machines."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gdsctl.model.topology import Topology
from tests.builders import Machine, Part, Root
from tests.oracle import fakesys, oracle

if TYPE_CHECKING:
    from tests.oracle.conftest import Libcufile

pytestmark = pytest.mark.oracle
AT_ONCE = 8
BATCHES = int(os.environ.get("GDSCTL_ORACLE_BATCHES", "2"))  # about four seconds each
FIRST_WITH_EXPORT = (1, 17)  # cuFileExportPCIeTopology
SPEEDS = (2.5, 5.0, 8.0, 16.0, 32.0, 64.0)


def tree(machine: Machine) -> dict[str, Any]:
    """The machine as fakesys describes one. Host bridge functions are left out: libcufile asks for GPUs, NICs, drives."""
    kinds = {"030200": "gpu", "010802": "nvme", "020700": "ib", "060400": "bridge"}

    def described(parts: list[Part], numa: int | None) -> dict[str, Any]:
        found = {}
        for part in parts:
            kind = kinds.get(part.class_)
            if kind is None:
                continue
            node = part.numa if part.numa is not None else numa
            current, most = part.speed or (32.0, 32.0)
            found[part.address] = {
                "kind": kind,
                "numa": -1 if node is None else node,
                "speed": f"{current} GT/s PCIe",
                "max_speed": f"{most} GT/s PCIe",
                "width": part.width,
                "below": described(part.parts, numa),
            }
        return found

    machine.number()
    return {address: what for root in machine.roots for address, what in described(root.parts, root.numa).items()}


def of(library: Libcufile) -> tuple[int, int]:
    major, minor = library.version.split(".")[:2]
    return int(major), int(minor)


def asked(machine: Machine, sockets: dict[int, int], folder: Path, library: Libcufile) -> dict[str, Any]:
    fakesys.build(folder, tree(machine), node_count=len(sockets))
    for node, socket in sockets.items():
        for cpu in range(32 * node, 32 * node + 32):
            (folder / f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id").write_text(f"{socket}\n")
    try:
        return library.ask(None, root=folder, topology=True)
    except oracle.Unavailable as reason:
        pytest.skip(str(reason))


def agree(machine: Machine, sockets: dict[int, int], folder: Path, library: Libcufile) -> int:
    """Compares every pair's rank and every GPU's order of preference; the number of pairs."""
    answer = asked(machine, sockets, folder, library)
    topology, release = Topology(machine.devices()), of(library)
    peers = [part.address for part in (*machine.nics, *machine.disks)]
    ranks = {(row["gpu"], row["peer"]): row["rank"] for row in answer["platform"]["peers"]}
    assert set(ranks) == {(gpu.address, peer) for gpu in machine.gpus for peer in peers}
    assert ranks == {(gpu, peer): topology.libcufile_rank(gpu, peer, sockets, release=release) for gpu, peer in ranks}
    exported = answer["topology"]
    addresses = {name: row["bdf"] for name, row in exported.items()}
    for gpu in machine.gpus:
        theirs = [
            {addresses[name] for name in group["devices"]}
            for group in sorted(exported[f"GPU_{gpu.address}"]["preferences"], key=lambda group: group["order"])
        ]
        ours = topology.libcufile_order(gpu.address, peers, sockets, release=release)
        assert [set(group) for group in ours] == theirs
    return len(ranks)


@pytest.fixture
def exporting(libcufile: Libcufile) -> Libcufile:
    if of(libcufile) < FIRST_WITH_EXPORT:
        pytest.skip("this release cannot export what it makes of the topology")
    return libcufile


def test_relations(exporting: Libcufile, tmp_path: Path) -> None:
    """One of each: below one switch, cascade, other port, other node, other socket, no node, right on root buses."""
    machine = Machine()
    first = machine.root("0000:10", numa=0)
    switch = machine.switch(machine.root_port(first), ports=3)
    cascade = machine.switch(switch.down[2], ports=1)
    machine.gpu(switch.down[0])
    near, deep = machine.nic(switch.down[1]), machine.nvme(cascade.down[0])
    beside = machine.nic(machine.root_port(first))
    same_socket = machine.nic(machine.root_port(machine.root("0000:40", numa=1)))
    far = machine.nvme(machine.root_port(machine.root("0000:80", numa=2)))
    nowhere = machine.nic(machine.root_port(machine.root("0000:c0", numa=None)))
    on_root, elsewhere, beside_it = machine.nic(first), machine.gpu(machine.roots[2]), machine.nic(machine.roots[2])
    sockets = {0: 0, 1: 0, 2: 1, 3: 1}
    assert agree(machine, sockets, tmp_path, exporting) == 2 * 8
    topology = Topology(machine.devices())
    ranks = [
        topology.libcufile_rank(machine.gpus[0].address, part.address, sockets, release=of(exporting))
        for part in (near, deep, beside, same_socket, far, nowhere, on_root)
    ]
    nameless = 128 if of(exporting) >= (1, 20) else 256
    assert ranks == [4, 6, 128, 256, 384, nameless, 128]
    on_roots = [
        topology.libcufile_rank(elsewhere.address, part.address, sockets, release=of(exporting))
        for part in (beside_it, on_root)
    ]
    assert on_roots == ([2, 2] if of(exporting) >= (1, 19) else [128, 384])  # the second is two sockets away


@st.composite
def machines(draw: st.DrawFn) -> tuple[Machine, dict[int, int]]:
    """Two to four host bridges with a NIC and a drive at least, without which libcufile exports nothing."""
    machine = Machine()
    sockets = {node: draw(st.integers(0, 1)) for node in range(draw(st.integers(1, 4)))}
    node = st.sampled_from((None, *sockets))

    def fill(above: Part | Root, depth: int) -> None:
        what = draw(st.sampled_from(("gpu", "nvme", "nic", "nic", "switch", "switch")))
        if what == "switch" and depth < 3 and isinstance(above, Part):
            for down in machine.switch(above, ports=draw(st.integers(1, 3))).down:
                fill(down, depth + 1)
        elif what == "gpu":
            machine.gpu(above, numa=draw(node))
        else:
            add = machine.nvme if what == "nvme" else machine.nic
            add(above, gts=draw(st.sampled_from(SPEEDS)), width=draw(st.sampled_from((1, 2, 4, 8, 16))))

    for bus in ("0000:00", "0000:40", "10000:00", "0000:c0")[: draw(st.integers(2, 4))]:
        root = machine.root(bus, numa=draw(node))
        for _ in range(draw(st.integers(1, 3))):
            fill(machine.root_port(root), 0)
        if draw(st.booleans()):
            fill(root, 3)
    machine.gpu(machine.root_port(machine.roots[0]))
    machine.nic(machine.root_port(machine.roots[1]))
    machine.nvme(machine.root_port(machine.roots[1]))
    return machine, sockets


@settings(max_examples=BATCHES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(drawn=st.lists(machines(), min_size=AT_ONCE, max_size=AT_ONCE))
def test_any_machine(
    drawn: list[tuple[Machine, dict[int, int]]], installed: Libcufile, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folders = [tmp_path_factory.mktemp("node") for _ in drawn]
    with ThreadPoolExecutor(AT_ONCE) as pool:  # the library sleeps most of its time
        done = [
            pool.submit(agree, machine, sockets, folder, installed)
            for (machine, sockets), folder in zip(drawn, folders, strict=True)
        ]
    assert all(future.result() > 0 for future in done)

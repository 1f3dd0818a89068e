"""Who can stage for whom: NVLink pairs, a hybrid cube mesh, NVSwitches."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from gdsctl.assess.config import Config
from gdsctl.assess.pairs import pairs
from gdsctl.assess.routing import applicable, linked, nearest_first, staging_gpus
from gdsctl.assess.view import View
from gdsctl.model.devices import Backing, Gpu, Mount, NvLink
from gdsctl.model.node import Numa, NumaNode
from gdsctl.model.software import NvidiaFs
from gdsctl.parse.nvidia_smi_topo import parse
from tests.builders import Machine

# Eight V100 of a DGX-1V in their hybrid cube mesh: `nvidia-smi topo -m` of such nodes shows these counts of links.
CUBE_MESH = {
    0: {1: 1, 2: 2, 3: 1, 7: 2},
    1: {0: 1, 2: 1, 3: 2, 6: 2},
    2: {0: 2, 1: 1, 3: 2, 5: 1},
    3: {0: 1, 1: 2, 2: 2, 4: 1},
    4: {3: 1, 5: 2, 6: 2, 7: 1},
    5: {2: 1, 4: 2, 6: 1, 7: 2},
    6: {1: 2, 4: 2, 5: 1, 7: 1},
    7: {0: 2, 4: 1, 5: 2, 6: 1},
}


def node_of(mesh: dict[int, dict[int, int]], *, near: tuple[int, ...]) -> View:
    """Eight GPUs on two sockets; those of `near` share a switch with the one NIC, each other has its root port."""
    machine = Machine()
    roots = [machine.root("0000:17", numa=0), machine.root("0000:97", numa=1)]
    switch = machine.switch(machine.root_port(roots[0]), ports=len(near) + 1)
    machine.nic(switch.down[-1])
    ports = iter(switch.down)
    for index in range(8):
        machine.gpu(next(ports) if index in near else machine.root_port(roots[index // 4]))
    addresses = [part.address for part in machine.gpus]
    node = machine.node()
    gpus = tuple(
        msgspec.structs.replace(
            gpu,
            nvlinks=tuple(NvLink(peer=addresses[peer], count=count) for peer, count in mesh.get(gpu.index, {}).items()),
        )
        for gpu in node.gpus
    )
    node = msgspec.structs.replace(node, gpus=gpus)
    return View(node, Config.of(node), pairs(node))


def staged(view: View) -> set[int]:
    """GPUs for which some GPU near the NIC can stage over NVLink."""
    nics = view.node.nics
    return {gpu.index for gpu in view.gpus if "GPU_MEM_NVLINKS" in applicable(view, gpu, nics)}


def test_in_a_cube_mesh_a_helper_needs_a_direct_link():
    assert all(CUBE_MESH[peer][gpu] == count for gpu, row in CUBE_MESH.items() for peer, count in row.items())
    assert all(sum(row.values()) == 6 for row in CUBE_MESH.values())  # a V100 has six
    view = node_of(CUBE_MESH, near=(2, 3))
    assert {gpu.index for gpu in staging_gpus(view, view.gpus[6], view.node.nics)} == {2, 3}
    # GPU 2 reaches 0, 1, 3, 5 and GPU 3 reaches 0, 1, 2, 4; 6 and 7 have a link to neither.
    assert staged(view) == {0, 1, 2, 3, 4, 5}
    assert applicable(view, view.gpus[6], view.node.nics) == ("GPU_MEM", "SYS_MEM", "P2P")


@pytest.mark.shared
def test_the_mesh_is_the_one_that_nvidia_smi_shows(shared: Path):
    matrix = parse((shared / "field/topo/05.txt").read_text().partition("the sample follows)")[2]).matrix
    shown = {
        gpu: {
            peer: int(cell[2:])
            for peer in range(8)
            if (cell := matrix[f"GPU{gpu}"][f"GPU{peer}"]) is not None and cell.startswith("NV")
        }
        for gpu in range(8)
    }
    assert shown == CUBE_MESH


def test_bridged_pairs_help_each_other_only():
    pairs_of_four = {gpu: {gpu ^ 1: 4} for gpu in range(8)}
    assert staged(node_of(pairs_of_four, near=(0, 4))) == {1, 5}


def test_without_nvlink_gpu_memory_is_staged_over_pcie():
    view = node_of({}, near=(0,))
    assert staged(view) == set()
    assert applicable(view, view.gpus[5], view.node.nics) == ("GPU_MEM", "SYS_MEM", "P2P")
    assert applicable(view, view.gpus[0], view.node.nics) == ("SYS_MEM", "P2P")  # no other GPU is near


def test_behind_nvswitches_all_are_linked():
    def gpu(index: int, peer: str) -> Gpu:
        return Gpu(index=index, address=f"0000:0{index}:00.0", nvlinks=(NvLink(peer=peer, count=18),))

    assert linked(gpu(1, "switch"), gpu(2, "switch"))
    assert not linked(gpu(1, "switch"), Gpu(index=2, address="0000:02:00.0"))


def test_numbers_name_gpus_whose_address_is_not_known():
    def nameless(index: int, peer: str) -> Gpu:
        return Gpu(index=index, address=None, nvlinks=(NvLink(peer=peer, count=4),))

    assert linked(nameless(0, "GPU1"), nameless(1, "GPU0"))
    assert not linked(nameless(0, "GPU1"), nameless(2, "GPU3"))


# --- which NIC first -------------------------------------------------------------------------------------------------


def shared(*, table: tuple[dict[str, object], ...] | None = None) -> tuple[View, Machine]:
    """A GPU, and three NICs of one mount: far away, below another port at half the width, below the GPU's switch."""
    machine = Machine()
    root = machine.root("0000:17", numa=0)
    switch = machine.switch(machine.root_port(root), ports=2)
    machine.gpu(switch.down[0])
    machine.nic(machine.root_port(machine.root("0000:97", numa=1)))
    machine.nic(machine.root_port(root), width=8)
    machine.nic(switch.down[1], gts=8.0)
    node = machine.node()
    backing = Backing(kind="nfs", transport="rdma", nics=tuple(part.address for part in machine.nics))
    node = msgspec.structs.replace(
        node,
        mounts=(Mount(target="/kv", fstype="nfs", options=("proto=rdma",), backing=backing),),
        numa=Numa(nodes=(NumaNode(id=0, socket=0), NumaNode(id=1, socket=1))),
        nvidia_fs=NvidiaFs(peer_distance=table),
    )
    return View(node, Config.of(node), pairs(node)), machine


def test_the_nearest_nic_comes_first():
    view, machine = shared()
    far, beside, near = (part.address for part in machine.nics)
    # Ranks 384, 128 and 4: libcufile 1.20 without nvidia-fs.
    assert nearest_first(view, view.gpus[0], view.storage("/kv")) == (near, beside, far)


def test_nvidia_fs_has_the_last_word():
    _, machine = shared()
    gpu = machine.gpus[0].address
    far, beside, near = (part.address for part in machine.nics)
    rows: tuple[dict[str, object], ...] = (
        {"gpu": gpu, "peer": near, "peerrank": 0x00830098},
        {"gpu": gpu, "peer": far, "peerrank": 0x00820088},
        {"gpu": "0000:ff:00.0", "peer": beside, "peerrank": 1},
    )
    view, _ = shared(table=rows)
    assert nearest_first(view, view.gpus[0], view.storage("/kv")) == (far, near, beside)


def test_sockets_that_nobody_knows_leave_the_far_nic_last():
    view, machine = shared()
    node = msgspec.structs.replace(view.node, numa=Numa(nodes=(NumaNode(id=0), NumaNode(id=1))))
    blind = View(node, view.config, view.pairs)
    assert nearest_first(blind, blind.gpus[0], blind.storage("/kv"))[-1] == machine.nics[0].address

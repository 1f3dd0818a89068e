"""libcufile's dynamic routing: where it stages the bytes of a GPU that has no NIC of the mount near by.

Source: NVIDIA GDS Overview Guide, 'Dynamic Routing'; log texts of libcufile 1.20 name the same conditions.
"""

from __future__ import annotations

from typing import Literal, get_args

from gdsctl.assess import static_routing
from gdsctl.assess.view import Storage, View, gpu_key
from gdsctl.data.limits import numbers
from gdsctl.model.devices import Gpu, Nic

Policy = Literal["GPU_MEM_NVLINKS", "GPU_MEM", "SYS_MEM", "P2P"]
POLICIES: tuple[Policy, ...] = get_args(Policy)


def is_routed(storage: Storage) -> bool:
    """Is it storage that dynamic routing knows: a network file system that reaches the GPU by RDMA?"""
    row = storage.filesystem
    return row is not None and row.rdma in ("kernel", "userspace") and not storage.over_tcp


def near(view: View, gpu: Gpu, nic: Nic) -> bool | None:
    """Do GPU and NIC share a root port, so that no staging is needed? None: their places are not known."""
    pair = view.pair(gpu_key(gpu), nic.address or nic.rdma_device)
    if pair is None or pair.class_ == "unknown":
        return None
    return pair.class_ in ("PIX", "PXB")


def nearest_first(view: View, gpu: Gpu, storage: Storage) -> tuple[str, ...]:
    """Addresses of the mount's peers, NICs among which libcufile has a choice in the order in which it would take them.

    A static routing file counts first, then nvidia-fs's table where it is loaded, else what libcufile works out itself.
    Peers of unknown rank come last.
    """
    peers = view.peers(storage.mount)
    if not is_routed(storage) or gpu.address is None:
        return peers
    static = _static(view)
    groups = library_order(view, gpu.address, peers) if static is None else static.get(gpu.address, ())
    return tuple(dict.fromkeys((*(peer for group in groups for peer in group if peer in peers), *peers)))


def library_order(view: View, gpu: str, peers: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Peers of a GPU as libcufile ranks them without a static routing file, nearest first, equals together."""
    rows = view.node.nvidia_fs.peer_distance
    if not rows:
        sockets = {node.id: node.socket for node in view.node.numa.nodes}
        release = {"release": numbers(view.version)[:2]} if view.version else {}
        return view.topology.libcufile_order(gpu, peers, sockets, **release)
    ranks = {row["peer"]: row["peerrank"] for row in rows if row.get("gpu") == gpu and row.get("peerrank") is not None}
    found: dict[int, list[str]] = {}
    for peer in peers:
        if peer in ranks:
            found.setdefault(ranks[peer], []).append(peer)
    return tuple(tuple(found[rank]) for rank in sorted(found))


def _static(view: View) -> dict[str, tuple[tuple[str, ...], ...]] | None:
    """GPU -> peers of a static routing file that is in force; None: none is, or what it holds is not known."""
    text = view.node.gds.cufile_config.static_routing
    switched_on = view.config.merged is not None and static_routing.asked_for(view.config.merged) is not None
    return static_routing.preferences(text) if switched_on and text is not None else None


def staging_gpus(view: View, gpu: Gpu, nics: tuple[Nic, ...]) -> tuple[Gpu, ...]:
    """Other GPUs that share a root port with one of the NICs."""
    return tuple(g for g in view.gpus if g is not gpu and any(near(view, g, nic) for nic in nics))


def linked(gpu: Gpu, other: Gpu) -> bool:
    """Can the two copy over NVLink: a link between them, or both on the same fabric of NVSwitches?

    In a hybrid cube mesh each GPU is linked to some of the others only; through a third one nothing is copied.
    """
    peers = {link.peer for link in gpu.nvlinks}
    back = {link.peer for link in other.nvlinks}
    both_switched = "switch" in peers and "switch" in back
    return both_switched or not peers.isdisjoint(_names(other)) or not back.isdisjoint(_names(gpu))


def _names(gpu: Gpu) -> tuple[str, ...]:
    """What a link's `peer` may call a GPU: its number where the matrix of nvidia-smi is all that is known."""
    return tuple(name for name in (gpu.address, f"GPU{gpu.index}") if name)


def applicable(view: View, gpu: Gpu, nics: tuple[Nic, ...]) -> tuple[Policy, ...]:
    """The policies that can work for a GPU far from the NICs, best first."""
    helpers = staging_gpus(view, gpu, nics)
    over_nvlink = any(linked(gpu, helper) for helper in helpers)
    works = {"GPU_MEM_NVLINKS": over_nvlink, "GPU_MEM": bool(helpers), "SYS_MEM": True, "P2P": True}
    return tuple(policy for policy in POLICIES if works[policy])


def far_gpus(view: View, storage: Storage) -> tuple[Gpu, ...] | None:
    """GPUs without a NIC of the mount under their root port; None where NICs or places are not known."""
    nics = view.nics(storage.mount)
    if not nics:
        return None
    distances = {g.index: [near(view, g, nic) for nic in nics] for g in view.gpus}
    if any(all(d is None for d in found) for found in distances.values()):
        return None
    return tuple(g for g in view.gpus if not any(distances[g.index]))


def dynamic_policy(view: View, gpu: Gpu, storage: Storage) -> Policy | None:
    """What the configured routing does for one GPU and mount: None where it is off, not needed or not known."""
    if view.config.flag("properties.rdma_dynamic_routing") is not True or not is_routed(storage):
        return None
    far = far_gpus(view, storage)
    if far is None or gpu not in far:
        return None
    order = view.config.get("properties.rdma_dynamic_routing_order") or POLICIES
    possible = applicable(view, gpu, view.nics(storage.mount))
    return next((policy for policy in order if policy in possible), "P2P")

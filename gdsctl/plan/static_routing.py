"""The static routing file, where libcufile's own look at the PCI tree would choose a NIC that is farther than another.

libcufile tells devices below one root port from others, and NUMA nodes; it does not tell a NIC at the GPU's own host
bridge from one at another of the same node (`libcufile_rank`), nor any two where the firmware names no node.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from gdsctl.assess import routing
from gdsctl.assess.static_routing import KEYS
from gdsctl.data import cufile_keys
from gdsctl.model.devices import Gpu
from gdsctl.plan.context import Context
from gdsctl.record import Record

PATH = "/etc/topology.json"
_NEARNESS = {"PIX": 0, "PXB": 1, "PHB": 2, "NODE": 3, "SYS": 4}
_SAME_PORT = 1  # PIX and PXB: below one root port, which libcufile tells from all else


class StaticRouting(Record, frozen=True, kw_only=True):
    """`devices`: as in the file; `missing`: what is not known for it, so that there are none; `why`: what it is needed
    for, empty where libcufile chooses as well by itself; `to_write`: the node has another file, or none.
    """

    devices: dict[str, Any]
    missing: str = ""
    why: str = ""
    to_write: bool = False

    @property
    def needed(self) -> bool:
        return bool(self.why and self.devices)

    @property
    def text(self) -> str:
        return json.dumps(self.devices, indent=2, ensure_ascii=True) + "\n"


def desire(context: Context, staged: frozenset[str]) -> tuple[StaticRouting, tuple[str, ...]]:
    """The file for this node, and sentences on why it is not to be had. `staged`: mounts under dynamic routing."""
    devices, missing = describe(context)
    why = tuple(_misled(context, staged))
    row = cufile_keys.key(KEYS[0])
    found = StaticRouting(devices=devices, missing=missing)
    if not why:
        return found, ()
    if row is None or not row.known_in(context.release):
        return found, tuple(f"{said}; from GDS 1.17 on a static routing file would tell them apart" for said in why)
    if missing:
        return found, tuple(f"{said}; no static routing file is planned: {missing}" for said in why)
    return StaticRouting(devices=devices, why="; ".join(why), to_write=_differs(context, devices)), ()


def _differs(context: Context, devices: dict[str, Any]) -> bool:
    text = context.node.gds.cufile_config.static_routing
    try:
        return text is None or json.loads(text) != devices
    except ValueError:
        return True


def _misled(context: Context, staged: frozenset[str]) -> Iterator[str]:
    """A sentence for each mount of which some GPU would be given a NIC that is farther than the nearest."""
    for wish, storage in context.direct_storages:
        peers = tuple(nic.address for nic in context.nics(wish, storage.mount) if nic.address)
        if len(peers) < 2 or wish.target in staged or not routing.is_routed(storage):
            continue
        found = []
        for gpu in context.gpus:
            far = {peer: max(_NEARNESS.get(_class(context, gpu, peer), -1), _SAME_PORT) for peer in peers}
            first = next(iter(routing.library_order(context.view, gpu.address or "", peers)), ())
            if max((far[peer] for peer in first), default=0) > min(far.values()):
                found.append(str(gpu.index))
        if found:
            yield f"to libcufile NICs of {wish.target} at unlike distances from GPU {', '.join(found)} are equally near"


def _class(context: Context, gpu: Gpu, peer: str) -> str:
    pair = context.view.pair(gpu.address, peer)
    return pair.class_ if pair else "unknown"


def describe(context: Context) -> tuple[dict[str, Any], str]:
    """Every GPU, RDMA NIC and PCIe drive, GPUs with their peers nearest first, then widest; or what is not known for it."""
    node, topology = context.node, context.view.topology
    names = {gpu.address: (f"GPU{gpu.index}", "GPU") for gpu in context.view.gpus if gpu.address}
    for nic in node.nics:
        if nic.address and nic.rdma_device:  # both functions of a bond have one RDMA device
            taken = (nic.rdma_device, "NET") in names.values()
            names.setdefault(nic.address, (nic.address if taken else nic.rdma_device, "NET"))
    names |= {drive.address: (drive.name, "NVME") for drive in node.nvme if drive.address}
    sockets = {numa.id: numa.socket for numa in node.numa.nodes}
    groups: dict[str, int] = {}
    devices: dict[str, Any] = {}
    for address, (name, kind) in names.items():
        numa = topology.numa_node(address)
        socket = sockets.get(numa) if numa is not None else None
        if numa is None or socket is None:
            return (
                {},
                f"the {'NUMA node' if numa is None else 'socket'} of {name} ({address}) is not known, and libcufile wants it",
            )
        group = groups.setdefault(topology.root_port(address) or address, len(groups))
        devices[name] = {"bdf": address, "type": kind, "socket": socket, "numa_node": numa, "pcie_group": group}
    for gpu in context.view.gpus:
        if gpu.address:
            devices[f"GPU{gpu.index}"]["preferences"] = _preferences(context, gpu, names)
    return devices, "" if devices else "no device is known"


def _preferences(context: Context, gpu: Gpu, names: dict[str, tuple[str, str]]) -> list[dict[str, Any]]:
    groups: dict[tuple[int, float], list[str]] = {}
    for address, (name, kind) in names.items():
        pair = context.view.pair(gpu.address, address) if kind != "GPU" else None
        if pair is not None and pair.class_ in _NEARNESS:
            groups.setdefault((_NEARNESS[pair.class_], -(pair.bottleneck_gbs or 0)), []).append(name)
    return [{"order": order, "devices": sorted(groups[key])} for order, key in enumerate(sorted(groups), 1)]

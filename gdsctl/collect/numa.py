"""NUMA nodes: `/sys/devices/system/node`."""

from __future__ import annotations

import re

from gdsctl.collect.reader import Reader
from gdsctl.model.node import Numa, NumaNode
from gdsctl.parse.platform_text import parse_cpulist, parse_distances, parse_node_meminfo
from gdsctl.source.base import Missing

_NODES = "/sys/devices/system/node"
_NODE = re.compile(r"node(\d+)")


def collect(reader: Reader) -> Numa:
    """Nodes by number, those without CPUs or memory too. `socket` is the package of the node's first CPU."""
    names = reader.source.names(_NODES)
    if isinstance(names, Missing):
        reader.gap("numa", "nodes", names, detail=_NODES, settle_with="numactl --hardware")
        return Numa()
    numbers = sorted(int(match[1]) for name in names if (match := _NODE.fullmatch(name)))
    return Numa(nodes=tuple(_node(reader, number) for number in numbers))


def _node(reader: Reader, number: int) -> NumaNode:
    home = f"{_NODES}/node{number}"
    cpus = reader.value(f"{home}/cpulist")
    first = next(iter(parse_cpulist(cpus or "") or ()), None)
    socket = None
    if first is not None:
        package = reader.value(f"/sys/devices/system/cpu/cpu{first}/topology/physical_package_id") or ""
        socket = int(package) if package.isascii() and package.isdigit() else None  # -1: the firmware does not tell
    return NumaNode(
        id=number,
        cpus=cpus,
        memory_bytes=parse_node_meminfo(reader.value(f"{home}/meminfo") or ""),
        socket=socket,
        distances=parse_distances(reader.value(f"{home}/distance") or ""),
    )

"""On which CPUs the threads run: those of the NUMA node that their GPU hangs on."""

from __future__ import annotations

import os
from collections.abc import Sequence

from gdsctl.errors import UndecidedError, UsageError
from gdsctl.model.node import Report
from gdsctl.model.topology import Topology
from gdsctl.parse.platform_text import parse_cpulist


def numa_node(node: Report, address: str) -> int | None:
    """Of a PCI function, by firmware's word on it or on a bridge above."""
    return Topology(node.pci.devices, numa_nodes=len(node.numa.nodes) or None).numa_node(address)


def cpus(node: Report, numa: str, addresses: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """For each GPU (with none: for host memory) the CPUs that its threads may use; empty for any.

    `numa`: `auto`, `off` or the number of a node. Raises UsageError for a node that is not there, UndecidedError where
    its CPUs are not known or not ours to use.
    """
    if numa == "off":
        return ((),) * max(1, len(addresses))
    if numa == "auto":
        if len(node.numa.nodes) < 2:
            return ((),) * max(1, len(addresses))
        nodes = [numa_node(node, address) for address in addresses] or [None]
        return tuple(() if number is None else _allowed(node, number) for number in nodes)
    if not (numa.isascii() and numa.isdigit()):
        raise UsageError(f"--numa takes the number of a node, auto or off; not {numa!r}")
    if int(numa) not in {entry.id for entry in node.numa.nodes}:
        known = ", ".join(str(entry.id) for entry in node.numa.nodes) or "none is known"
        raise UsageError(f"--numa {numa}: no such node here ({known})")
    found = _allowed(node, int(numa))
    if not found:
        raise UndecidedError(
            f"no CPU of NUMA node {numa} may be used; settle with: grep Cpus_allowed_list /proc/self/status"
        )
    return (found,) * max(1, len(addresses))


def _allowed(node: Report, number: int) -> tuple[int, ...]:
    """A node's CPUs as far as this process may run on them."""
    text = next((entry.cpus for entry in node.numa.nodes if entry.id == number), None)
    ours = os.sched_getaffinity(0)
    return tuple(cpu for cpu in parse_cpulist(text or "") or () if cpu in ours)

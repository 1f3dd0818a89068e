from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Verdict, seen
from gdsctl.assess.smi_matrix import Cell, cells
from gdsctl.assess.view import View, gpu_key
from gdsctl.model.judgement import Pair, Remedy

_MOST_NAMED = 4
_BELOW_A_BRIDGE = ("PIX", "PXB")


def check(view: View) -> Iterator[Verdict]:
    """Pairs of one and the same disagreement are told together."""
    addresses: dict[str, str] = {}
    for nic in view.node.nics:
        if nic.rdma_device and nic.address:
            addresses.setdefault(nic.rdma_device, nic.address)
    found: dict[tuple[str, str], list[tuple[Cell, Pair]]] = {}
    for cell in cells(view.node):
        pair = view.pair(gpu_key(cell.gpu), addresses.get(cell.device))
        if pair is not None and pair.class_ not in ("unknown", cell.class_):
            found.setdefault((cell.class_, pair.class_), []).append((cell, pair))
    for (shown, computed), where in found.items():
        names = [f"GPU {cell.gpu.index} x {cell.device}" for cell, _ in where]
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        subject = ", ".join(names[:_MOST_NAMED]) + more
        cell, pair = where[0]
        hops = " ".join((pair.gpu, *pair.hops, pair.peer))
        yield Fail(
            subject=subject,
            message=f"nvidia-smi calls {subject} {shown}, the PCI tree says {computed}; the tree is believed",
            evidence=seen(names[0], shown, "nvidia-smi topo -m")
            + seen(f"{pair.gpu} x {pair.peer}", f"{computed}: {hops}", "/sys/bus/pci/devices"),
            severity="info" if {shown, computed} <= set(_BELOW_A_BRIDGE) else "warning",
        )


RULE = Rule(
    id="topo.disagrees",
    severity="warning",
    otherwise={"info": "where both classes are of one bridge"},
    problem="nvidia-smi's matrix and the PCI tree give a GPU and a NIC different classes",
    why="Whoever places work by the matrix places it elsewhere than gdsctl would. The tree is believed, since it shows every "
    "bridge, and the driver draws its matrix from the same tree; a difference means that one of the two is older, of another "
    "machine, or filtered by a container or hypervisor.",
    look_at=("nvidia-smi topo -m", "lspci -tv", "cat /sys/bus/pci/devices/*/numa_node"),
    remedy=Remedy(text="Capture both again on the host itself, at the same time, and compare."),
    not_to_conclude="PIX against PXB is a matter of how a switch of several levels is counted, and changes nothing.",
    source="legend of nvidia-smi topo -m; Linux sysfs",
    check=check,
)

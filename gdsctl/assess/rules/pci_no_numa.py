from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    if len(view.node.numa.nodes) < 2:
        return
    lost = [
        gpu.address
        for gpu in view.gpus
        if gpu.address
        and (device := view.device(gpu.address)) is not None
        and device.numa_node is None
        and _said(view, gpu.address)
    ]
    if lost:
        yield Fail(
            subject=", ".join(lost),
            message=f"the firmware does not say which NUMA node {', '.join(lost)} belong to"
            if len(lost) > 1
            else f"the firmware does not say which NUMA node {lost[0]} belongs to",
            evidence=tuple(
                e for address in lost for e in seen("numa_node", -1, f"/sys/bus/pci/devices/{address}/numa_node")
            ),
        )


def _said(view: View, address: str) -> bool:
    """Was it the firmware that named no node (-1), rather than a file that could not be read?"""
    gap = view.gap("pci/devices", "numa_node", address)
    return gap is None or gap.reason == "unsupported"


RULE = Rule(
    id="pci.no-numa",
    severity="info",
    problem="a GPU's NUMA node is not known to the kernel",
    why="Without it neither the kernel nor libcufile can tell near from far, and takes all devices for equal.",
    look_at=("cat /sys/bus/pci/devices/*/numa_node | sort | uniq -c",),
    remedy=Remedy(
        text="Update the firmware; in a virtual machine let the hypervisor give the guest a NUMA topology.",
        needs_reboot=True,
        risk="a firmware update can reset its settings",
    ),
    not_to_conclude="-1 is not node 0.",
    source="Linux sysfs numa_node; libcufile 1.20 takes -1 on both sides as equal",
    check=check,
)

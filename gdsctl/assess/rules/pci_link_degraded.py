from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy
from gdsctl.model.topology import AT_REST_GTS


def check(view: View) -> Iterator[Verdict]:
    """Width, and speed; not that of a GPU at 2.5 GT/s, which may be at rest."""
    gpus = {gpu.address for gpu in view.gpus}
    used = dict.fromkeys([pair.gpu for pair in view.pairs] + [pair.peer for pair in view.pairs])
    for address in used:
        device = view.device(address)
        above = view.device(device.parent) if device and device.parent else None
        if device is None:
            continue
        link = device.link
        width = _possible(link.max_width, above.link.max_width if above else None)
        speed = _possible(link.max_speed_gts, above.link.max_speed_gts if above else None)
        narrow = link.width is not None and width is not None and 0 < link.width < width
        slow = link.speed_gts is not None and speed is not None and link.speed_gts < speed
        if slow and address in gpus and link.speed_gts == AT_REST_GTS:
            slow = False
        if narrow or slow:
            now = f"{link.speed_gts:g} GT/s x{link.width}" if link.speed_gts else f"x{link.width}"
            best = f"{speed:g} GT/s x{width}" if speed else f"x{width}"
            yield Fail(
                subject=address,
                message=f"the link of {address} runs at {now}; both ends can do {best}",
                evidence=seen("link", now, f"/sys/bus/pci/devices/{address}/current_link_*"),
            )


def _possible(own: float | None, above: float | None) -> float | None:
    return min(own, above) if own is not None and above is not None else None


RULE = Rule(
    id="pci.link-degraded",
    severity="warning",
    problem="a PCIe link runs below what both of its ends can do",
    why="A link that trained to fewer lanes or a lower generation caps every transfer; libcufile also ranks the device by "
    "its current link and may pass it over.",
    look_at=("sudo lspci -vv -s ADDRESS | grep -E 'LnkCap|LnkSta'",),
    remedy=Remedy(
        text="Reseat the card or cable, look at the slot's firmware settings, and see whether the errors come back (AER in the kernel log).",
        needs_reboot=True,
        risk="reseating needs a halt of the node",
    ),
    not_to_conclude="A GPU at 2.5 GT/s is idle, not broken; its width does not change at rest. One at a speed between may be "
    "on its way to rest: look again while it works.",
    source="PCI Express Base Specification, link training; Linux sysfs current_link_speed, max_link_speed",
    check=check,
)

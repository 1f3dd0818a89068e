from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess import p2pdma
from gdsctl.assess.rule import Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    dark = [pair for pair in view.pairs if pair.acs_redirect_at is None and pair.meet == "switch"]
    if not dark:
        return
    yield Fail(
        subject="ACS",
        message=f"ACS could not be read on the path of {len(dark)} GPU-peer pairs below a common switch",
        evidence=seen("config space", "the first 64 bytes only", "/sys/bus/pci/devices/*/config"),
        severity="warning" if p2pdma.scope(view) is not None else "info",
    )


RULE = Rule(
    id="acs.unreadable",
    severity="info",
    problem="ACS of ports on a path could not be read",
    why="The ACS registers lie in extended config space, which the kernel shows to root only. Whether peer traffic stays "
    "below the switch is then not known.",
    look_at=("sudo lspci -vvv | grep -E '^[0-9a-f]|ACSCtl'", "cat /proc/driver/nvidia-fs/bridges"),
    remedy=Remedy(
        text="Run gdsctl as root on the host (in a container root is not enough).", commands=("sudo gdsctl inspect",)
    ),
    not_to_conclude="Unreadable is not off.",
    source="Linux drivers/pci/pci-sysfs.c, pci_read_config()",
    check=check,
)

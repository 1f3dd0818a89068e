from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess import p2pdma
from gdsctl.assess.rule import Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Pair, Remedy


def check(view: View) -> Iterator[Verdict]:
    dark = [pair for pair in view.pairs if pair.acs_redirect_at is None and pair.meet in ("switch", "root_port")]
    if not dark:
        return
    yield Fail(
        subject="ACS",
        message=f"ACS could not be read on the path of {len(dark)} GPU-peer pairs below a common bridge",
        evidence=seen("ACS control register", f"not shown at {_ports(view, dark)}", "PCI config space"),
        severity="warning" if p2pdma.scope(view) is not None else "info",
    )


def _ports(view: View, pairs: list[Pair]) -> str:
    ports = dict.fromkeys(
        port for pair in pairs for port in pair.hops if (d := view.device(port)) and d.acs.state == "unreadable"
    )
    return ", ".join(list(ports)[:4]) + (f" and {len(ports) - 4} more" if len(ports) > 4 else "")


RULE = Rule(
    id="acs.unreadable",
    severity="info",
    otherwise={"warning": "where P2PDMA hangs on what could not be read"},
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

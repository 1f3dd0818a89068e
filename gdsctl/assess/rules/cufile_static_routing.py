from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.lint_findings import told
from gdsctl.assess.rule import Rule, Verdict
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    yield from told(view, "cufile.static-routing")


RULE = Rule(
    id="cufile.static-routing",
    severity="error",
    otherwise={
        "critical": "where the library aborts the process",
        "warning": "where the rest of the file still counts",
    },
    problem="the static routing file is not read as it is meant",
    why="libcufile takes the file as a whole: one device that it cannot read, that the machine lacks or whose socket, NUMA node or PCIe group is still -1, as libcufile's own export leaves it, and it goes by its own look at the PCI tree, with a warning in its log only. Some faults, such as a wrong PCI address, end the process.",
    look_at=("gdsctl lint", "grep -i 'static' cufile.log"),
    remedy=Remedy(
        text="Have it written for this node, or correct what lint names.",
        commands=("gdsctl plan --emit static-routing",),
    ),
    source="libcufile 1.17 to 1.20, observed",
    check=check,
)

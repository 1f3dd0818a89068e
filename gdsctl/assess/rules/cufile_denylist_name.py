from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.lint_findings import told
from gdsctl.assess.rule import Rule, Verdict
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    yield from told(view, "cufile.denylist-name")


RULE = Rule(
    id="cufile.denylist-name",
    severity="warning",
    problem="an entry of denylist names nothing that there is",
    why="libcufile refuses a denylist for a device or mount that is not there, but takes any word for a driver or a file system. A misspelt one shuts nothing out. Modules are named as in /proc/modules (nvme_rdma), file systems as in the mount table (wekafs).",
    look_at=("gdsctl lint", "lsmod", "findmnt -no FSTYPE"),
    remedy=Remedy(text="Correct the name, or take it out."),
    source="libcufile 1.11 to 1.20, observed; GDS Configuration Guide, denylist",
    check=check,
)

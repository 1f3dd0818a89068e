from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.lint_findings import told
from gdsctl.assess.rule import Rule, Verdict
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    yield from told(view, "cufile.missing-path")


RULE = Rule(
    id="cufile.missing-path",
    severity="critical",
    problem="a path in cufile.json does not exist",
    why="A mount_table entry, denylist path or log folder that is missing makes the load fail for every cuFile process of the node. A folder that is only not mounted passes, and then binds its addresses to the file system above.",
    look_at=("gdsctl lint", "cat /etc/cufile.json"),
    remedy=Remedy(text="Remove the entry, or create the path; name only stable mount points."),
    source="libcufile 1.11 to 1.20, observed; NVIDIA GDS Configuration Guide",
    check=check,
)

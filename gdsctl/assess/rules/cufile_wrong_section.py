from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.lint_findings import told
from gdsctl.assess.rule import Rule, Verdict
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    yield from told(view, "cufile.wrong-section")


RULE = Rule(
    id="cufile.wrong-section",
    severity="warning",
    problem="a key of cufile.json stands in the wrong section",
    why="A key counts only in its own section: `block` under `fs`, or a property at the top, is ignored in silence.",
    look_at=("gdsctl lint", "cat /etc/cufile.json"),
    remedy=Remedy(text="Move it to the section that is named."),
    source="libcufile 1.11 to 1.20, observed; NVIDIA GDS Configuration Guide",
    check=check,
)

from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.lint_findings import told
from gdsctl.assess.rule import Rule, Verdict
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    yield from told(view, "cufile.syntax")


RULE = Rule(
    id="cufile.syntax",
    severity="critical",
    otherwise={"warning": "where a name is given twice and only the last counts"},
    problem="cufile.json is not valid",
    why="libcufile reads the file with JsonCpp: comments are fine, but a trailing comma, '#', a byte order mark or True make it refuse the whole file, and no cuFile process on the node starts: not even in compat mode.",
    look_at=("gdsctl lint", "cat /etc/cufile.json"),
    remedy=Remedy(
        text="Correct the place that is named. NVIDIA's own samples hold such errors: do not paste them unread."
    ),
    source="libcufile 1.11 to 1.20, observed; NVIDIA GDS Configuration Guide",
    check=check,
)

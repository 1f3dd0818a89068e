from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.lint_findings import told
from gdsctl.assess.rule import Rule, Verdict
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    yield from told(view, "cufile.env-boolean")


RULE = Rule(
    id="cufile.env-boolean",
    severity="warning",
    problem="a CUFILE_* variable holds a word that does nothing",
    why="Boolean variables take only the words true and false; 1, 0 and yes are ignored.",
    look_at=("env | grep CUFILE", "gdsctl lint"),
    remedy=Remedy(text="Set it to true or false."),
    source="libcufile 1.11 to 1.20, observed; NVIDIA GDS Configuration Guide",
    check=check,
)

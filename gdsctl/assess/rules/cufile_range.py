from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.lint_findings import told
from gdsctl.assess.rule import Rule, Verdict
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    yield from told(view, "cufile.range")


RULE = Rule(
    id="cufile.range",
    severity="critical",
    otherwise={"warning": "where the library takes the value, or another in its place"},
    problem="a value of cufile.json is out of range",
    why="Out of range the library refuses the file, or clamps the value without a word, depending on the key; some bounds differ between releases (max_io_threads: 32 up to 1.15, then 128).",
    look_at=("gdsctl lint", "cat /etc/cufile.json"),
    remedy=Remedy(text="Choose a value within the bounds that are named."),
    source="libcufile 1.11 to 1.20, observed; NVIDIA GDS Configuration Guide",
    check=check,
)

from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.lint_findings import told
from gdsctl.assess.rule import Rule, Verdict
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    yield from told(view, "cufile.slab-lengths")


RULE = Rule(
    id="cufile.slab-lengths",
    severity="critical",
    otherwise={"warning": "in gpu_bounce_buffer_slab_config, which the library then drops"},
    problem="slab sizes and counts differ in length",
    why="A list of sizes whose length differs from that of the counts aborts the process; one list alone is compared with the other's default.",
    look_at=("gdsctl lint", "cat /etc/cufile.json"),
    remedy=Remedy(text="Give both lists, of equal length."),
    source="libcufile 1.11 to 1.20, observed; NVIDIA GDS Configuration Guide",
    check=check,
)

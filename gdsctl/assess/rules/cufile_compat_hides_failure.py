from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.lint_findings import told
from gdsctl.assess.rule import Rule, Verdict
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    yield from told(view, "cufile.compat-hides-failure")


RULE = Rule(
    id="cufile.compat-hides-failure",
    severity="info",
    problem="compat mode is allowed, so a lost direct route goes unnoticed",
    why="With allow_compat_mode true, the default, libcufile falls back to reads through host memory whenever the direct route fails: it works, slowly, and says nothing.",
    look_at=("gdsctl lint", "cat /etc/cufile.json"),
    remedy=Remedy(
        text="Set properties.allow_compat_mode to false where the direct route is required; opens then fail instead."
    ),
    source="libcufile 1.11 to 1.20, observed; NVIDIA GDS Configuration Guide",
    not_to_conclude="Compat mode is no fault by itself; gdscheck prints use_compat_mode true on nodes that go direct.",
    check=check,
)

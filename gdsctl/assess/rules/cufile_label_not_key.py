from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.lint_findings import told
from gdsctl.assess.rule import Rule, Verdict
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    yield from told(view, "cufile.label-not-key")


RULE = Rule(
    id="cufile.label-not-key",
    severity="warning",
    problem="cufile.json uses a name that gdscheck prints, which is no key",
    why="gdscheck prints some settings under other names (use_compat_mode for allow_compat_mode); as keys they do nothing.",
    look_at=("gdsctl lint", "cat /etc/cufile.json"),
    remedy=Remedy(text="Use the key that is named."),
    source="libcufile 1.11 to 1.20, observed; NVIDIA GDS Configuration Guide",
    check=check,
)

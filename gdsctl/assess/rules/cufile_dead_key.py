from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.lint_findings import told
from gdsctl.assess.rule import Rule, Verdict
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    yield from told(view, "cufile.dead-key")


RULE = Rule(
    id="cufile.dead-key",
    severity="warning",
    problem="a key of cufile.json has no effect any more",
    why="Names such as blacklist.* or profile.nvtx are ignored by the library of this node.",
    look_at=("gdsctl lint", "cat /etc/cufile.json"),
    remedy=Remedy(text="Use the key that replaced it, or remove the line."),
    source="libcufile 1.11 to 1.20, observed; NVIDIA GDS Configuration Guide",
    check=check,
)

from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.lint_findings import told
from gdsctl.assess.rule import Rule, Verdict
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    yield from told(view, "cufile.key-newer-than-library")


RULE = Rule(
    id="cufile.key-newer-than-library",
    severity="warning",
    otherwise={"info": "where it is not known which library reads the file"},
    problem="a key of cufile.json is newer than the node's library",
    why="An older library ignores the key in silence.",
    look_at=("gdsctl lint", "cat /etc/cufile.json"),
    remedy=Remedy(text="Update GDS, or use what the older release has."),
    source="libcufile 1.11 to 1.20, observed; NVIDIA GDS Configuration Guide",
    check=check,
)

from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.lint_findings import told
from gdsctl.assess.rule import Rule, Verdict
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    yield from told(view, "cufile.unknown-key")


RULE = Rule(
    id="cufile.unknown-key",
    severity="warning",
    otherwise={"info": "for an environment variable"},
    problem="cufile.json holds a key that no release knows",
    why="libcufile ignores keys that it does not know without a word, so a typing error looks like a setting.",
    look_at=("gdsctl lint", "cat /etc/cufile.json"),
    remedy=Remedy(text="Use the name that is suggested, or remove the line."),
    source="libcufile 1.11 to 1.20, observed; NVIDIA GDS Configuration Guide",
    check=check,
)

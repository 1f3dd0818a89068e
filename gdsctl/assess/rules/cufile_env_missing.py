from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.lint_findings import told
from gdsctl.assess.rule import Rule, Verdict
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    yield from told(view, "cufile.env-missing")


RULE = Rule(
    id="cufile.env-missing",
    severity="error",
    problem="CUFILE_ENV_PATH_JSON names a file that is not there",
    why="The library ignores a missing file in silence and runs with /etc/cufile.json alone, or with its defaults.",
    look_at=("env | grep CUFILE", "gdsctl lint"),
    remedy=Remedy(text="Correct the path, or unset the variable."),
    source="libcufile 1.11 to 1.20, observed; NVIDIA GDS Configuration Guide",
    check=check,
)

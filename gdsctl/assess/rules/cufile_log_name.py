from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.lint_findings import told
from gdsctl.assess.rule import Rule, Verdict
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    yield from told(view, "cufile.log-name")


RULE = Rule(
    id="cufile.log-name",
    severity="info",
    problem="the log has another name than cufile.log",
    why="With logging.dir each process writes cufile_PID_DATE.TIME.log into that folder; the guides speak of cufile.log, which is written to the working folder without it.",
    look_at=("gdsctl lint", "cat /etc/cufile.json"),
    remedy=Remedy(text="Look for the files by that pattern, and have them removed in time."),
    source="libcufile 1.11 to 1.20, observed",
    check=check,
)

from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy
from gdsctl.parse.cufile_log import messages


def check(view: View) -> Iterator[Verdict]:
    run = view.node.gds.last_run
    if run is None:
        return
    told = [row for row in messages() if row.meaning in run.meanings and row.findings]
    if told:
        texts = " ".join(f"{row.text.rstrip('.')} ({' or '.join(row.findings)})." for row in told)
        counts = ", ".join(f"{row.meaning} {run.meanings[row.meaning]}" for row in told)
        yield Fail(
            subject="cufile.log",
            message=f"the last cuFile process ({run.pid}, until {run.last[:19]}) says: {texts}",
            evidence=seen("messages", counts, f"cufile.log, process {run.pid}"),
        )


RULE = Rule(
    id="cufile.log-tells",
    severity="info",
    problem="the last cuFile process wrote why it did not go direct",
    why="libcufile writes down what it found when it opened the driver and each file. Only the lines of the process that "
    "wrote last, and since the last boot, say anything of the machine as it is.",
    look_at=("gdsctl parse cufile-log FILE --pid PID", "gdsctl explain ID"),
    remedy=Remedy(
        text="Look up the findings named in brackets; run a transfer anew after a change and read the log again."
    ),
    not_to_conclude="A line is of its moment: the module may have been loaded since.",
    source="messages of libcufile 1.11 to 1.20",
    check=check,
)

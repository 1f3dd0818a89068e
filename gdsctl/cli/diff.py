from __future__ import annotations

from typing import Annotated

import typer

from gdsctl.cli.options import Format, Formatted, NoColor, Output, Verbose
from gdsctl.errors import UsageError


def diff(
    snapshots: Annotated[
        list[str],
        typer.Argument(metavar="A B [C ...]", help="Snapshots, bare trees or example:NAME.", show_default=False),
    ],
    format: Formatted = Format.table,  # noqa: A002 -- the option's name
    output: Output = None,
    no_color: NoColor = False,
    verbose: Verbose = False,
) -> int:
    """Compare nodes by the paths that their bytes take; serials, numbering and addresses are listed apart.

    The largest group of equal nodes is the reference, of equally large ones that of the first snapshot.
    Exit code 0 where all take the same paths, 1 for drift, 3 where only what could not be told differs.
    """
    from gdsctl import pipeline
    from gdsctl.render import documents

    if len(snapshots) < 2:
        raise UsageError("diff wants at least two snapshots")
    report = pipeline.diff(snapshots)
    if format is Format.table:
        from gdsctl.render import terminal
        from gdsctl.render.diff_report import diff_report

        terminal.deliver(diff_report(report, verbose=verbose), output, no_color=no_color)
    else:
        documents.deliver(documents.ENCODERS[format.value](report), output)
    return {"same": 0, "drift": 1, "unknown": 3}[report.verdict]

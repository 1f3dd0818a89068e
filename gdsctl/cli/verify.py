from __future__ import annotations

import sys
from typing import Annotated, Optional

import typer

from gdsctl.cli.options import Format, Formatted, NoColor, Output, Snapshot, Verbose
from gdsctl.cli.plan import IntentFile, wanted_from


def verify(  # noqa: PLR0917 -- options, named on the command line
    intent: IntentFile = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Findings of severity warning, and values that only spell out a default, fail too."
        ),
    ] = False,
    baseline: Annotated[
        Optional[str],
        typer.Option(metavar="SNAPSHOT", help="Routes and ceilings that are not its own fail.", show_default=False),
    ] = None,
    waivers: Annotated[
        Optional[str],
        typer.Option(
            metavar="FILE",
            help="Failures that are accepted until a day: YAML list of id, subject, reason, owner, expires.",
            show_default=False,
        ),
    ] = None,
    snapshot: Snapshot = None,
    format: Formatted = Format.table,  # noqa: A002 -- the option's name
    output: Output = None,
    no_color: NoColor = False,
    verbose: Verbose = False,
) -> int:
    """Gate: does each required GPU x mount get its path, and is the installed configuration the planned one?

    Exit code 0 where all holds, 1 where something fails, 3 where a required fact is unknown.
    """
    from gdsctl import pipeline
    from gdsctl.cli.text_files import read_text
    from gdsctl.render import documents
    from gdsctl.source.opening import open_source

    report = pipeline.verify(
        open_source(snapshot),
        wanted_from(intent),
        strict=strict,
        baseline=open_source(baseline) if baseline is not None else None,
        waivers=(read_text(waivers), waivers) if waivers is not None else None,
    )
    if format is Format.table:
        from gdsctl.render import plan_report, terminal

        terminal.deliver(plan_report.verify_report(report, verbose=verbose), output, no_color=no_color)
    else:
        documents.deliver(documents.ENCODERS[format.value](report), output)
    if report.verdict == "unknown":
        from gdsctl.render.safe_text import safe

        for requirement in report.requirements:
            if requirement.status == "unknown":
                settle = f"; settle with: {requirement.settle_with}" if requirement.settle_with else ""
                said = f"{requirement.id} {requirement.subject}: {requirement.evidence}{settle}"
                sys.stderr.write(f"gdsctl: unknown: {safe(said)}\n")
    return {"pass": 0, "fail": 1, "unknown": 3}[report.verdict]

from __future__ import annotations

import sys
from typing import Annotated, Optional

import typer

from gdsctl.cli.options import Format, Formatted, NoColor, Output, Snapshot
from gdsctl.errors import RefusedError, UndecidedError, UsageError


def lint(  # noqa: PLR0917 -- options, named on the command line
    file: Annotated[
        Optional[str],
        typer.Argument(
            help="A cufile.json, or - for standard input. Default: the two that the node's library would merge.",
            show_default=False,
        ),
    ] = None,
    gds_version: Annotated[
        Optional[str],
        typer.Option(
            metavar="V", help="Judge as this GDS release does (1.14, 1.19.1 ...). Default: the node's, or all."
        ),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings fail too.")] = False,
    snapshot: Snapshot = None,
    format: Formatted = Format.table,  # noqa: A002 -- the option's name
    output: Output = None,
    no_color: NoColor = False,
) -> int:
    """Check a cufile.json as libcufile itself takes it: what it refuses, dies of, or ignores without a word.

    Exit code 1 where there is anything worse than a warning.
    """
    from gdsctl import pipeline
    from gdsctl.data import cufile_keys
    from gdsctl.render import documents

    if gds_version is not None:
        try:
            cufile_keys.release(gds_version)
        except ValueError:
            raise UsageError(f"--gds-version {gds_version!r} is not a GDS release such as 1.14") from None
    if file is not None:
        if snapshot is not None:
            raise UsageError("FILE and --snapshot do not go together")
        from gdsctl.cli.text_files import read_text

        # A byte that is no UTF-8 is a finding of lint, as it is for the library.
        text = read_text(file, errors="surrogateescape")
        report = pipeline.lint_text("<stdin>" if file == "-" else file, text, gds_version)
    else:
        from gdsctl.source.opening import open_source

        report = pipeline.lint(open_source(snapshot), gds_version)
    if format is Format.table:
        from gdsctl.render import plan_report, terminal

        terminal.deliver(plan_report.lint_report(report), output, no_color=no_color)
    else:
        documents.deliver(documents.ENCODERS[format.value](report), output)
    if report.fails or (strict and report.warns):
        return 1
    if report.unread is not None:
        sys.stdout.flush()
        if report.denied:
            raise RefusedError(f"{report.unread}: may not be read")
        raise UndecidedError(
            f"{report.unread} could not be read, and it may be one of the files; settle with: cat {report.unread}"
        )
    return 0

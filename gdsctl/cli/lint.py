from __future__ import annotations

import functools
import os
import sys
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from gdsctl.cli.messages import say
from gdsctl.cli.options import NoColor, Output, Snapshot
from gdsctl.errors import RefusedError, UndecidedError, UsageError

if TYPE_CHECKING:
    from gdsctl.assess.lint_report import Corrected
    from gdsctl.source.base import Source


class LintFormat(str, Enum):
    table = "table"
    json = "json"
    yaml = "yaml"
    sarif = "sarif"


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
    fix: Annotated[
        bool,
        typer.Option(
            "--fix",
            help="Write a corrected copy beside FILE, as NAME.fixed.json: what is safe to correct, no more. "
            "FILE itself stays as it is, and is what the exit code is about.",
        ),
    ] = False,
    snapshot: Snapshot = None,
    format: Annotated[  # noqa: A002 -- the option's name
        LintFormat, typer.Option("--format", "-f", help="How to print the document.")
    ] = LintFormat.table,
    output: Output = None,
    no_color: NoColor = False,
) -> int:
    """Check a cufile.json as libcufile itself takes it: what it refuses, dies of, or ignores without a word.

    The paths that FILE names are looked for on this machine, or nowhere where --gds-version says that FILE is meant for
    another. With --snapshot FILE is judged as the only cufile.json of that node: by its library's release, mounts, NICs
    and modules. Exit code 1 where there is anything worse than a warning, 3 where it is not known whether a path is there.
    """
    import msgspec

    from gdsctl import pipeline
    from gdsctl.assess.rule import some
    from gdsctl.data import cufile_keys
    from gdsctl.model.shell import quoted
    from gdsctl.render import documents
    from gdsctl.source.opening import open_source

    if gds_version is not None:
        try:
            asked = cufile_keys.release(gds_version)
        except ValueError:
            raise UsageError(f"--gds-version {gds_version!r} is not a GDS release such as 1.14") from None
        if not cufile_keys.in_table(asked):
            raise UsageError(f"--gds-version {gds_version}: {cufile_keys.span()}")
    if fix and (file is None or file == "-"):
        raise UsageError("--fix needs FILE, beside which it writes")
    if file is not None:
        from gdsctl.cli.text_files import read_text

        # A byte that is no UTF-8 is a finding of lint, as it is for the library.
        text = read_text(file, errors="surrogateescape")
        machine = open_source(snapshot) if snapshot is not None or gds_version is None else None
        report = pipeline.lint_text(
            "<stdin>" if file == "-" else file, text, gds_version, machine, node=snapshot is not None
        )
        if fix:
            report = msgspec.structs.replace(report, corrected=_fix(file, text, report.gds_version, machine))
    else:
        report = pipeline.lint(open_source(snapshot), gds_version)
    if format is LintFormat.table:
        from gdsctl.render import plan_report, terminal

        terminal.deliver(plan_report.lint_report(report), output, no_color=no_color)
    elif format is LintFormat.sarif:
        from gdsctl.render import lint_sarif

        documents.deliver(lint_sarif.encode(report), output)
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
    if report.unseen and (file is None or gds_version is None or snapshot is not None):
        sys.stdout.flush()
        raise UndecidedError(
            f"whether {some(report.unseen)} is there is not known, and libcufile refuses a file that names a path which "
            f"is not; settle with: ls -d -- {' '.join(map(quoted, report.unseen))}"
        )
    return 0


def _fix(file: str, text: str, version: str | None, machine: Source | None) -> Corrected | None:
    """Write the corrected copy; None where there is nothing that is safe to correct.

    Raises UsageError where something else stands under its name.
    """
    from gdsctl import pipeline
    from gdsctl.assess.cufile_fix import fix
    from gdsctl.assess.lint_report import Corrected
    from gdsctl.render.documents import write_atomically

    beside = f"{file.removesuffix('.json')}.fixed.json"
    look = functools.partial(pipeline.kind, machine) if machine is not None else None
    fixed = fix(beside, text, version=version, kind_of=look)
    if fixed is None:
        say("nothing here that is safe to correct")
        return None
    if os.path.lexists(beside) and not _holds(beside, fixed.text):
        raise UsageError(f"{beside} is there already, with other contents: take it away first")
    write_atomically(beside, fixed.text.encode())
    left = f"; still to do by hand: {len(fixed.left)}" if fixed.left else ""
    told = [*fixed.changes, f"wrote {beside}{left}"]
    told += [f"left: {problem.id}: {problem.message}" for problem in fixed.left]
    for line in told:
        say(line)
    return Corrected(path=beside, changes=fixed.changes, left=fixed.left)


def _holds(path: str, text: str) -> bool:
    if not os.path.isfile(path) or os.path.islink(path):
        return False
    with open(path, "rb") as stream:
        return stream.read(len(text.encode()) + 1) == text.encode()

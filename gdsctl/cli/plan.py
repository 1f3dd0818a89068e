from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Optional, TypeVar

import typer

from gdsctl.cli.messages import say
from gdsctl.cli.options import Format, Formatted, NoColor, Output, Snapshot, Verbose
from gdsctl.errors import RefusedError, UsageError

if TYPE_CHECKING:  # imported where the command runs
    from gdsctl.plan.cufile import Style
    from gdsctl.plan.documents import PlanReport
    from gdsctl.plan.intent import Mode, Wanted

W = TypeVar("W", bound=str)
IntentFile = Annotated[
    Optional[str],
    typer.Option(
        "--intent",
        "-i",
        metavar="FILE",
        help="What is wanted (YAML, gdsctl/intent/v1; - for standard input). Default: this node's own data mounts.",
        show_default=False,
    ),
]


def plan(  # noqa: PLR0917 -- options, named on the command line
    intent: IntentFile = None,
    mode: Annotated[
        Optional[str],
        typer.Option(
            metavar="auto|nvidia-fs|p2pdma|compat", help="How to go direct; beats the intent.", show_default=False
        ),
    ] = None,
    style: Annotated[
        str,
        typer.Option(
            metavar="explicit|minimal",
            help="What cufile.json spells out: also values that depend on release and package, or only what differs from "
            "the library's own.",
        ),
    ] = "explicit",
    emit: Annotated[
        Optional[list[str]],
        typer.Option(
            metavar="KIND",
            help="Print this artifact, and only it: cufile.json, static-routing, modprobe, kernel-cmdline, acs, nvme-connect, mount, fstab, systemd-mount, "
            "nfsmount.conf, storageclass, pod, gpu-operator-values, lmcache, lmcache-bench, steps. Several, or all: with --output-dir.",
            show_default=False,
        ),
    ] = None,
    output_dir: Annotated[
        Optional[str], typer.Option(metavar="DIR", help="Write the artifacts there.", show_default=False)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files in --output-dir that differ.")] = False,
    snapshot: Snapshot = None,
    format: Formatted = Format.table,  # noqa: A002 -- the option's name
    output: Output = None,
    no_color: NoColor = False,
    verbose: Verbose = False,
) -> int:
    """Work out the files and steps that give each GPU x mount its path. Changes nothing on the node.

    Exit code 1 where the intent can't be met on this node, 3 where a required fact is unknown.
    """
    from gdsctl import emit as emitting

    kinds = emit or []
    emitters = emitting.chosen(kinds)
    if force and output_dir is None:
        raise UsageError("--force goes with --output-dir")
    if output_dir is None and len(emitters) > 1:
        raise UsageError("several artifacts need --output-dir DIR")
    from gdsctl import pipeline
    from gdsctl.render import documents
    from gdsctl.source.opening import open_source

    modes: tuple[Mode, ...] = ("auto", "nvidia-fs", "p2pdma", "compat")
    styles: tuple[Style, ...] = ("explicit", "minimal")
    asked = _word("--mode", mode, modes) if mode is not None else "auto"
    styled = _word("--style", style, styles)
    wanted = wanted_from(intent)
    report = pipeline.plan(open_source(snapshot), wanted, mode=asked, kinds=kinds, style=styled)
    if output_dir is not None:
        rows = emitters or emitting.chosen([emitting.ALL])
        contents = {row.file: report.artifacts[row.kind].content for row in rows if row.kind in report.artifacts}
        _write(output_dir, contents, force=force)
    if output_dir is None and emitters:
        documents.deliver(report.artifacts[emitters[0].kind].content, output)
    elif format is Format.table:
        from gdsctl.render import plan_report, terminal

        terminal.deliver(plan_report.plan_report(report, verbose=verbose), output, no_color=no_color)
    else:
        documents.deliver(documents.ENCODERS[format.value](report), output)
    shown = format is Format.table and not (emitters or output) and sys.stdout.isatty()
    return _code(report, told=shown)


def _word(option: str, given: str, known: tuple[W, ...]) -> W:
    for word in known:
        if given == word:
            return word
    raise UsageError(f"{option} {given!r} is not one of {', '.join(known)}")


def wanted_from(path: str | None) -> Wanted:
    """The intent of a file, or the default one."""
    from gdsctl.cli.text_files import read_text
    from gdsctl.plan.intent import STDIN, Intent, Wanted, read

    if path is None:
        return Wanted(intent=Intent())
    return read(read_text(path), STDIN if path == "-" else path)


def _code(report: PlanReport, *, told: bool) -> int:
    """The unmet go to stderr too, unless they are `told` on the same terminal: an artifact alone on stdout would hide them."""
    for unmet in () if told else report.unmet:
        which = f" ({len(unmet.gpus)} GPUs)" if len(unmet.gpus) > 1 else f" (GPU {unmet.gpus[0]})" if unmet.gpus else ""
        settle = f"; settle with: {unmet.settle_with}" if unmet.settle_with else ""
        say(f"{unmet.requirement}{which}: {unmet.because}{settle}")
    statuses = {unmet.status for unmet in report.unmet}
    return 1 if "fail" in statuses else 3 if "unknown" in statuses else 0


def _write(folder: str, contents: dict[str, str], *, force: bool) -> None:
    """All of them or, where one would overwrite a file that differs, none."""
    from gdsctl.render.documents import write_atomically

    try:
        os.makedirs(folder, exist_ok=True)
        different = [name for name, text in contents.items() if _differs(os.path.join(folder, name), text)]
    except OSError as error:
        raise RefusedError(f"{folder}: {error.strerror or error}") from error
    if different and not force:
        names = ", ".join(different)
        raise UsageError(f"{folder} holds other contents in {names}; --force overwrites")
    for name, text in contents.items():
        write_atomically(os.path.join(folder, name), text.encode())
    say(f"wrote {', '.join(contents)} into {folder}")


def _differs(path: str, text: str) -> bool:
    """Is there something else under that name?"""
    if not os.path.lexists(path):
        return False
    if not os.path.isfile(path):
        return True
    with open(path, "rb") as stream:
        return stream.read(len(text.encode()) + 1) != text.encode()

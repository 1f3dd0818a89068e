from __future__ import annotations

import sys
from typing import Annotated, Any, Optional

import typer
import typer.core

from gdsctl.cli.command import Command
from gdsctl.cli.messages import say
from gdsctl.cli.options import Snapshot
from gdsctl.errors import UsageError


class _CaptureByDefault(typer.core.TyperGroup):
    """`snapshot OUT` captures; `snapshot assemble OUT` builds one from pasted outputs."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["capture", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_CaptureByDefault,
    help=(
        "Capture this machine into OUT, or assemble a snapshot from pasted outputs.\n\n"
        "gdsctl snapshot OUT [--redact]: OUT is a folder to make, or an archive (.tar, .tar.gz, .tar.bz2, .tar.xz, "
        ".tar.zst); gdsctl snapshot --list-examples: what comes with gdsctl; gdsctl snapshot assemble OUT ...: from "
        "what somebody pasted."
    ),
    no_args_is_help=True,
    rich_markup_mode=None,
)


def _text(what: str) -> Any:
    """The option of one pasted output."""
    return typer.Option(metavar="F", help=f"A file that holds {what}.", show_default=False)


@app.command("capture", cls=Command)
def capture(
    out: Annotated[
        Optional[str],
        typer.Argument(
            help="A folder to make, or an archive: .tar, .tar.gz, .tar.bz2, .tar.xz, .tar.zst.", show_default=False
        ),
    ] = None,
    redact: Annotated[
        bool,
        typer.Option(
            "--redact",
            help="Replace names (hosts, users, clusters, exports, volumes), serials, UUIDs, MACs and addresses consistently.",
        ),
    ] = False,
    list_examples: Annotated[
        bool, typer.Option("--list-examples", help="List the snapshots shipped with gdsctl.")
    ] = False,
    snapshot: Snapshot = None,
) -> None:
    """Capture this machine (or, with --snapshot, copy another capture). Needs no root."""
    if list_examples:
        from gdsctl.source.examples import list_examples as examples

        for example in examples():
            kind = "synthetic" if example.synthetic else "captured"
            sys.stdout.write(f"example:{example.name:<20} {kind:<10} {example.title.partition('; synthetic')[0]}\n")
        return
    if out is None:
        raise UsageError("snapshot needs OUT: a folder to make, or an archive such as node.tar.gz")
    from gdsctl import pipeline
    from gdsctl.source.opening import open_source

    pipeline.capture(open_source(snapshot), out, redact=redact)
    _tell(out)


@app.command("assemble", cls=Command)
def assemble(  # noqa: PLR0917 -- typer needs one parameter an option
    out: Annotated[str, typer.Argument(help="A folder to make, or an archive.", show_default=False)],
    lspci: Annotated[Optional[str], _text("`lspci -D -vvv -nn` (as root) or a dump")] = None,
    nvidia_smi_topo: Annotated[Optional[str], _text("`nvidia-smi topo -m`")] = None,
    gdscheck: Annotated[Optional[str], _text("`gdscheck -p`")] = None,
    nccl_topo: Annotated[Optional[str], _text("an NCCL topology (NCCL_TOPO_DUMP_FILE)")] = None,
    lsmod: Annotated[Optional[str], _text("`lsmod`")] = None,
    mounts: Annotated[Optional[str], _text("/proc/mounts or `mount`")] = None,
    dmesg: Annotated[Optional[str], _text("`dmesg`")] = None,
    cufile_json: Annotated[Optional[str], _text("/etc/cufile.json")] = None,
    bug_report: Annotated[
        Optional[str], typer.Option(metavar="F", help="nvidia-bug-report.log or .log.gz.", show_default=False)
    ] = None,
    file: Annotated[
        Optional[list[str]],
        typer.Option(metavar="/ABS/PATH=F", help="Any file of that machine; may repeat.", show_default=False),
    ] = None,
    command: Annotated[
        Optional[list[str]],
        typer.Option(metavar="NAME=F", help="Any command's output; may repeat.", show_default=False),
    ] = None,
) -> None:
    """Build a snapshot from outputs that somebody pasted; what was not given stays unknown.

    Texts of two machines are refused: by machine-id, DMI UUID and serial number, host name, GPU UUIDs. Where boot id, kernel
    release, PCI addresses or a prompt's host differ, that is a warning, and stands in the report's first lines.
    """
    from gdsctl.source import assemble as assembling

    warnings = assembling.assemble(
        out,
        lspci=lspci,
        nvidia_smi_topo=nvidia_smi_topo,
        gdscheck=gdscheck,
        nccl_topo=nccl_topo,
        lsmod=lsmod,
        mounts=mounts,
        dmesg=dmesg,
        cufile_json=cufile_json,
        bug_report=bug_report,
        files=[_pair(text, "--file /ABS/PATH=F") for text in file or ()],
        commands=[_pair(text, "--command NAME=F") for text in command or ()],
    )
    for warning in warnings:
        say(f"warning: {warning}")
    _tell(out)


def _tell(out: str) -> None:

    say(f"wrote {out}; look at it with: gdsctl inspect --snapshot {out}")


def _pair(text: str, form: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not (name and sign and value):
        raise UsageError(f"{text!r} is not of the form {form}")
    return name, value

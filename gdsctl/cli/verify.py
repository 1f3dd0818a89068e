from __future__ import annotations

import importlib
import sys
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from gdsctl.cli.messages import say
from gdsctl.cli.options import NoColor, Output, Snapshot, Verbose
from gdsctl.cli.plan import IntentFile, wanted_from
from gdsctl.errors import GdsctlError, UsageError

if TYPE_CHECKING:  # imported where the command runs
    from gdsctl.plan.demand import Demand
    from gdsctl.plan.documents import VerifyReport


class GateFormat(str, Enum):
    table = "table"
    json = "json"
    yaml = "yaml"
    junit = "junit"
    sarif = "sarif"
    prometheus = "prometheus"
    nagios = "nagios"


def verify(  # noqa: PLR0917 -- options, named on the command line
    intent: IntentFile = None,
    require: Annotated[
        Optional[list[str]],
        typer.Option(
            "--require",
            "-r",
            metavar="WHAT",
            help="PATH:MOUNT, PATH:@KIND, FACT=VALUE or no:FINDING (direct:/mnt/nvme, driver.kind=open); may repeat. "
            "Without --intent nothing else is required.",
            show_default=False,
        ),
    ] = None,
    profile: Annotated[
        Optional[list[str]],
        typer.Option(
            metavar="NAME",
            help="A set of requirements: local-nvme, nfs-rdma, vast, p2pdma, lustre, weka, gpfs, container; may repeat.",
            show_default=False,
        ),
    ] = None,
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
    container: Annotated[
        Optional[list[str]],
        typer.Option(
            metavar="FILE",
            help="Judge the containers that a file describes, as they would be on this node: docker inspect, OCI "
            "config.json, CDI spec, compose file, pod or Deployment; - for standard input; may repeat.",
            show_default=False,
        ),
    ] = None,
    snapshot: Snapshot = None,
    format: Annotated[  # noqa: A002 -- the option's name
        GateFormat, typer.Option("--format", "-f", help="How to print the document.")
    ] = GateFormat.table,
    output: Output = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Say nothing of the verdict: the exit code does.")
    ] = False,
    nagios_exit: Annotated[
        bool,
        typer.Option(
            "--nagios-exit",
            help="Exit 0 OK, 1 WARNING (passes by a waiver), 2 CRITICAL (fails), 3 UNKNOWN or an error.",
        ),
    ] = False,
    no_color: NoColor = False,
    verbose: Verbose = False,
) -> int:
    """Gate: does each required GPU x mount get its path, and is the installed configuration the planned one?

    Exit code 0 where all holds, 1 where something fails, 3 where a required fact is unknown.
    """
    from gdsctl.render import nagios

    try:
        report = _judge(
            intent=intent,
            require=require or [],
            profile=profile or [],
            strict=strict,
            baseline=baseline,
            waivers=waivers,
            container=container or [],
            snapshot=snapshot,
        )
        if not quiet or output is not None:
            _deliver(report, format, output, no_color=no_color, verbose=verbose)
    except GdsctlError as error:
        if not nagios_exit:
            raise
        if not quiet:
            sys.stdout.write(nagios.line(3, str(error)) + "\n")
        return 3
    if report.verdict == "unknown" and not quiet:
        _tell_unknown(report)
    return nagios.code(report) if nagios_exit else {"pass": 0, "fail": 1, "unknown": 3}[report.verdict]


def _judge(
    *,
    intent: str | None,
    require: list[str],
    profile: list[str],
    strict: bool,
    baseline: str | None,
    waivers: str | None,
    container: list[str],
    snapshot: str | None,
) -> VerifyReport:
    from gdsctl import pipeline
    from gdsctl.cli.text_files import read_text
    from gdsctl.source.opening import open_source

    demands = _demands(require, profile)
    accepted = (read_text(waivers), waivers) if waivers is not None else None
    if container:
        if intent is not None or baseline is not None:
            other = "--intent" if intent is not None else "--baseline"
            raise UsageError(f"--container and {other} do not go together: name paths in the container by --require")
        files = [(read_text(path), "<stdin>" if path == "-" else path) for path in dict.fromkeys(container)]
        return pipeline.verify_containers(
            open_source(snapshot), files, demands=demands, strict=strict, waivers=accepted
        )
    wanted = wanted_from(intent)
    return pipeline.verify(
        open_source(snapshot),
        wanted,
        demands=demands,
        strict=strict,
        baseline=open_source(baseline) if baseline is not None else None,
        waivers=accepted,
    )


def _demands(require: list[str], profile: list[str]) -> tuple[Demand, ...]:
    if not require and not profile:
        return ()
    from gdsctl.plan import demand

    profiled = [one for name in profile for one in demand.of_profile(name)]
    return (*profiled, *(demand.read(text) for text in require))


def _deliver(report: VerifyReport, format_: GateFormat, output: str | None, *, no_color: bool, verbose: bool) -> None:
    if format_ is GateFormat.table:
        from gdsctl.render import terminal
        from gdsctl.render.verify_report import verify_report

        terminal.deliver(verify_report(report, verbose=verbose), output, no_color=no_color)
        return
    from gdsctl.render import documents

    if format_.value in documents.ENCODERS:
        text = documents.ENCODERS[format_.value](report)
    else:
        # Each of these formats has a module and a function of its name.
        module = importlib.import_module(f"gdsctl.render.{format_.value}")
        text = getattr(module, format_.value)(report)
    documents.deliver(text, output)


def _tell_unknown(report: VerifyReport) -> None:
    for requirement in report.requirements:
        if requirement.status == "unknown":
            settle = f"; settle with: {requirement.settle_with}" if requirement.settle_with else ""
            said = f"{requirement.id} {requirement.subject}: {requirement.evidence}{settle}"
            say(f"unknown: {said}")

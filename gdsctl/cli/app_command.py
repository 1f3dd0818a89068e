from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from gdsctl.cli.messages import say
from gdsctl.cli.options import Format, Formatted, NoColor, Output, Snapshot, Verbose
from gdsctl.errors import InputError, UsageError

if TYPE_CHECKING:
    from gdsctl.kvcache.launch import Container
    from gdsctl.kvcache.on_node import Lack, Lacking
    from gdsctl.model.node import Node


def app(  # noqa: PLR0917 -- options, named on the command line
    files: Annotated[
        list[str],
        typer.Argument(
            help="Scripts, environment files, Dockerfiles, compose files, manifests, docker inspect, LMCache YAML, JSON; "
            "- for standard input. Several are one application.",
            show_default=False,
        ),
    ],
    live: Annotated[
        bool, typer.Option("--live", help="Hold the files against this machine: routes, and what a container lacks.")
    ] = False,
    model: Annotated[
        Optional[str],
        typer.Option(
            metavar="CONFIG.json", help="The served model's config.json, for the size of a chunk.", show_default=False
        ),
    ] = None,
    tp: Annotated[
        Optional[int],
        typer.Option(metavar="N", help="Tensor-parallel ranks. Default: what the engine is told.", show_default=False),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Findings of severity warning fail too.")] = False,
    snapshot: Snapshot = None,
    format: Formatted = Format.table,  # noqa: A002 -- the option's name
    output: Output = None,
    no_color: NoColor = False,
    verbose: Verbose = False,
) -> int:
    """Does this KV-cache configuration move bytes between GPU and storage at all, and what is wrong with it?

    With --snapshot or --live also: does it on that node? FAIL (exit code 1): a finding is an error, such as a
    configuration that asks for GDS and does not get it, or a container that lacks what a direct path needs. UNKNOWN (3): it
    cannot be told. PASS (0): all else, so also a configuration that goes through host memory and claims nothing else.
    Storage alone (a StorageClass, a volume, a claim) is UNKNOWN, with what to give beside it. Exit code 4: a file configures
    nothing that is known.

    Compose files of one folder count as those after docker compose -f, the later over the earlier; of compose.yaml alone
    compose.override.yaml is read as well, or what COMPOSE_FILE in .env lists.
    """
    from gdsctl import pipeline
    from gdsctl.assess.assessment import assess
    from gdsctl.cli.text_files import read_text
    from gdsctl.collect.node import collect
    from gdsctl.kvcache.app import judge
    from gdsctl.kvcache.findings import Sized
    from gdsctl.kvcache.model_config import read_model_config
    from gdsctl.render import documents
    from gdsctl.source.opening import open_source

    if live and snapshot is not None:
        raise UsageError("--live and --snapshot name two nodes")
    if tp is not None and (model is None or tp < 1):
        raise UsageError("--tp is a positive number, and goes with --model")
    sized = None
    if model is not None:
        try:
            sized = Sized(attention=read_model_config(read_text(model)), said=model, tp=tp)
        except InputError as error:
            raise error.at("<stdin>" if model == "-" else model) from None
        if tp is not None:
            sized.attention.check_tp(tp)
    texts = [("<stdin>" if path == "-" else path, _text(path)) for path in dict.fromkeys(files)]
    node = lacks = None
    if live or snapshot is not None:
        assessment = assess(collect(open_source(snapshot)))
        node, lacks = pipeline.report(assessment), lacking(assessment.node)
    report = judge(texts, tool=pipeline.tool(), node=node, model=sized, strict=strict, look=_beside, lacking=lacks)
    if format is Format.table:
        from gdsctl.render import app_report, terminal

        terminal.deliver(app_report.app_report(report, verbose=verbose), output, no_color=no_color)
    else:
        documents.deliver(documents.ENCODERS[format.value](report), output)
    if report.verdict == "unknown":
        for stack in report.stacks:
            for edge in stack.edges:
                reasons = [route.because for route in edge.routes or () if route.route == "unknown"]
                if edge.gds_helps == "unknown":
                    reasons.append(edge.because)
                for reason in reasons:
                    say(f"unknown: {stack.source}: {reason}")
        for one in report.storage if not report.stacks else ():
            say(f"unknown: {one.source}: {one.kind} {one.name} starts nothing; not given: {', '.join(one.needs)}")
        for found in report.findings:
            if found.id == "app.pod-lacks":
                say(f"unknown: {found.subject}: {found.message}")
    return {"pass": 0, "fail": 1, "unknown": 3}[report.verdict]


def lacking(node: Node) -> Lacking:
    """What a container lacks on this node: all that `gdsctl verify --container` holds against it, by the same rules."""
    from gdsctl.assess.assessment import assess
    from gdsctl.container.boxed import given
    from gdsctl.container.inside import inside
    from gdsctl.kvcache.on_node import Lack
    from gdsctl.plan import demand
    from gdsctl.plan.containers import PROFILE

    asked = {one.finding for one in demand.of_profile(PROFILE) if isinstance(one, demand.FreeOf)}

    def of(box: Container, mounts: Mapping[str, str]) -> Iterator[Lack]:
        verdicts = assess(inside(node, given(box, mounts))).verdicts
        for judged in verdicts.judged:
            if judged.finding.id in asked and judged.finding.id.startswith("container."):
                yield Lack(id=judged.finding.id, what=judged.finding.message, certain=True)
        for open_ in verdicts.undecided:
            if open_.id in asked:
                yield Lack(id=open_.id, what=open_.cannot.fact, certain=False)

    return of


_LARGEST_BESIDE = 1 << 20


def _text(path: str) -> str:
    """A file's text. Raises InputError that says what it seems to be where it is none, or not there."""
    from gdsctl.cli.text_files import read_text
    from gdsctl.kvcache import foreign

    try:
        return read_text(path)
    except InputError:
        seems = None
        if path.startswith("example:"):
            seems = f"a node, not a file: use `gdsctl app FILE --snapshot {path}`"
        elif os.path.isdir(path):
            with os.scandir(path) as entries:
                seems = foreign.seems_folder(
                    frozenset(entry.name for entry, _ in zip(entries, range(1000), strict=False)), path
                )
        elif os.path.isfile(path):
            with open(path, "rb") as stream:
                seems = foreign.seems_bytes(stream.read(16), path)
        if seems is None:
            raise
        raise InputError(seems, path=path) from None


def _beside(given: str, name: str) -> tuple[str, str] | None:
    """Path and text of a small file by the name that a given one uses, if it lies in or below the folder of that."""
    if given == "<stdin>" or "\0" in name:
        return None
    folder = os.path.dirname(given)
    path = os.path.normpath(os.path.join(folder, name))
    within = os.path.realpath(folder or ".")
    try:
        real = os.path.realpath(path)
        if os.path.commonpath([within, real]) != within or not os.path.isfile(real):
            return None
        with open(real, "rb") as stream:
            raw = stream.read(_LARGEST_BESIDE + 1)
        return (path, raw.decode()) if len(raw) <= _LARGEST_BESIDE else None
    except (OSError, ValueError):
        return None

"""The program as its stages; the only place that knows their order."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gdsctl import __version__
from gdsctl.assess.assessment import Assessment, assess
from gdsctl.collect.node import collect
from gdsctl.model.node import Node, Report, Tool
from gdsctl.model.unknown import Gap, Unknown
from gdsctl.source.base import Missing, Source

if TYPE_CHECKING:  # planning loads the YAML reader, which no other command wants at its start
    from gdsctl.assess.cufile_lint import PathKind
    from gdsctl.assess.lint_report import LintReport
    from gdsctl.diff.compare import DiffReport
    from gdsctl.diff.state import State
    from gdsctl.plan.cufile import Style
    from gdsctl.plan.demand import Demand
    from gdsctl.plan.desired import Plan
    from gdsctl.plan.documents import PlanReport, VerifyReport
    from gdsctl.plan.intent import Mode, Wanted

_PLACE = " on this machine"
_WORTH_PROCESSES = 8  # starting them costs about as much as two snapshots
_KEYED = {
    "pci/devices": "address",
    "gpus": "address",
    "nics": "address",
    "nvme": "name",
    "block": "name",
    "mounts": "target",
}


def tool() -> Tool:
    return Tool(name="gdsctl", version=__version__)


def inspect(source: Source) -> Report:
    """The whole node with its verdicts: the `inspect` document."""
    return report(assess(collect(source)))


def report(assessment: Assessment) -> Report:
    node = assessment.node
    return Report(
        tool=tool(),
        source=node.source,
        platform=node.platform,
        iommu=node.iommu,
        pci=node.pci,
        numa=node.numa,
        gpus=node.gpus,
        nics=node.nics,
        nvme=node.nvme,
        block=node.block,
        mounts=node.mounts,
        modules=node.modules,
        nvfs_hooks=node.nvfs_hooks,
        nvidia_driver=node.nvidia_driver,
        nvidia_fs=node.nvidia_fs,
        gds=node.gds,
        container=node.container,
        pairs=assessment.pairs,
        routes=assessment.routes,
        findings=assessment.findings,
        unknowns=unknowns(node),
    )


def unknowns(node: Node) -> tuple[Unknown, ...]:
    """The node's gaps as JSON pointers into its document; gaps of one pointer are told once."""
    places = {section: _positions(node, section) for section in _KEYED}
    told: dict[str, Unknown] = {}
    for gap in node.gaps:
        pointer = _pointer(gap, places)
        told.setdefault(
            pointer,
            Unknown(pointer=pointer, reason=gap.reason, detail=gap.detail, settle_with=gap.settle_with),
        )
    return tuple(told.values())


def _positions(node: Node, section: str) -> dict[str, int]:
    records = node.pci.devices if section == "pci/devices" else getattr(node, section)
    positions: dict[str, int] = {}
    for index, record in enumerate(records):
        for name in (_KEYED[section], "rdma_device", "uuid"):
            value = getattr(record, name, None)
            if isinstance(value, str):
                positions.setdefault(value, index)
        if section == "gpus":
            positions.setdefault(str(record.index), index)
        if section == "nics":
            for netdev in record.netdevs:
                positions.setdefault(netdev, index)
    return positions


def _pointer(gap: Gap, places: dict[str, dict[str, int]]) -> str:
    parts = gap.section.split("/")
    if gap.key is not None:
        position = places.get(gap.section, {}).get(gap.key)
        parts.append(_escaped(gap.key) if position is None else str(position))
    parts += [part for part in gap.field.split("/") if part]
    return "/" + "/".join(parts)


def _escaped(token: str) -> str:
    return token.replace("~", "~0").replace("/", "~1")


def capture(source: Source, out: str, *, redact: bool) -> None:
    """Write down all that a collection of this source asks for. Raises RefusedError where OUT cannot be made."""
    from gdsctl.source.record import Recorder
    from gdsctl.source.writing import write_snapshot

    recorder = Recorder(source)
    collect(recorder)
    write_snapshot(recorder, out, redact=redact)


def plan(source: Source, wanted: Wanted, *, mode: Mode, kinds: list[str], style: Style = "explicit") -> PlanReport:
    """The `plan` document, with the artifacts that were asked for; none asked: all that apply."""
    from gdsctl.plan.desired import plan as make

    return planned(make(assess(collect(source)), wanted, mode, style), kinds)


def planned(made: Plan, kinds: list[str]) -> PlanReport:
    """The document of a plan."""
    from gdsctl import emit
    from gdsctl.assess.view import gpu_key
    from gdsctl.plan.documents import PlanReport

    emitters = emit.chosen(kinds or [emit.ALL])
    return PlanReport(
        tool=tool(),
        source=made.node.source,
        mode=made.mode,
        mode_reason=made.mode_reason,
        intent=made.intent,
        intent_from=made.intent_from,
        gpus={gpu_key(gpu): gpu.index for gpu in made.node.gpus},
        artifacts=emit.artifacts(made, emitters, named=frozenset(kinds)),
        steps=made.steps,
        routes_now=made.routes_now,
        routes_after=made.routes_after,
        unmet=made.unmet,
        notes=made.notes,
        findings=made.findings,
    )


def verify(
    source: Source,
    wanted: Wanted,
    *,
    demands: tuple[Demand, ...] = (),
    strict: bool,
    baseline: Source | None,
    waivers: tuple[str, str] | None,
) -> VerifyReport:
    """The `verify` document."""
    from gdsctl.assess.view import gpu_key
    from gdsctl.plan.documents import VerifyReport
    from gdsctl.plan.verify import verify as judge

    assessment = assess(collect(source))
    before = assess(collect(baseline)) if baseline is not None else None
    gate = judge(assessment, wanted, demands=demands, strict=strict, baseline=before, waivers=waivers)
    return VerifyReport(
        tool=tool(),
        source=assessment.node.source,
        verdict=gate.verdict,
        intent=gate.plan.intent,
        intent_from=gate.intent_from,
        mode=gate.plan.mode,
        gpus={gpu_key(gpu): gpu.index for gpu in assessment.node.gpus},
        requirements=gate.requirements,
        routes=assessment.routes,
        drift=gate.drift,
        findings=assessment.findings,
    )


def verify_containers(
    source: Source,
    files: Sequence[tuple[str, str]],
    *,
    demands: tuple[Demand, ...] = (),
    strict: bool,
    waivers: tuple[str, str] | None,
) -> VerifyReport:
    """The `verify` document of the containers that files describe, as they would be on this node. `files`: (text, path)."""
    from gdsctl.container.inside import inside, joined, sources
    from gdsctl.container.read import read
    from gdsctl.plan import containers

    found = joined(tuple(given for text, path in files for given in read(text, path)))
    host = assess(collect(source))
    boxes = tuple(
        containers.Boxed(
            name=given.name,
            place=given.place,
            assessment=assess(inside(host.node, given)),
            sources=sources(host.node, given),
            spec_only=given.kind == "cdi",
        )
        for given in found
    )
    return containers.verify_containers(host, boxes, tool=tool(), demands=demands, strict=strict, waivers=waivers)


def diff(specs: Sequence[str]) -> DiffReport:
    """The `diff` document. One snapshot at a time in each of as many processes as there are CPUs for us."""
    from gdsctl.diff.compare import compare

    if len(specs) < _WORTH_PROCESSES:
        return compare(zip(specs, map(_state, specs), strict=True), tool())
    import multiprocessing
    import os

    workers = len(os.sched_getaffinity(0))
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        return compare(zip(specs, pool.imap(_state, specs, chunksize=4), strict=True), tool())


def _state(spec: str) -> State:
    from gdsctl.diff.state import state
    from gdsctl.source.opening import open_source

    return state(assess(collect(open_source(spec))))


def lint(source: Source, version: str | None) -> LintReport:
    """The two files that the node's library would merge, and its environment, as the `lint` document."""
    from gdsctl.assess import cufile_lint
    from gdsctl.assess.config import Config
    from gdsctl.assess.lint_report import LintReport

    node = collect(source)
    config = node.gds.cufile_config
    layers = [(path, text) for path, text in config.texts.items()]
    asked = version or Config.of(node).version
    look = functools.partial(kind, source)
    problems = cufile_lint.lint(
        layers,
        version=asked,
        env=config.env,
        node=node,
        kind_of=look,
        place=_PLACE if node.source.kind == "live" else "",
    )
    gap = node.gap("gds", "cufile_config/files") if config.files is None else None
    return LintReport(
        tool=tool(),
        gds_version=asked,
        files=tuple(config.texts),
        unread=gap.detail if gap is not None else None,
        denied=gap is not None and gap.reason == "denied",
        unseen=cufile_lint.unseen(layers, version=asked, node=node, kind_of=look),
        problems=problems,
    )


def kind(source: Source, path: str) -> PathKind | None:
    """What a path is on the machine behind a source; None where that is not known."""
    if not path.startswith("/") or "\0" in path:
        return None
    stands = source.exists(path)
    if stands is False:
        return "absent"
    if stands is not True:
        return None
    names = source.names(path)
    if not isinstance(names, Missing):
        return "directory"
    return "other" if names.status in ("error", "absent") else "there"


def lint_text(path: str, text: str, version: str | None, machine: Source | None, *, node: bool = False) -> LintReport:
    """One file, cufile.json or static routing, as the `lint` document.

    `machine`: where the paths and devices in it are looked for, None: nowhere. `node`: judged as the only cufile.json
    of that machine, by its library's release where none is asked for, its mounts, NICs and modules.
    """
    from gdsctl.assess import cufile_lint, static_routing
    from gdsctl.assess.config import Config
    from gdsctl.assess.lint_report import LintReport

    routing = static_routing.is_one(text)
    known = collect(machine) if machine is not None and (node or routing) else None
    if known is not None and node and version is None:
        version = Config.of(known).version
    if routing:
        return LintReport(
            tool=tool(), gds_version=version, files=(path,), problems=static_routing.lint(path, text, node=known)
        )
    look = functools.partial(kind, machine) if machine is not None else None
    layers = [(path, text)]
    return LintReport(
        tool=tool(),
        gds_version=version,
        files=(path,),
        unseen=cufile_lint.unseen(layers, version=version, node=known, kind_of=look),
        problems=cufile_lint.lint(
            layers,
            version=version,
            env={},
            node=known,
            kind_of=look,
            place=_PLACE if known is None or known.source.kind == "live" else "",
        ),
    )

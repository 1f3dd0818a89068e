"""The report of `app` for people."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from gdsctl.kvcache.app import AppReport
from gdsctl.kvcache.stack import Edge, Stack, Tier
from gdsctl.kvcache.stored import Stored
from gdsctl.model.judgement import Finding
from gdsctl.render.safe_text import safe

_SEVERITY = {"critical": "bold red", "error": "red", "warning": "yellow", "info": "cyan"}
_HELPS = {"yes": "green", "half": "yellow", "no": "red", "unknown": "magenta"}
_VERDICT = {"pass": "green", "fail": "bold red", "unknown": "magenta"}
_DIRECT = {"nvidia-fs", "p2pdma", "c2c", "rdma"}
_MEMORY = {"gpu": "GPU", "dram": "host memory", "file": "file", "object": "object store"}


def app_report(report: AppReport, *, verbose: bool = False) -> RenderableType:
    """Each stack with its edges, what is wrong, and last whether bytes go between GPU and storage."""
    parts: list[RenderableType] = []
    for stack in report.stacks:
        parts += _stack(stack, verbose=verbose)
    for one in report.storage if not report.stacks else ():
        parts += _stored(one)
    if report.findings:
        parts.append(Text("Findings", style="bold underline"))
        for finding in report.findings:
            parts += _finding(finding, verbose=verbose)
        parts.append(Text(""))
    parts += [Text(safe(f"Read as well: {named}"), style="dim") for named in report.followed]
    parts += [Text(safe(f"Starts nothing, and no other file names it: {path}"), style="dim") for path in report.idle]
    parts += [Text(safe(f"Not given, so not looked at: {named}"), style="yellow") for named in report.unread]
    parts.append(_answer(report))
    parts.append(Text(report.verdict.upper(), style=_VERDICT[report.verdict]))
    return Group(*parts)


def _stack(stack: Stack, *, verbose: bool) -> list[RenderableType]:
    head = Text(safe(f"{stack.software}{f' {stack.version}' if stack.version else ''}"), style="bold")
    head.append(
        f"  {safe(str(stack.source))}{f', container {safe(stack.container)}' if stack.container else ''}", style="dim"
    )
    lines: list[RenderableType] = [head]
    lines += [Padding(Text(safe(_tier(tier))), (0, 0, 0, 2)) for tier in stack.tiers]
    for edge in stack.edges:
        lines += _edge(edge, verbose=verbose)
    if not stack.edges:
        lines.append(Padding(Text("keeps nothing itself; it asks the LMCache server"), (0, 0, 0, 2)))
    return [*lines, Text("")]


def _tier(tier: Tier) -> str:
    size = f", {tier.size_gib:g} GiB" if tier.size_gib is not None else ""
    return f"{tier.name}: {tier.type}{size}{f', {tier.path}' if tier.path else ''}"


def _edge(edge: Edge, *, verbose: bool) -> list[RenderableType]:
    arrow = "<->" if edge.direction == "both" else "->"
    line = Text(f"{_MEMORY[edge.from_]} {arrow} {_MEMORY[edge.to]}")
    line.append(f" ({edge.direction})" if edge.direction != "both" else "")
    line.append(f" through {safe(edge.api)}")
    line.append(f", staged in {_MEMORY[edge.staged_in]}" if edge.staged_in else "")
    line.append("; GDS can help: ")
    line.append(edge.gds_helps, style=_HELPS[edge.gds_helps])
    told: list[RenderableType] = [
        Padding(line, (0, 0, 0, 2)),
        Padding(Text(safe(edge.because), style="dim"), (0, 0, 0, 6)),
    ]
    for route in edge.routes or ():
        where = f" on {safe(route.mount)}" if route.mount else ""
        because = safe(route.because)
        because = because if because.startswith(route.route) else f"{route.route}; {because}"
        told.append(Padding(Text(f"{len(route.gpus)} GPUs{where}: {because}"), (0, 0, 0, 6)))
    if verbose and edge.source:
        told.append(Padding(Text(f"source: {safe(edge.source)}", style="dim"), (0, 0, 0, 6)))
    return told


def _stored(one: Stored) -> list[RenderableType]:
    head = Text(safe(f"{one.kind} {one.name}"), style="bold")
    head.append(f"  {safe(str(one.source))}", style="dim")
    line = Text("GDS can help: ")
    line.append(one.gds_helps, style=_HELPS[one.gds_helps])
    line.append(f"; {safe(one.because)}")
    told: list[RenderableType] = [head, Padding(line, (0, 0, 0, 2))]
    told += [
        Padding(
            Text(f"on this node {safe(route.mount or '')}, {len(route.gpus)} GPUs: {safe(route.because)}"), (0, 0, 0, 2)
        )
        for route in one.routes or ()
    ]
    told += [Padding(Text(f"not given: {safe(need)}", style="yellow"), (0, 0, 0, 2)) for need in one.needs]
    return [*told, Text("")]


def _finding(finding: Finding, *, verbose: bool) -> list[RenderableType]:
    head = Text(f"{safe(finding.subject)}: ")
    head.append(finding.severity, style=_SEVERITY[finding.severity])
    head.append(f" {finding.id}: {safe(finding.message)}")
    told: list[RenderableType] = [head, Padding(Text(f"-> {safe(finding.remedy.text)}"), (0, 0, 0, 4))]
    if verbose:
        told.append(Padding(Text(safe(finding.why), style="dim"), (0, 0, 0, 4)))
    return told


def _answer(report: AppReport) -> Text:
    if not report.stacks:
        return Text("Storage alone moves no bytes: give the program's file beside this one.")
    edges = [edge for stack in report.stacks for edge in stack.edges]
    helped = {edge.gds_helps for edge in edges}
    routes = {route.route for edge in edges if edge.gds_helps == "yes" for route in edge.routes or ()}
    lacks = {finding.severity for finding in report.findings if finding.id == "app.pod-lacks"}
    if "error" in lacks:
        return Text("This node goes direct, but a container is not given what that needs.")
    if lacks:
        return Text("This node goes direct; whether a container is given all that needs, the files do not show.")
    if routes and routes <= _DIRECT:
        return Text("Bytes go between GPU and storage directly on this node.")
    if any(finding.id == "app.path-not-direct" for finding in report.findings):
        there = "at least one path" if routes & _DIRECT else "this path"
        return Text(f"Bytes could go between GPU and storage directly, but on this node {there} does not go direct.")
    if "yes" in helped:
        return Text("Bytes can go between GPU and storage directly, where the path is direct.")
    if "half" in helped:
        return Text("Loads can go from storage to GPU directly; stores go through host memory.")
    if "unknown" in helped:
        return Text("Whether bytes go between GPU and storage directly cannot be told from these files.")
    if any("file" in (edge.from_, edge.to) or "object" in (edge.from_, edge.to) for edge in edges):
        return Text("No bytes go between GPU and storage directly: GPUDirect Storage has no part in this.")
    return Text("No storage takes part in this.")

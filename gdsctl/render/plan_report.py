"""Reports of `plan` and `lint` for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from gdsctl.assess.cufile_merge import Problem
from gdsctl.assess.lint_report import LintReport
from gdsctl.model.judgement import Route
from gdsctl.model.node import SourceInfo
from gdsctl.plan.documents import PlanReport, Unmet
from gdsctl.render.layout import Columns, Line
from gdsctl.render.ranges import ranges
from gdsctl.render.safe_text import plain_pointer, safe

_STATUS = {"fail": "bold red", "unknown": "magenta"}
_SEVERITY = {"critical": "bold red", "error": "red", "warning": "yellow", "info": "cyan"}


def plan_report(report: PlanReport, *, verbose: bool = False) -> RenderableType:
    """What is planned and why, what to do, what each GPU and mount gets, and last what stays unmet."""
    parts: list[RenderableType] = [
        *_head("plan", report.source),
        _line("mode", f"{report.mode}: {report.mode_reason}"),
        _line("intent", report.intent_from),
        *_section("Steps", _steps(report, verbose=verbose)),
        *_section("Artifacts", _artifacts(report, verbose=verbose)),
        *_section("Worth knowing", [Text(f"- {safe(note)}") for note in report.notes]),
        *_section(f"Paths, now and with the plan carried out{_with_held(report)}", [_routes(report)]),
        *_section("Unmet", _unmet(report)),
    ]
    return Group(*parts)


def lint_report(report: LintReport) -> RenderableType:
    """One problem a line, FILE:LINE:COL first, as editors and terminals follow it; the remedy below."""
    lines: list[RenderableType] = []
    for problem in report.problems:
        head = Text(f"{safe(_place(problem))}: ")
        head.append(problem.severity, style=_SEVERITY[problem.severity])
        head.append(f" {problem.id}: {safe(problem.message)}")
        lines += [head, Padding(Text(f"-> {safe(problem.remedy)}"), (0, 0, 0, 4))]
    asked = f"GDS {report.gds_version}" if report.gds_version else "GDS 1.11 to 1.20"
    files = ", ".join(map(safe, report.files)) or "no cufile.json: the library's defaults"
    if report.unread:
        lines.append(Text(f"{safe(report.unread)} could not be read", style="magenta"))
    if report.unseen:
        lines.append(Text(f"not known whether it is there: {', '.join(map(safe, report.unseen))}", style="magenta"))
    counts = _counted(report.problems)
    if report.unseen:
        counts += f", {len(report.unseen)} path{'s' if len(report.unseen) > 1 else ''} not looked at"
    lines.append(Text(f"{files}: {counts} ({asked})"))
    return Group(*lines)


def _place(problem: Problem) -> str:
    if problem.line is None and problem.pointer:
        return f"{problem.path}:{plain_pointer(problem.pointer)}"
    return ":".join(str(part) for part in (problem.path, problem.line, problem.column) if part is not None)


def _counted(problems: Sequence[Problem]) -> str:
    counts = {severity: sum(p.severity == severity for p in problems) for severity in _SEVERITY}
    return ", ".join(f"{count} {severity}" for severity, count in counts.items() if count) or "nothing wrong found"


def _head(command: str, source: SourceInfo) -> list[RenderableType]:
    where = {"live": "this machine"}.get(source.kind, f"{source.kind} {safe(source.path or '')}".strip())
    head = Text.assemble((f"gdsctl {command}", "bold"), f"  {safe(source.host or '?')}, {where}")
    return [head, *([Text(safe(source.note), style="yellow")] if source.note else [])]


def _line(name: str, text: str) -> RenderableType:
    return Text(f"{name}: {safe(text)}")


def _section(title: str, body: Sequence[RenderableType]) -> list[RenderableType]:
    return [Text(""), Text(title, style="bold underline"), *body] if body else []


def _steps(report: PlanReport, *, verbose: bool) -> list[RenderableType]:
    if not report.steps:
        if report.unmet:
            return [Text("none that would change a path: see what is unmet")]
        if not report.intent.mounts or not report.routes_after:
            return [Text("none: there is no path to plan")]
        return [Text("none: the node is as planned", style="green")]
    lines: list[RenderableType] = []
    for step in report.steps:
        head = Text(f"{step.order}. {safe(step.what)}")
        if step.needs_reboot:
            head.append("  (reboot)", style="yellow")
        if step.held:
            head.append("  (held back)", style="bold red")
        lines.append(head)
        if step.held:
            lines.append(Line(f"do not apply it: {step.held}", indent=2))
        lines += [Line(command, indent=4, whole=True) for command in step.commands]
        if verbose:
            lines += [Line(f"changes: {change}", indent=2, style="dim") for change in step.changes]
        if step.risk:
            lines.append(Line(f"risk: {step.risk}", indent=2, style="dim"))
        lines += _commands("check", step.check)
        lines += _commands("undo", step.undo) if verbose else []
    if not verbose and any(step.undo for step in report.steps):
        lines.append(Text("how to undo each step: --verbose, or --emit steps", style="dim"))
    return lines


def _with_held(report: PlanReport) -> str:
    return ", what is held back too" if any(step.held for step in report.steps) else ""


def _commands(name: str, commands: Sequence[str]) -> list[RenderableType]:
    """What they are for, and each below it in one line that can be copied."""
    head = [Line(f"{name}:", indent=2, style="dim")] if commands else []
    return [*head, *(Line(command, indent=4, style="dim", whole=True) for command in commands)]


def _artifacts(report: PlanReport, *, verbose: bool) -> list[RenderableType]:
    if not verbose:
        kinds = ", ".join(report.artifacts)
        return [Text(f"{kinds}  (--emit KIND prints one, --output-dir DIR writes them)")] if kinds else []
    lines: list[RenderableType] = []
    for kind, artifact in report.artifacts.items():
        lines.append(Text(f"{kind}: {safe(artifact.path)}"))
        if artifact.reasons:
            lines += [
                Padding(Text(f"{safe(where)}: {safe(why)}", style="dim"), (0, 0, 0, 4))
                for where, why in artifact.reasons.items()
            ]
    return lines


def _routes(report: PlanReport) -> RenderableType:
    table = Columns("mount", "GPU", "now", "then", "at most")
    before = {(route.gpu, route.mount): route for route in report.routes_now}
    wanted = {wish.target for wish in report.intent.mounts or ()}
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for route in report.routes_after:
        if route.mount not in wanted:
            continue
        earlier = before.get((route.gpu, route.mount))
        ceiling = f"{route.ceiling_gbs:.3g} GB/s" if route.ceiling_gbs is not None else "?"
        key = (route.mount, _route(earlier) if earlier else "-", _route(route), ceiling)
        groups.setdefault(key, []).append(route.gpu)
    for (mount, was, then, ceiling), gpus in groups.items():
        table.add(mount, _numbers(report, gpus), was, then, ceiling)
    if groups:
        return table
    unknown = any(unmet.status == "unknown" and not unmet.gpus for unmet in report.unmet)
    if unknown or not report.intent.mounts:
        return Text("not known: see what is unmet" if unknown else "no mount that a path could lead to")
    return Text("no GPU, or none of the intent's mounts is mounted")


def _route(route: Route) -> str:
    return f"{route.route} ({route.dynamic_routing})" if route.dynamic_routing else route.route


def _unmet(report: PlanReport) -> list[RenderableType]:
    if not report.unmet:
        return [Text("nothing", style="green")]
    lines: list[RenderableType] = []
    for unmet in report.unmet:
        head = Text(f"{'?' if unmet.status == 'unknown' else '!'} ", style=_STATUS[unmet.status])
        head.append(f"{safe(unmet.subject)}{_of_gpus(report, unmet)}: {safe(unmet.because)}")
        lines.append(head)
        if unmet.findings:
            lines.append(Padding(Text(f"findings: {', '.join(unmet.findings)} (gdsctl explain ID)"), (0, 0, 0, 4)))
        if unmet.settle_with:
            lines += _commands("settle with", [unmet.settle_with])
    return lines


def _of_gpus(report: PlanReport, unmet: Unmet) -> str:
    """` (GPU 0-3)`; nothing where it is not a matter of GPUs."""
    if not unmet.gpus or unmet.subject in unmet.gpus:
        return ""
    return f" (GPU {_numbers(report, unmet.gpus)})"


def _numbers(report: PlanReport, gpus: Sequence[str]) -> str:
    if any(gpu not in report.gpus for gpu in gpus):
        return ", ".join(map(safe, gpus))
    return ranges(report.gpus[gpu] for gpu in gpus)

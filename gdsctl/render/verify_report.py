"""The report of `verify` for people: readable at 80 columns, one requirement a line, its evidence below."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from gdsctl.plan.documents import Drift, Requirement, VerifyReport
from gdsctl.render.layout import Line
from gdsctl.render.ranges import ranges
from gdsctl.render.safe_text import safe

_STYLE = {"pass": "green", "fail": "bold red", "unknown": "magenta", "waived": "yellow"}
_WORD = {"fail": "fail", "unknown": "unknown", "waived": "waived", "pass": "hold"}
_INDENT = 9


def verify_report(report: VerifyReport, *, verbose: bool = False) -> RenderableType:
    """What does not hold, why and what would settle it; those that hold too where verbose; last the verdict."""
    shown = [requirement for requirement in report.requirements if verbose or requirement.status != "pass"]
    entries = _folded(shown)
    loose = [entry for entry in report.drift if not entry.required]
    parts: list[RenderableType] = [*_head(report)]
    if shown:
        parts += [Text(""), *_requirements(entries, report.gpus)]
    if loose:
        parts += [Text(""), Text("Not as planned, but no route hangs on it (--strict fails on these):")]
        parts += [_hanging(_drift(entry), 2) for entry in loose]
    parts += [Text(""), _verdict(report)]
    if len(entries) < len(shown):
        parts.insert(-1, Text(f"{len(shown)} requirements in {_count(entries)}: those that fare alike share one."))
    return Group(*parts)


def _head(report: VerifyReport) -> list[RenderableType]:
    source = report.source
    where = {"live": "this machine"}.get(source.kind, f"{source.kind} {safe(source.path or '')}".strip())
    lines = [Text.assemble(("gdsctl verify", "bold"), f"  {safe(source.host or '?')}, {where}")]
    if source.note:
        lines.append(Text(safe(source.note), style="yellow"))
    return [*lines, Text(f"intent: {safe(report.intent_from)}"), Text(f"mode: {report.mode}")]


_Entry = tuple[str, str, str, str | None, str | None]


def _folded(requirements: Sequence[Requirement]) -> dict[_Entry, list[str]]:
    """Subjects that fare alike share an entry."""
    groups: dict[_Entry, list[str]] = {}
    for one in requirements:
        key = (one.status, one.id, one.evidence, one.finding, one.settle_with)
        groups.setdefault(key, []).append(one.subject)
    return groups


def _requirements(groups: dict[_Entry, list[str]], gpus: dict[str, int]) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for (status, name, evidence, finding, settle), subjects in groups.items():
        head = Text(f"{status.upper():<{_INDENT}}", style=_STYLE[status])
        head.append(f"{safe(name)}  {safe(_subjects(subjects, gpus))}", style="not bold default")
        lines += [head, _hanging(evidence, _INDENT)]
        if settle:
            lines.append(Line(f"settle with: {settle}", indent=_INDENT, whole=True))
        if finding:
            lines.append(_hanging(f"more: gdsctl explain {finding}", _INDENT, style="dim"))
    return lines


def _subjects(subjects: Iterable[str], gpus: dict[str, int]) -> str:
    """`GPUs 0-7`, then all that is no GPU by name."""
    named = list(dict.fromkeys(subjects))
    numbers = [gpus[name] for name in named if name in gpus]
    others = [name for name in named if name not in gpus]
    if len(numbers) == 1:
        address = next(name for name in named if name in gpus)
        return ", ".join([f"GPU {numbers[0]} ({address})", *others])
    return ", ".join([*([f"GPUs {ranges(numbers)}"] if numbers else []), *others])


def _count(entries: dict[_Entry, list[str]]) -> str:
    return "1 entry" if len(entries) == 1 else f"{len(entries)} entries"


def _drift(entry: Drift) -> str:
    return f"{entry.kind} {entry.key}: {entry.said}"


def _verdict(report: VerifyReport) -> Text:
    """`FAIL: 14 of 16 requirements fail, 2 hold`."""
    statuses = [requirement.status for requirement in report.requirements]
    counts = {status: statuses.count(status) for status in _WORD if status in statuses}
    first = report.verdict if report.verdict in counts else next(iter(counts), None)
    if first is None:
        return Text(f"{report.verdict.upper()}: nothing was required", style=_STYLE[report.verdict])
    told = [f"{counts.pop(first)} of {len(statuses)} requirements {_WORD[first]}"]
    told += [f"{count} {_WORD[status]}" for status, count in counts.items()]
    return Text(f"{report.verdict.upper()}: {', '.join(told)}", style=_STYLE[report.verdict])


def _hanging(text: str, indent: int, style: str = "") -> RenderableType:
    return Line(text, style=style, indent=indent)

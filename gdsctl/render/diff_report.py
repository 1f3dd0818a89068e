"""The report of `diff` for people: groups of nodes and what sets them apart, cosmetic differences last."""

from __future__ import annotations

from rich.console import Group as Lines
from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from gdsctl.diff.compare import CosmeticDifference, Difference, DiffReport, Group
from gdsctl.render.ranges import ranges
from gdsctl.render.safe_text import safe

_STYLE = {"same": "green", "drift": "bold red", "unknown": "magenta"}
_LONGEST = 120
_FEW = 4


def diff_report(report: DiffReport, *, verbose: bool = False) -> RenderableType:
    """Verbose tells the values of cosmetic differences whole."""
    parts: list[RenderableType] = [Text.assemble(("gdsctl diff", "bold"), f"  {report.nodes} nodes")]
    for group in report.groups:
        parts += [Text(""), *_group(group)]
    if report.cosmetic:
        parts += [Text(""), Text("Different, but no route or ceiling changes by it:")]
        parts += [
            Padding(line, (0, 0, 0, 2)) for entry in report.cosmetic for line in _cosmetic(entry, verbose=verbose)
        ]
    others = len(report.groups) - 1
    told = {
        "same": f"all {report.nodes} nodes take the same paths",
        "drift": f"{sum(len(group.names) for group in report.groups[1:])} of {report.nodes} nodes differ from the rest, "
        f"in {others} group{'s' if others > 1 else ''}",
        "unknown": "nodes differ only in what could not be told",
    }[report.verdict]
    return Lines(*parts, Text(""), Text(f"{report.verdict.upper()}: {told}", style=_STYLE[report.verdict]))


def _group(group: Group) -> list[RenderableType]:
    count = len(group.names)
    head = f"{safe(group.nodes)}: {count} node{'s' if count > 1 else ''}" + (
        ", the reference" if group.reference else ""
    )
    return [Text(head, style="bold"), *(Padding(Text(_difference(one)), (0, 0, 0, 2)) for one in group.differences)]


def _difference(one: Difference) -> str:
    gpus = f"GPU{'s' if len(one.gpus) > 1 else ''} {ranges(one.gpus)} " if one.gpus else ""
    return f"{one.kind}: {gpus}{safe(one.subject)}: was {safe(one.was)}, is {safe(one.now)}"


def _cosmetic(entry: CosmeticDifference, *, verbose: bool) -> list[Text]:
    if entry.more:
        return [Text(f"{safe(entry.fact)}: more than {len(entry.values)} values")]
    if len(entry.values) > _FEW and not verbose:
        return [Text(f"{safe(entry.fact)}: {len(entry.values)} values")]
    lines = [Text(f"{safe(entry.fact)}:")]
    for one in entry.values:
        value = safe(one.value)
        cut = value if verbose or len(value) <= _LONGEST else f"{value[:_LONGEST]}..."
        lines.append(Text(f"  {safe(one.nodes)}: {cut}"))
    return lines

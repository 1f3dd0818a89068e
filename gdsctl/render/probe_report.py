"""Report of `probe` for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gdsctl.probe.limiter import Limiter
from gdsctl.probe.report import ComparisonRow, Latency, ProbeReport, RequestRow, SideRow, Spread, Stability, SweepRow
from gdsctl.probe.sizes import words
from gdsctl.render.safe_text import safe

_VERDICT = {"compat": "bold yellow", "mixed": "bold yellow", "unknown": "bold magenta"}
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_BAR = 8
_LEVELS = "▁▂▃▄▅▆▇█"


def probe_report(report: ProbeReport, *, verbose: bool = False) -> RenderableType:
    """The figures, the path with its evidence, the prediction; with a sweep or a workload its table."""
    parts: list[RenderableType] = [
        Text.assemble(("gdsctl probe", "bold"), f"  {safe(report.path)}"),
        _line("engine", f"{report.engine} ({report.engine_because}): {report.carried_by}"),
        _line("file", report.file),
        _line("run", _run(report)),
        Text(""),
        *([_sweep(report.sweep)] if report.sweep else []),
        *([_requests(report.requests)] if report.requests else []),
        *([] if report.sweep or report.requests else [_figures(report)]),
        Text(""),
        *_path(report, verbose=verbose),
        _line("predicted", _predicted(report)),
        *([_line("limited by", _fastest(report) + _limited(report.limiter))] if report.limiter is not None else []),
        *([Text(""), _comparison(report)] if report.comparison else []),
    ]
    if report.verify is not None:
        parts.append(_verified(report))
    parts += [Text(f"- {safe(note)}", style="dim") for note in report.notes]
    if verbose:
        parts += [Text(""), *(_line(name, str(value)) for name, value in report.environment.items())]
    return Group(*parts)


def _line(name: str, text: str) -> Text:
    return Text.assemble((f"{name}: ", "bold"), safe(text))


def _run(report: ProbeReport) -> str:
    if report.requests:
        return f"kv-cache, {report.files} chunk files of {words(report.block_bytes)}"
    gpus = f", GPU {', '.join(map(str, report.gpus))}" if report.gpus else ""
    shape = (
        "" if report.sweep else f" of {words(report.block_bytes)}, {_count(report.threads, 'thread')}{_deep(report)}"
    )
    files = f", {report.files} files" if report.files > 1 else ""
    rate = f", at most {report.rate_gbs:.4g} GB/s" if report.rate_gbs is not None else ""
    runs = f", {len(report.repeats)} runs" if report.repeats else ""
    bound = f", on {_count(len({cpu for some in report.numa_cpus for cpu in some}), 'CPU')}" if report.numa_cpus else ""
    return f"{report.rw}{shape}{files}{gpus}{bound}{rate}{runs}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number != 1 else ''}"


def _deep(report: ProbeReport) -> str:
    return f", {report.iodepth} deep" if report.iodepth > 1 else ""


def _figures(report: ProbeReport) -> RenderableType:
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_row("moved", f"{words(report.bytes)} in {report.seconds:.3g} s{_fsync(report)}")
    table.add_row("throughput", Text.assemble((f"{report.throughput_gbs:.4g} GB/s", "bold"), _spread(report.spread)))
    table.add_row("blocks", f"{report.iops:,.0f} /s")
    table.add_row("latency", _latency(report.latency_us))
    for name, side in (("reads", report.read), ("writes", report.write)):
        if side is not None:
            table.add_row(f"  {name}", _side(side))
    table.add_row("CPU", f"{report.cpu_seconds_per_gb:.3g} s per GB")
    if report.stability.coefficient_of_variation is not None:
        table.add_row("by second", _steady(report.stability))
    return table


def _spread(spread: Spread | None) -> str:
    if spread is None:
        return ""
    varies = spread.coefficient_of_variation
    return f"  of {spread.min:.4g} to {spread.max:.4g}" + (
        f", varies by {100 * varies:.1f} %" if varies is not None else ""
    )


def _side(side: SideRow) -> str:
    return f"{side.throughput_gbs:.4g} GB/s  p50 {_us(side.latency_us.p50)}  p99 {_us(side.latency_us.p99)}"


def _fsync(report: ProbeReport) -> str:
    return f", then {report.fsync_seconds:.2g} s in fsync" if report.fsync_seconds is not None else ""


def _latency(latency: Latency) -> str:
    names = ("min", "p50", "p90", "p99", "p99_9", "max")
    told = [name for name in names if getattr(latency, name) is not None]
    return "  ".join(f"{name.replace('_', '.')} {_us(getattr(latency, name))}" for name in told) or "not told"


def _us(microseconds: float | None) -> str:
    if microseconds is None:
        return "-"
    for unit, size in (("us", 1), ("ms", 1_000)):
        if microseconds < 999.5 * size:
            return f"{microseconds / size:.3g} {unit}"
    return f"{microseconds / 1e6:.3g} s"


def _steady(stability: Stability) -> str:
    top = max(stability.series_gbs) or 1.0
    drawn = "".join(_LEVELS[round(gbs / top * (len(_LEVELS) - 1))] for gbs in stability.series_gbs[-40:])
    return f"{drawn}  varies by {100 * (stability.coefficient_of_variation or 0):.1f} %"


def _bar(share: float) -> str:
    eighths = round(max(0.0, min(1.0, share)) * _BAR * 8)
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")


def _sweep(rows: Sequence[SweepRow]) -> RenderableType:
    """Columns that say the same in each row are left out, and the bar where it would not fit."""

    def told(row: SweepRow) -> dict[str, str]:
        varies = row.spread.coefficient_of_variation if row.spread is not None else None
        return {
            "block": words(row.block_bytes),
            "threads": str(row.threads),
            "deep": str(row.iodepth),
            "GB/s": f"{row.throughput_gbs:.3f}",
            "": _bar(row.throughput_gbs / top),
            "varies": "" if varies is None else f"{100 * varies:.1f} %",
            "blocks/s": f"{row.iops:,.0f}",
            "p50": _us(row.latency_us.p50),
            "p99": _us(row.latency_us.p99),
            "CPU s/GB": f"{row.cpu_seconds_per_gb:.3f}",
            "limited by": "" if row.limiter is None else row.limiter.name + ("" if row.limiter.likely else "?"),
            "path": row.path_taken.verdict,
        }

    top = max(row.throughput_gbs for row in rows) or 1.0
    each = [told(row) for row in rows]
    same = {
        name for name in ("threads", "deep", "varies", "limited by", "path") if len({row[name] for row in each}) == 1
    }
    shown = [name for name in each[0] if name not in same and (name or same >= {"threads", "deep", "varies"})]
    table = _table(*shown)
    for row in each:
        table.add_row(*(row[name] for name in shown))
    return table


def _fastest(report: ProbeReport) -> str:
    """Which row of a sweep is spoken of."""
    if not report.sweep:
        return ""
    return f"(fastest: {words(report.block_bytes)}, {_count(report.threads, 'thread')}{_deep(report)}) "


def _limited(limiter: Limiter) -> str:
    said = "" if limiter.likely else ", perhaps"
    return f"{limiter.name}{said}: {limiter.because}" + (f"; try: {limiter.next}" if limiter.next else "")


def _comparison(report: ProbeReport) -> RenderableType:
    table = _table("engine", "GB/s", "CPU s/GB", "p50", "p99", "path", f"{report.engine} by it")
    mine = report.latency_us
    table.add_row(
        report.engine,
        f"{report.throughput_gbs:.3f}",
        f"{report.cpu_seconds_per_gb:.3f}",
        _us(mine.p50),
        _us(mine.p99),
        report.path_taken.verdict,
    )
    for row in report.comparison:
        table.add_row(*_compared(row))
    return Group(table, *(Text(f"- {safe(row.says)}") for row in report.comparison))


def _compared(row: ComparisonRow) -> tuple[str, ...]:
    def told(value: float | None) -> str:
        return "-" if value is None else f"{value:.3f}"

    return (
        safe(row.engine),
        told(row.throughput_gbs),
        told(row.cpu_seconds_per_gb),
        _us(row.p50_us),
        _us(row.p99_us),
        row.verdict or "",
        f"{row.ratio:.2f}",
    )


def _requests(rows: Sequence[RequestRow]) -> RenderableType:
    table = _table("operation", "threads", "requests", "GB/s", "p50", "p90", "p99", "max")
    for row in rows:
        latency = (row.latency_us.p50, row.latency_us.p90, row.latency_us.p99, row.latency_us.max)
        table.add_row(
            row.operation, str(row.threads), str(row.requests), f"{row.throughput_gbs:.3f}", *map(_us, latency)
        )
    return table


def _path(report: ProbeReport, *, verbose: bool) -> list[RenderableType]:
    taken = report.path_taken
    head = Text.assemble(("path: ", "bold"), (taken.verdict, _VERDICT.get(taken.verdict, "bold green")))
    head.append(f" ({taken.confidence}): {safe(taken.because)}")
    lines: list[RenderableType] = [head]
    for piece in taken.evidence:
        source = f"  [{safe(piece.source)}]" if verbose else ""
        lines.append(
            Padding(Text(f"{safe(piece.fact)}: {safe(piece.value)}; {safe(piece.says)}{source}"), (0, 0, 0, 4))
        )
    return lines


def _predicted(report: ProbeReport) -> str:
    prediction = report.prediction
    if prediction.route is None:
        return prediction.because
    ceiling = f", at most {prediction.ceiling_gbs:.3g} GB/s" if prediction.ceiling_gbs is not None else ""
    share = f", of which {100 * prediction.ratio:.0f} % were reached" if prediction.ratio is not None else ""
    return f"{prediction.route}{ceiling}{share} ({prediction.because})"


def _verified(report: ProbeReport) -> Text:
    verify = report.verify
    if verify is None or verify.ok:
        return _line("verified", f"{words(verify.bytes if verify else 0)} hold what was written")
    said = f"MISMATCH at offset {verify.first_bad_offset}: {verify.kind}: {verify.found}"
    return Text(safe(said), style="bold red")


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, show_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(
            column,
            no_wrap=True,
            justify="left" if column in ("", "operation", "engine", "limited by", "path") else "right",
        )
    return table

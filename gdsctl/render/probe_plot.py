"""A probe as a picture, by matplotlib (the extra `plot`)."""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gdsctl.errors import UsageError
from gdsctl.probe.report import ProbeReport, SweepRow
from gdsctl.probe.sizes import words
from gdsctl.render.safe_text import safe

FORMATS = ("svg", "png", "pdf")
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Of Okabe and Ito: told apart by colour-blind eyes, too."""


def ready(path: str) -> None:
    """Raises UsageError, before anything is measured, for a form or a machine that cannot be drawn on."""
    if os.path.splitext(path)[1].lstrip(".").lower() not in FORMATS:
        raise UsageError(f"--plot: {path}: the name must end in .{', .'.join(FORMATS)}")
    try:
        import matplotlib  # noqa: F401, ICN001 -- is it there?
    except ImportError:
        raise UsageError("--plot needs matplotlib: pip install 'gdsctl[plot]'") from None


def picture(report: ProbeReport, form: str) -> bytes:
    """With a sweep: throughput and latency by what was varied; with a workload: by threads; else the throughput of each second."""
    import matplotlib as mpl

    mpl.use("agg")
    from cycler import cycler
    from matplotlib import pyplot as plt

    with mpl.rc_context({"svg.hashsalt": "gdsctl", "svg.fonttype": "none", "axes.prop_cycle": cycler(color=_COLOURS)}):
        draw = _sweep if report.sweep else _requests if report.requests else _seconds
        figure = draw(plt, report)
        # A dollar sign would begin a formula: names of files are told as they are.
        figure.suptitle(
            safe(
                f"gdsctl probe {report.path}: {'kv-cache' if report.requests else report.rw}, {report.engine}"
            ).replace("$", r"\$"),
            fontsize=10,
        )
        stream = io.BytesIO()
        figure.savefig(stream, format=form, metadata={"Date": None} if form == "svg" else None)
        plt.close(figure)
    return stream.getvalue()


def _axes(pyplot: Any, *titles: str) -> tuple[Any, Sequence[Any]]:
    figure, axes = pyplot.subplots(1, len(titles), figsize=(5 * len(titles), 3.6), layout="constrained", squeeze=False)
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_ylabel(title)
        axis.grid(visible=True, alpha=0.3)
    return figure, axes[0]


class _Dimension(NamedTuple):
    """Of a sweep: `name` under an axis, `of` a row, `told` on a tick or in the legend."""

    name: str
    of: Callable[[SweepRow], int]
    tick: Callable[[int], str]
    told: Callable[[int], str]


_DIMENSIONS = (
    _Dimension("block", lambda row: row.block_bytes, words, words),
    _Dimension("threads", lambda row: row.threads, str, lambda n: f"{n} thread{'s' * (n > 1)}"),
    _Dimension("blocks under way in each thread", lambda row: row.iodepth, str, lambda n: f"{n} deep"),
)


def _sweep(pyplot: Any, report: ProbeReport) -> Any:
    """Along the axis goes what has the most values; a line for each combination of the others."""
    figure, (left, right) = _axes(pyplot, "throughput, GB/s", "latency, us: p50 (line), p99 (dots)")
    along = max(_DIMENSIONS, key=lambda dimension: len({dimension.of(row) for row in report.sweep}))
    others = [dimension for dimension in _DIMENSIONS if dimension is not along]
    ticks = sorted({along.of(row) for row in report.sweep})
    shapes = sorted({tuple(other.of(row) for other in others) for row in report.sweep})
    for colour, shape in zip(itertools.cycle(_COLOURS), shapes, strict=False):
        rows = sorted((row for row in report.sweep if tuple(other.of(row) for other in others) == shape), key=along.of)
        at = [ticks.index(along.of(row)) for row in rows]
        name = ", ".join(other.told(value) for other, value in zip(others, shape, strict=True))
        left.plot(at, [row.throughput_gbs for row in rows], marker="o", color=colour, label=name)
        _spread(left, at, rows, colour)
        right.plot(at, [row.latency_us.p50 for row in rows], color=colour)
        right.plot(at, [row.latency_us.p99 for row in rows], marker="o", linestyle="none", color=colour)
    right.set_ylim(auto=True)
    right.set_yscale("log")
    left.set_ylim(bottom=0)
    left.legend(fontsize=8)
    for axis in (left, right):
        axis.set_xticks(range(len(ticks)), list(map(along.tick, ticks)), fontsize=8)
        axis.set_xlabel(along.name)
    return figure


def _spread(axis: Any, at: Sequence[int], rows: Sequence[SweepRow], colour: str) -> None:
    for where, row in zip(at, rows, strict=True):
        if row.spread is not None:
            axis.vlines(where, row.spread.min, row.spread.max, color=colour, linewidth=3, alpha=0.4)


def _requests(pyplot: Any, report: ProbeReport) -> Any:
    figure, (left, right) = _axes(pyplot, "throughput, GB/s", "request latency, ms: p50 -, p90 - -, p99 ...")
    percentiles: tuple[tuple[str, Callable[[Any], float]], ...] = (
        ("-", lambda latency: latency.p50),
        ("--", lambda latency: latency.p90),
        (":", lambda latency: latency.p99),
    )
    for colour, operation in zip(_COLOURS, ("store", "retrieve"), strict=False):
        rows = [row for row in report.requests if row.operation == operation]
        threads = [row.threads for row in rows]
        left.plot(threads, [row.throughput_gbs for row in rows], marker="o", color=colour, label=operation)
        for line, of in percentiles:
            right.plot(threads, [of(row.latency_us) / 1e3 for row in rows], linestyle=line, color=colour)
    left.legend(fontsize=8)
    for axis in (left, right):
        axis.set_xlabel("threads")
        axis.set_ylim(bottom=0)
    return figure


def _seconds(pyplot: Any, report: ProbeReport) -> Any:
    figure, (axis,) = _axes(pyplot, "throughput, GB/s")
    series = report.stability.series_gbs or (report.throughput_gbs,)
    axis.step(range(1, len(series) + 1), series, where="mid", marker="o")
    axis.set_ylim(bottom=0)
    axis.set_xlabel("second")
    return figure

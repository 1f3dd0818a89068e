"""From runs to what is told of them."""

from __future__ import annotations

import pytest

from gdsctl.probe.figures import Figures, _saturated
from gdsctl.probe.limiter import Limiter, LimiterName
from gdsctl.probe.report import Latency
from gdsctl.probe.request import Case
from gdsctl.probe.verdict import PathTaken


def run(threads: int, gbs: float, name: LimiterName = "concurrency", block: int = 1 << 20) -> Figures:
    """One second of it."""
    return Figures(
        case=Case(block, threads, 1),
        bytes=int(gbs * 1e9),
        blocks=1,
        seconds=1.0,
        cpu_seconds=0.1,
        latency=Latency(),
        taken=PathTaken(verdict="host-direct", confidence="certain", because=""),
        limiter=Limiter(name=name, likely=False, because=""),
    )


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        # four threads give twice as much as one, and sixteen no more than four: from four on it is the storage
        ([run(1, 1.0), run(4, 2.0), run(16, 2.1)], ["concurrency", "storage", "storage"]),
        ([run(1, 2.0), run(2, 2.0)], ["storage", "storage"]),
        ([run(1, 1.0), run(2, 1.9)], ["concurrency", "concurrency"]),
        # other block sizes say nothing, nor do runs with nearly as many blocks under way
        ([run(1, 1.0), run(2, 1.0, block=1 << 16)], ["concurrency", "concurrency"]),
        ([run(4, 1.0), run(5, 1.0)], ["concurrency", "concurrency"]),
        # what is known to have held it back stays
        ([run(1, 1.0, "rate"), run(4, 1.0, "rate")], ["rate", "rate"]),
    ],
)
def test_a_sweep_tells_storage_from_concurrency(runs: list[Figures], expected: list[str]) -> None:
    found = _saturated(runs)
    assert [figures.limiter.name for figures in found] == expected
    assert all(figures.limiter.likely for figures in found if figures.limiter.name == "storage")

"""The histogram against sorted values."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdsctl.probe.histogram import RELATIVE_ERROR, Histogram

PERCENTS = (0, 1, 50, 90, 99, 99.9, 100)


def exact(values: list[int], percent: float) -> int:
    """Nearest rank: the smallest value such that at least `percent` of all are not above it."""
    ordered = sorted(values)
    return ordered[max(1, math.ceil(len(ordered) * percent / 100)) - 1]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=400))
def test_percentiles_are_those_of_the_sorted_values(values: list[int]) -> None:
    histogram = Histogram()
    histogram.record(values)
    for percent in PERCENTS:
        want = exact(values, percent)
        found = histogram.percentile(percent)
        assert found is not None
        assert abs(found - want) <= want * RELATIVE_ERROR
    assert histogram.minimum == min(values)
    assert histogram.percentile(100) == max(values)
    assert histogram.mean() == sum(values) / len(values)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.integers(0, 10**10), max_size=50), min_size=1, max_size=8))
def test_merging_threads_is_recording_all_in_one(threads: list[list[int]]) -> None:
    merged, whole = Histogram(), Histogram()
    for values in threads:
        part = Histogram()
        part.record(values)
        merged.merge(part)
        whole.record(values)
    assert [merged.percentile(p) for p in PERCENTS] == [whole.percentile(p) for p in PERCENTS]
    assert (merged.total, merged.sum, merged.minimum, merged.maximum) == (
        whole.total,
        whole.sum,
        whole.minimum,
        whole.maximum,
    )


def test_small_values_are_exact() -> None:
    histogram = Histogram()
    histogram.record(range(256))
    assert [histogram.percentile(p) for p in (0, 50, 100)] == [0, 127, 255]


def test_one_slow_block_in_a_thousand_shows_only_in_the_maximum() -> None:
    histogram = Histogram()
    histogram.record([100] * 999 + [10**9])
    assert histogram.percentile(99.9) == 100
    assert histogram.percentile(99.95) == 10**9


def test_nothing_recorded_has_no_percentile() -> None:
    histogram = Histogram()
    assert histogram.percentile(50) is None
    assert histogram.mean() is None


def test_few_long_ones_take_most_of_the_time() -> None:
    """1000 of 100 and one of 900,000: (0.1 + 0.9 million; 0.9 of 1.0 million)."""
    histogram = Histogram()
    histogram.record([100] * 1000 + [900_000])
    count, share = histogram.above(1000)
    assert count == 1
    assert share == pytest.approx(0.9, rel=RELATIVE_ERROR)
    assert histogram.above(900_000) == (0, 0.0)
    assert Histogram().above(0) == (0, 0.0)

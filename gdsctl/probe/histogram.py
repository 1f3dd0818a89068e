"""Latencies in logarithmic buckets, in the manner of HdrHistogram: small, mergeable, of known error."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

_SUB_BITS = 7  # 128 buckets a power of two

RELATIVE_ERROR = 1 / 2 ** (_SUB_BITS + 1)
"""A reported value differs from a recorded one by at most this share (0.4 %): half a bucket's width."""


def _bucket(value: int) -> int:
    shift = max(0, value.bit_length() - _SUB_BITS - 1)
    return (shift << _SUB_BITS) + (value >> shift)


def _middle(bucket: int) -> float:
    """The middle of a bucket; below 256 a bucket is one value, which is exact."""
    shift = max(0, (bucket >> _SUB_BITS) - 1)
    low = (bucket - (shift << _SUB_BITS)) << shift
    return low + ((1 << shift) - 1) / 2


class Histogram:
    """Whole numbers of at least 0 (here nanoseconds). Merging loses nothing; minimum, maximum and sum are exact."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self.total = 0
        self.sum = 0
        self.minimum: int | None = None
        self.maximum: int | None = None

    def record(self, values: Iterable[int]) -> None:
        values = list(values)
        if not values:
            return
        self._counts.update(map(_bucket, values))
        self._widen(len(values), sum(values), min(values), max(values))

    def merge(self, other: Histogram) -> None:
        if other.minimum is not None and other.maximum is not None:
            self._counts.update(other._counts)
            self._widen(other.total, other.sum, other.minimum, other.maximum)

    def _widen(self, total: int, added: int, low: int, high: int) -> None:
        self.total += total
        self.sum += added
        self.minimum = low if self.minimum is None else min(self.minimum, low)
        self.maximum = high if self.maximum is None else max(self.maximum, high)

    def mean(self) -> float | None:
        return self.sum / self.total if self.total else None

    def above(self, value: float) -> tuple[int, float]:
        """(how many values are greater, their share of the sum): to RELATIVE_ERROR; (0, 0.0) without any."""
        greater = [(bucket, count) for bucket, count in self._counts.items() if _middle(bucket) > value]
        together = sum(min(_middle(bucket), self.maximum or 0) * count for bucket, count in greater)
        return sum(count for _, count in greater), min(1.0, together / self.sum) if self.sum else 0.0

    def percentile(self, percent: float) -> float | None:
        """The smallest recorded value that `percent` of all values do not exceed (nearest rank), to RELATIVE_ERROR."""
        if self.minimum is None or self.maximum is None:
            return None
        rank = max(1, math.ceil(self.total * percent / 100))
        if rank >= self.total:
            return float(self.maximum)
        seen = 0
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            if seen >= rank:
                return min(max(_middle(bucket), self.minimum), self.maximum)
        raise AssertionError("counts and total differ")

"""Which block each thread moves when."""

from __future__ import annotations

import itertools
import random
from array import array
from collections.abc import Sequence


def regions(size_bytes: int, block_bytes: int, threads: int) -> tuple[range, ...]:
    """Offsets of whole blocks, each thread its own consecutive part of the file; the parts differ by at most a block."""
    blocks = size_bytes // block_bytes
    bounds = [blocks * thread // threads * block_bytes for thread in range(threads + 1)]
    return tuple(range(low, high, block_bytes) for low, high in itertools.pairwise(bounds))


def order(region: range, *, shuffled: bool, seed: int) -> Sequence[int]:
    """Every offset of a region once: in order, or in an order that only the seed decides."""
    if not shuffled:
        return region
    offsets = list(region)
    random.Random(seed).shuffle(offsets)  # noqa: S311 -- must repeat, need not be secret
    return array("q", offsets)

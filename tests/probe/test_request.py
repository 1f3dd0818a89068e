"""What is refused before anything is touched, and the cases of a sweep."""

from __future__ import annotations

from typing import Any

import pytest

from gdsctl.errors import RefusedError, UsageError
from gdsctl.probe.request import Case, Request, check


@pytest.mark.parametrize(
    "wrong",
    [
        {"block_bytes": (4096, 1000)},
        {"threads": (0,)},
        {"threads": (4, 2000)},
        {"iodepth": (5000,)},
        {"files": 2},  # with one thread
        {"files": 3, "threads": (2, 4)},
        {"repeat": 0},
        {"repeat": 101},
        {"read_percent": 101},
        {"ramp_seconds": 1.0},  # without a duration
        {"ramp_seconds": -1.0, "seconds": 1.0},
        {"rate_bytes": 10_000},  # a block of 1 MiB each 100 s
        {"seconds": float("nan")},
        {"seconds": float("inf")},
        {"warmup_seconds": float("nan")},
        {"block_bytes": (4096,) * 20, "threads": tuple(range(1, 16))},  # 300 cases
        {"size_bytes": 1 << 20, "block_bytes": (65536,), "threads": (1, 32)},  # the second has not a block a thread
        {"verify": True, "allow_existing": True},
    ],
)
def test_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        check(Request(path="x", **wrong))


def test_buffers_that_memory_does_not_hold() -> None:
    with pytest.raises(RefusedError, match="half of the memory"):
        check(Request(path="x", block_bytes=(64 << 20,), size_bytes=1 << 40, threads=(1024,), iodepth=(4096,)))


def test_each_combination_once() -> None:
    request = Request(path="x", block_bytes=(4096, 65536), threads=(1, 2), iodepth=(8,))
    check(request)
    assert request.cases == (Case(4096, 1, 8), Case(4096, 2, 8), Case(65536, 1, 8), Case(65536, 2, 8))
    assert request.sweeps


def test_a_plain_sweep_leaves_out_what_does_not_fit() -> None:
    """Four threads and 16 MiB: a block of 16 MiB would need 64."""
    request = Request(path="x", sweep=True, size_bytes=16 << 20, threads=(4,))
    assert [case.block_bytes for case in request.cases] == [4 << 10, 64 << 10, 1 << 20, 4 << 20]


@pytest.mark.parametrize(
    ("rw", "directions", "shuffled"),
    [
        ("read", ("read",), False),
        ("write", ("write",), False),
        ("randread", ("read",), True),
        ("randwrite", ("write",), True),
        ("rw", ("read", "write"), False),
        ("randrw", ("read", "write"), True),
    ],
)
def test_directions(rw: Any, directions: tuple[str, ...], shuffled: bool) -> None:
    request = Request(path="x", rw=rw)
    assert (request.directions, request.shuffled) == (directions, shuffled)

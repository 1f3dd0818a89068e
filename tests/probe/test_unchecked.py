"""Blocks that nobody looks into: the short loops, alone, in a queue, and several threads' in one process."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from gdsctl.errors import RefusedError
from gdsctl.probe import engine, offsets, uring
from gdsctl.probe.engine import Job, Log, Stop
from gdsctl.probe.pattern import Pattern
from gdsctl.probe.posix import HostBuffer, PosixEngine
from gdsctl.probe.run import Timed, run
from gdsctl.probe.target import create

BLOCK, BLOCKS, THREADS = 8192, 96, 6
WAYS = {"preadv": (1, THREADS), "queue": (5, 2), "joined": (1, 1)}
"""Depth, and the CPUs that there are."""


@pytest.fixture
def descriptor(nameless: int) -> int:
    """A file of ones."""
    buffer = HostBuffer(BLOCK * BLOCKS)
    buffer.load(bytearray(b"\x01" * (BLOCK * BLOCKS)))
    assert os.pwritev(nameless, [buffer.view], 0) == BLOCK * BLOCKS
    return nameless


@pytest.fixture(params=sorted(WAYS))
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    found: str = request.param
    if found != "preadv" and not (support := uring.support()).usable:
        pytest.skip(f"no io_uring: {support.why}")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(WAYS[found][1])))
    return found


def job(descriptor: int, direction: engine.Direction, way: str, *, seed: int = 3) -> Job:
    return Job(descriptor=descriptor, direction=direction, block_bytes=BLOCK, iodepth=WAYS[way][0], seed=seed)


def orders(blocks: int = BLOCKS, *, shuffled: bool = False) -> list[Sequence[int]]:
    regions = offsets.regions(blocks * BLOCK, BLOCK, THREADS)
    return [offsets.order(region, shuffled=shuffled, seed=at) for at, region in enumerate(regions)]


def moved(way: str, one: Job, parts: Sequence[Sequence[int]], seconds: float | None = None) -> Timed:
    made = PosixEngine(one.iodepth)
    assert (made.joined([one] * THREADS) is not None) == (way != "queue" and uring.support().usable)
    return run(made, [one] * len(parts), parts, seconds=seconds)


@pytest.mark.parametrize("shuffled", [False, True])
def test_each_block_is_written_once_and_no_other(descriptor: int, way: str, shuffled: bool) -> None:
    """Of 96 blocks the first 90, 15 a thread."""
    timed = moved(way, job(descriptor, "write", way, seed=9), orders(90, shuffled=shuffled))
    assert (timed.blocks, timed.by_thread) == (90, (15,) * THREADS)
    want, buffer = Pattern(9, BLOCK).block(0), HostBuffer(BLOCK)
    for number in range(BLOCKS):
        os.preadv(descriptor, [buffer.view], number * BLOCK)
        assert bytes(buffer.view) == (bytes(want) if number < 90 else b"\x01" * BLOCK)


def test_threads_need_not_have_as_many_blocks(descriptor: int, way: str) -> None:
    """Five threads with 1 to 5 blocks: 15 in all."""
    parts = [range(0, count * BLOCK, BLOCK) for count in range(1, 6)]
    timed = moved(way, job(descriptor, "read", way), parts)
    assert (timed.blocks, timed.by_thread) == (15, (1, 2, 3, 4, 5))
    assert 0 < (timed.latencies.minimum or 0) <= (timed.latencies.maximum or 0) <= timed.seconds * 1e9


def test_for_a_time_all_threads_go_on(descriptor: int, way: str) -> None:
    timed = moved(way, job(descriptor, "read", way), orders(), seconds=1.1)
    assert 1.1 <= timed.seconds < 10
    assert all(blocks > BLOCKS for blocks in timed.by_thread)
    assert timed.blocks == sum(timed.by_thread)
    together = timed.latencies.sum / 1e9
    assert together <= timed.seconds * THREADS * WAYS[way][0] * 1.01, "no thread is longer under way than the run"
    assert together >= timed.seconds * THREADS * 0.5


def test_the_lowest_block_that_was_not_moved_is_told(descriptor: int, way: str) -> None:
    os.ftruncate(descriptor, 40 * BLOCK + 4096)
    with pytest.raises(RefusedError, match=rf"read of 8 KiB at offset {40 * BLOCK}: only 4096 bytes of it were moved"):
        moved(way, job(descriptor, "read", way), [range(32 * BLOCK, 48 * BLOCK, BLOCK)] * 2)


def test_a_descriptor_that_may_not_write(descriptor: int, way: str) -> None:
    read_only = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_DIRECT)
    try:
        with pytest.raises(RefusedError, match=r"write of 8 KiB at offset \d+: Bad file descriptor \(EBADF\)"):
            moved(way, job(read_only, "write", way), orders())
    finally:
        os.close(read_only)


def test_each_thread_has_its_own_file(tmp_path: Path, descriptor: int, way: str) -> None:
    """The even threads write into the one, the odd ones into the other."""
    other, _ = create(str(tmp_path))
    os.ftruncate(other, BLOCK * BLOCKS)
    both = [job(descriptor, "write", way, seed=9), job(other, "write", way, seed=9)] * (THREADS // 2)
    run(PosixEngine(WAYS[way][0]), both, orders())
    want, buffer = bytes(Pattern(9, BLOCK).block(0)), HostBuffer(BLOCK)
    for at, (low, file) in enumerate(itertools.product(range(0, BLOCKS, BLOCKS // THREADS), (descriptor, other))):
        os.preadv(file, [buffer.view], low * BLOCK)
        rest = b"\x01" * BLOCK if file == descriptor else bytes(BLOCK)
        assert bytes(buffer.view) == (want if (at // 2) % 2 == at % 2 else rest)
    os.close(other)


@pytest.mark.parametrize(
    "changed",
    [{"checked": True}, {"every_ns": 10}, {"read_percent": 50}, {"after_ns": 10}, {"iodepth": 2}, {"cpus": (0,)}],
)
def test_what_is_done_between_blocks_takes_a_thread_each(changed: dict[str, object]) -> None:
    plain = Job(descriptor=0, direction="read", block_bytes=BLOCK)
    other = Job(**{"descriptor": 0, "direction": "read", "block_bytes": BLOCK, **changed})  # type: ignore[arg-type]
    assert PosixEngine(1).joined([plain, other]) is None


def test_a_full_log_is_worked_out_on_the_way(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looked at each 2 rounds, full from 10 blocks on: all 96 blocks are counted, and none is left raw but the last."""
    if not uring.support().usable:
        pytest.skip("no io_uring")
    monkeypatch.setattr(engine, "_FOLD_AT", 10)
    monkeypatch.setattr(uring, "_LOOKS", 2)
    log = Log()
    lane = uring.QueueLane(job(descriptor, "read", "queue"), HostBuffer(5 * BLOCK))
    lane.drive(range(0, BLOCKS * BLOCK, BLOCK), Stop(), log)
    lane.close()
    assert log.blocks == BLOCKS
    assert log.folded >= BLOCKS // 2
    log.fold()
    assert (log.histogram.total, sum(log.done_in_second.values())) == (BLOCKS, BLOCKS)


def test_no_more_than_two_neighbours_are_submitted_by_one_call(
    descriptor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where blocks follow each other the kernel would merge them; out of order they cannot be merged."""
    if not uring.support().usable:
        pytest.skip("no io_uring")
    asked: list[int] = []
    real = uring._quick.syscall

    class Counting:
        @staticmethod
        def syscall(*arguments: object) -> int:
            asked.append(arguments[2].value)  # type: ignore[attr-defined]
            return int(real(*arguments))

    monkeypatch.setattr(uring, "_quick", Counting)
    for order, most in ((range(0, BLOCKS * BLOCK, BLOCK), 2), (list(range(0, BLOCKS * BLOCK, BLOCK)), 5)):
        lane = uring.QueueLane(job(descriptor, "read", "queue"), HostBuffer(5 * BLOCK))
        asked.clear()
        lane.drive(order, Stop(), Log())
        lane.close()
        assert max(asked) == most
        assert sum(asked) == BLOCKS

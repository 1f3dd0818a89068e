"""The lane over an interface that tells later which blocks are done."""

from __future__ import annotations

import errno
import time
from array import array
from collections.abc import Sequence
from typing import Any

import pytest

from gdsctl.probe.engine import Job, Log, MismatchError, Stop, TransferError
from gdsctl.probe.pattern import Pattern
from gdsctl.probe.posix import HostBuffer
from gdsctl.probe.queued import Move, QueuedLane, one_by_one

BLOCK = 4096
SEED = 3


class Storage:
    """A file in memory. The block begun last is done first, one at a time; `bad`: what comes of the block at an offset."""

    def __init__(self, slots: int, bad: dict[int, int | OSError] | None = None) -> None:
        self.contents: dict[int, bytes] = {}
        self.buffers = [HostBuffer(BLOCK) for _ in range(slots)]
        self.under_way: list[Move] = []
        self.most = 0
        self.moves: list[Move] = []
        self._bad = bad or {}

    def submit(self, moves: Sequence[Move]) -> None:
        self.under_way += moves
        self.moves += moves
        self.most = max(self.most, len(self.under_way))
        assert len({move.slot for move in self.under_way}) == len(self.under_way)

    def done(self, until_ns: int | None) -> list[tuple[int, int | OSError]]:
        assert self.under_way
        if until_ns is not None:  # the storage is slower than the wish
            while time.perf_counter_ns() < until_ns:
                time.sleep(0.0001)
            if len(self.under_way) < 2:
                return []
        move = self.under_way.pop()
        view = self.buffers[move.slot].view
        if move.reads:
            view[:] = self.contents.get(move.offset, bytes(BLOCK))
        else:
            self.contents[move.offset] = bytes(view)
        return [(move.slot, self._bad.get(move.offset, BLOCK))]


def lane(storage: Storage, **more: Any) -> QueuedLane:
    job = Job(
        descriptor=-1, block_bytes=BLOCK, iodepth=len(storage.buffers), seed=SEED, **{"direction": "read", **more}
    )
    return QueuedLane(job, storage, storage.buffers, lambda: None)


def offsets(blocks: int) -> range:
    return range(0, blocks * BLOCK, BLOCK)


def test_written_blocks_are_found_where_they_belong() -> None:
    storage, log = Storage(4), Log()
    lane(storage, direction="write", checked=True).drive(offsets(40), Stop(), log)
    pattern = Pattern(SEED, BLOCK)
    assert storage.contents == {at: bytes(pattern.block(at)) for at in offsets(40)}
    assert storage.most == 4
    assert (len(log.ends), len(log.latencies)) == (40, 40)
    assert min(log.latencies) >= 0
    lane(storage, checked=True).drive(offsets(40), Stop(), Log())


def test_each_slot_is_used_again_as_soon_as_it_is_free() -> None:
    storage = Storage(3)
    lane(storage).drive(offsets(9), Stop(), Log())
    assert [move.offset // BLOCK for move in storage.moves] == list(range(9))
    assert storage.under_way == []


@pytest.mark.parametrize("bad", [OSError(errno.EIO, "Input/output error"), 512])
def test_of_blocks_under_way_the_failure_of_the_lowest_is_told(bad: int | OSError) -> None:
    storage = Storage(4, {2 * BLOCK: bad, 3 * BLOCK: OSError(errno.ENOSPC, "No space left on device")})
    with pytest.raises(TransferError) as caught:
        lane(storage).drive(offsets(100), Stop(), Log())
    assert caught.value.offset == 2 * BLOCK
    assert (caught.value.moved, caught.value.error) == ((512, None) if bad == 512 else (0, bad))
    assert storage.under_way == []  # nothing is left that could still write into a buffer
    assert len(storage.moves) < 10


def test_a_block_that_holds_something_else() -> None:
    storage = Storage(2)
    lane(storage, direction="write", checked=True).drive(offsets(8), Stop(), Log())
    storage.contents[5 * BLOCK] = storage.contents[4 * BLOCK]
    with pytest.raises(MismatchError) as caught:
        lane(storage, checked=True).drive(offsets(8), Stop(), Log())
    assert (caught.value.offset, caught.value.mismatch.kind) == (5 * BLOCK, "misplaced")


def test_reads_and_writes_mixed_are_noted_apart() -> None:
    storage, log = Storage(4), Log()
    lane(storage, direction="write", checked=True).drive(offsets(100), Stop(), Log())
    storage.moves.clear()
    lane(storage, read_percent=30, checked=True).drive(offsets(100), Stop(), log)
    assert sum(move.reads for move in storage.moves) == 30
    assert log.writes is not None
    assert (len(log.ends), len(log.writes.ends)) == (30, 70)


def test_a_rate_is_kept() -> None:
    storage, log = Storage(8), Log()
    begun = time.perf_counter()
    lane(storage, every_ns=2_000_000).drive(offsets(50), Stop(), log)
    assert time.perf_counter() - begun >= 49 * 0.002
    assert len(log.ends) == 50


def test_it_stops_when_it_is_time_and_waits_for_what_is_under_way() -> None:
    storage, stop, log = Storage(4), Stop(), Log()
    driven, many = lane(storage), array("q", offsets(1_000_000))
    stop.at = time.perf_counter_ns() + 50_000_000
    driven.drive(many, stop, log)
    assert 0 < len(log.ends) < 1_000_000
    assert storage.under_way == []


def test_a_queue_that_refuses_blames_the_first_block_not_done() -> None:
    class Full(Storage):
        def submit(self, moves: Sequence[Move]) -> None:
            raise OSError(5037, "cuFile error 5037")

    with pytest.raises(TransferError) as caught:
        lane(Full(4)).drive(range(BLOCK, 9 * BLOCK, BLOCK), Stop(), Log())
    assert caught.value.offset == BLOCK
    assert "5037" in str(caught.value.error)


def test_one_by_one() -> None:
    storage = Storage(1, {BLOCK: OSError(errno.ESTALE, "Stale file handle")})
    read = one_by_one(storage, reads=True)
    assert read(0) == BLOCK
    with pytest.raises(OSError, match="Stale file handle"):
        read(BLOCK)

"""A lane with several blocks under way, over any interface that takes blocks and later tells which are done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from gdsctl.probe.engine import Buffer, Job, Log, MismatchError, Pace, Stop, TransferError
from gdsctl.probe.pattern import Pattern


class Move(NamedTuple):
    """A block to be moved between the file and the buffer of a slot."""

    slot: int
    offset: int
    reads: bool


class Queue(Protocol):
    """An interface with room for as many blocks as there are slots."""

    def submit(self, moves: Sequence[Move]) -> None:
        """Raises OSError where it takes none of them."""

    def done(self, until_ns: int | None) -> Sequence[tuple[int, int | OSError]]:
        """Slots whose block is done, with its bytes or error: at least one, unless `until_ns` (perf_counter_ns) is over.

        Raises OSError where it cannot be told.
        """


class QueuedLane:
    """`iodepth` blocks under way at once; the next one is submitted as soon as one is seen to be done."""

    def __init__(self, job: Job, queue: Queue, buffers: Sequence[Buffer], release: Callable[[], None]) -> None:
        """`buffers`: one for each slot, of one block; `release`: gives queue and buffers back."""
        self._job = job
        self._queue = queue
        self._buffers = buffers
        self._release = release
        self._pace = Pace(job.every_ns)
        self._reads = job.reads_in_turn()
        writes = job.read_percent is not None or job.direction == "write"
        if job.checked or writes:
            self._pattern = Pattern(job.seed, job.block_bytes, job.generations)
        if writes:
            for buffer in buffers:
                buffer.load(self._pattern.block(0))

    def drive(self, offsets: Sequence[int], stop: Stop, log: Log) -> None:
        """Blocks are noted with the time at which they were seen, all that were seen together with the same."""
        clock, pace, paced = time.perf_counter_ns, self._pace, bool(self._job.every_ns)
        mixed = self._job.read_percent is not None
        logs = (log.split() if mixed else log, log)
        moves: list[Move | None] = [None] * len(self._buffers)
        begun = [0] * len(self._buffers)
        free = list(range(len(self._buffers)))
        pending: Iterator[int] = iter(offsets)
        failure: TransferError | MismatchError | None = None
        more = True
        while True:
            now = pace.wait(stop) if paced and len(free) == len(moves) else clock()
            more = more and failure is None and now < stop.at
            fresh: list[Move] = []
            while more and free and (not paced or pace.due <= now):
                if (offset := next(pending, None)) is None:
                    more = False
                    break
                slot = free.pop()
                move = self._prepare(slot, offset)
                if paced:
                    pace.taken(now)
                moves[slot] = move
                fresh.append(move)
            if len(free) == len(moves):
                break
            try:
                if fresh:
                    now = clock()
                    for move in fresh:
                        begun[move.slot] = now
                    self._queue.submit(fresh)
                found = self._queue.done(min(pace.due, stop.at) if paced and free and more else None)
            except OSError as error:
                lowest = min(move.offset for move in moves if move is not None)
                raise TransferError(lowest, 0, error) from error
            now = clock()
            for slot, result in found:
                done = moves[slot]
                if done is None:
                    raise TransferError(0, 0, OSError(0, f"told twice that slot {slot} is done"))
                moves[slot] = None
                free.append(slot)
                side = logs[done.reads]
                side.ends.append(now)
                side.latencies.append(now - begun[slot])
                failure = _earlier(failure, self._failure(done, result))
            log.relieve()
        if failure is not None:
            raise failure

    def _prepare(self, slot: int, offset: int) -> Move:
        mixed = self._job.read_percent is not None
        reads = next(self._reads) if mixed else self._job.direction == "read"
        if self._job.checked and not reads:
            self._buffers[slot].load(self._pattern.next(offset))
        return Move(slot, offset, reads)

    def _failure(self, move: Move, result: int | OSError) -> TransferError | MismatchError | None:
        if isinstance(result, OSError):
            return TransferError(move.offset, 0, result)
        if result != self._job.block_bytes:
            return TransferError(move.offset, result, None)
        if self._job.checked and move.reads:
            mismatch = self._pattern.check(self._buffers[move.slot].address(), move.offset)
            return MismatchError(mismatch) if mismatch else None
        return None

    def close(self) -> None:
        self._release()


def one_by_one(queue: Queue, *, reads: bool) -> Callable[[int], int]:
    """A queue of one slot as a call that waits: bytes moved of the block at an offset; raises OSError."""

    def transfer(offset: int) -> int:
        queue.submit([Move(0, offset, reads)])
        ((_, result),) = queue.done(None)
        if isinstance(result, OSError):
            raise result
        return result

    return transfer


def _earlier(
    first: TransferError | MismatchError | None, second: TransferError | MismatchError | None
) -> TransferError | MismatchError | None:
    """Of blocks that were under way together, the failure with the lower offset."""
    if first is None or second is None:
        return first or second
    return second if second.offset < first.offset else first

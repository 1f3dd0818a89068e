"""What an engine is: it gives each thread a lane, and a lane moves blocks between a file and memory."""

from __future__ import annotations

import itertools
import random
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, Protocol

import msgspec

from gdsctl.probe.histogram import Histogram
from gdsctl.probe.pattern import Generations, Mismatch, Pattern
from gdsctl.record import Record

Direction = Literal["read", "write"]

SLICE = 1 << 16
"""Operations between two looks at how much a thread has noted down."""
_FOLD_AT = 1 << 20
_LONGEST_SLEEP_NS = 50_000_000


class Job(Record, frozen=True, kw_only=True):
    """What a lane does. `seed`: of the contents; `checked`: fill before each write, compare after each read;
    `generations`: of the file's blocks, where they are written more than once.

    `read_percent`: of the blocks are read and the others written, `direction` notwithstanding; None: all go one way.
    `after_ns`: how long after the common start the lane begins; `every_ns`: no block begins sooner after the one before;
    `cpus`: the only ones its thread runs on, none for any.
    """

    descriptor: int
    direction: Direction
    block_bytes: int
    iodepth: int = 1
    seed: int = 0
    checked: bool = False
    generations: Generations | None = None
    gpu: int | None = None
    read_percent: int | None = None
    after_ns: int = 0
    every_ns: int = 0
    cpus: tuple[int, ...] = ()

    def alone(self, direction: Direction) -> Job:
        """The same in one direction, at once and at no given rate."""
        return msgspec.structs.replace(self, direction=direction, read_percent=None, after_ns=0, every_ns=0)

    @property
    def plain(self) -> bool:
        """Blocks follow each other at once, all one way, and nobody looks into them."""
        return self.read_percent is None and not self.checked and not self.every_ns

    def reads_in_turn(self) -> Iterator[bool]:
        """Is the next block read? Of each hundred exactly as many as wanted, in an order that the seed decides."""
        hundred = [number < (self.read_percent or 0) for number in range(100)]
        random.Random(self.seed).shuffle(hundred)  # noqa: S311 -- must repeat, need not be secret
        return itertools.cycle(hundred)


class Stop:
    """Until when lanes go on, in nanoseconds of time.perf_counter_ns; `now` ends them after the block they are at."""

    def __init__(self) -> None:
        self.at = 1 << 62

    def now(self) -> None:
        self.at = 0


class TransferError(Exception):
    """A block that was not moved. `error`: the system's, or None where it moved a part and then nothing more."""

    def __init__(self, offset: int, moved: int, error: OSError | None) -> None:
        super().__init__(offset, moved, error)
        self.offset = offset
        self.moved = moved
        self.error = error


class MismatchError(Exception):
    """A block that holds other bytes than were written."""

    def __init__(self, mismatch: Mismatch) -> None:
        super().__init__(mismatch)
        self.mismatch = mismatch
        self.offset = mismatch.offset


class Pace:
    """A block each `every_ns` from the first on; up to a second that was lost is caught up. `due`: the next one."""

    _CATCH_UP_NS = 1_000_000_000

    def __init__(self, every_ns: int) -> None:
        self._every = every_ns
        self.due = 0

    def taken(self, now: int) -> None:
        """A block has begun."""
        self.due = (max(self.due, now - self._CATCH_UP_NS) if self.due else now) + self._every

    def wait(self, stop: Stop) -> int:
        """Until the next block is due or it is time to stop; returns the clock."""
        while (now := time.perf_counter_ns()) < min(self.due, stop.at):
            time.sleep(min(self.due - now, _LONGEST_SLEEP_NS) / 1e9)
        return now


class Log:
    """When each block was done and how long it took, of one thread.

    Kept raw while the thread runs, since one clock reading and one append a block is what a thread can afford; worked
    out afterwards, or each million blocks. `origin`: the clock from which blocks count and seconds are numbered; what
    was done before it is only in `folded`. `writes`: of a mixed job, whose reads are in this one.
    """

    def __init__(self) -> None:
        self.histogram = Histogram()
        self.done_in_second: dict[int, int] = {}
        self.folded = 0
        self.origin = 0
        self.writes: Log | None = None
        self._back_to_back: list[array[int]] = []
        self.ends = array("q")
        self.latencies = array("q")

    def split(self) -> Log:
        """Where the writes of a mixed job go."""
        if self.writes is None:
            self.writes = Log()
            self.writes.origin = self.origin
        return self.writes

    def back_to_back(self) -> array[int]:
        """A new list of clock readings: the first when the thread begins, then one as each block is done."""
        self._back_to_back.append(array("q", [time.perf_counter_ns()]))
        return self._back_to_back[-1]

    @property
    def _raw(self) -> int:
        return len(self.ends) + sum(len(run) - 1 for run in self._back_to_back)

    @property
    def blocks(self) -> int:
        return self.folded + self._raw + (self.writes.blocks if self.writes is not None else 0)

    @property
    def full(self) -> bool:
        """Is it worth to work out what has been noted down?"""
        return self.blocks - self.folded - (self.writes.folded if self.writes is not None else 0) > _FOLD_AT

    def relieve(self) -> None:
        if self.full:
            self.fold()

    def fold(self) -> None:
        """Work out what has been noted down so far."""
        for run in self._back_to_back:
            first = max(1, bisect_left(run, self.origin))
            self.histogram.record(end - start for start, end in itertools.pairwise(run[first - 1 :]))
            self._count(run[first:])
            self.folded += len(run) - 1
        first = bisect_left(self.ends, self.origin)
        self.histogram.record(self.latencies[first:])
        self._count(self.ends[first:])
        self.folded += len(self.ends)
        self._back_to_back.clear()
        del self.ends[:], self.latencies[:]
        if self.writes is not None:
            self.writes.fold()

    def _count(self, ends: Sequence[int]) -> None:
        for end in ends:
            second = (end - self.origin) // 1_000_000_000
            self.done_in_second[second] = self.done_in_second.get(second, 0) + 1


class Lane(Protocol):
    """What one thread works with; made, used and closed in that thread."""

    def drive(self, offsets: Sequence[int], stop: Stop, log: Log) -> None:
        """Move the blocks at these offsets, in this order, until they are through or it is time to stop.

        Raises TransferError, and MismatchError in a checked job.
        """

    def close(self) -> None: ...


class Joined(Protocol):
    """What carries the blocks of several threads; made, used and closed in one thread."""

    def drive(self, orders: Sequence[Sequence[int]], stop: Stop, logs: Sequence[Log], *, again: bool) -> None:
        """Move each thread's blocks in its order, once or over and over. Raises TransferError."""

    def close(self) -> None: ...


class CufileCounts(Record, frozen=True, kw_only=True):
    """Blocks by the path libcufile says each took, in this process and direction, over all GPUs."""

    nvidia_fs: int
    p2p: int
    posix: int
    total: int


class Engine(Protocol):
    """`name`: as the option calls it; `how`: which system calls or library carries the blocks.

    `queues`: does a lane keep several blocks under way; `why_no_queue`: if not; `mixes_in_queue`: reads beside writes,
    too. `compat_allowed`: may cuFile fall back to
    host memory; None for an engine that is not cuFile. `forks`: may lanes run in processes of their own (a CUDA context
    does not survive a fork). `introduce`: called with a file that is to be used, while it still
    has a name; None where the engine needs no name.
    """

    name: str
    how: str
    queues: bool
    mixes_in_queue: bool
    why_no_queue: str
    compat_allowed: bool | None
    forks: bool

    @property
    def introduce(self) -> Callable[[int], None] | None: ...

    def lane(self, job: Job) -> Lane: ...

    def joined(self, jobs: Sequence[Job]) -> Callable[[], Joined] | None:
        """What opens one lane for all these threads, a block of each under way; None where each takes one of its own."""

    def begin(self) -> None:
        """From here on blocks count."""

    def counts(self, direction: Direction) -> CufileCounts | None:
        """What the library counted since begin(); None for an engine without one."""

    def log_lines(self) -> tuple[str, ...]:
        """Warnings and errors that the library wrote down."""

    def close(self) -> None: ...


class Uncounted:
    """An engine without a library that counts."""

    compat_allowed: bool | None = None
    forks: bool = False
    mixes_in_queue: bool = False
    introduce: Callable[[int], None] | None = None

    def joined(self, jobs: Sequence[Job]) -> Callable[[], Joined] | None:  # noqa: ARG002 -- the protocol's
        return None

    def begin(self) -> None: ...

    def counts(self, direction: Direction) -> CufileCounts | None:  # noqa: ARG002 -- the protocol's
        return None

    def log_lines(self) -> tuple[str, ...]:
        return ()

    def close(self) -> None: ...


class Buffer(Protocol):
    """One block of memory that a lane transfers to or from."""

    def load(self, content: bytearray) -> None: ...

    def address(self) -> int:
        """Where on the host its content stands, after it has been copied there if need be."""


class OneAtATime:
    """A lane that waits for each block: `transfer(offset)` gives how many bytes it moved, or raises OSError."""

    def __init__(self, job: Job, transfer: Callable[[int], int], buffer: Buffer) -> None:
        self._job = job
        self._transfer = transfer
        self._buffer = buffer
        self._pace = Pace(job.every_ns)
        if job.checked or job.direction == "write":
            self._pattern = Pattern(job.seed, job.block_bytes, job.generations)
        if job.direction == "write":
            buffer.load(self._pattern.block(0))

    def drive(self, offsets: Sequence[int], stop: Stop, log: Log) -> None:
        for low in range(0, len(offsets), SLICE):
            part = offsets[low : low + SLICE]
            if self._job.checked or self._job.every_ns:
                self._one_by_one(part, stop, log)
            else:
                self._fast(part, stop, log)
            log.relieve()
            if time.perf_counter_ns() >= stop.at:
                return

    def _fast(self, offsets: Sequence[int], stop: Stop, log: Log) -> None:
        transfer, block, clock = self._transfer, self._job.block_bytes, time.perf_counter_ns
        note = log.back_to_back().append
        for offset in offsets:
            try:
                moved = transfer(offset)
            except OSError as error:
                raise TransferError(offset, 0, error) from error
            if moved != block:
                raise TransferError(offset, moved, None)
            now = clock()
            note(now)
            if now >= stop.at:
                return

    def _one_by_one(self, offsets: Sequence[int], stop: Stop, log: Log) -> None:
        pace = self._pace
        for offset in offsets:
            if (now := pace.wait(stop)) >= stop.at:
                return
            pace.taken(now)
            self.step(offset, log)

    def step(self, offset: int, log: Log) -> None:
        """Move one block: filled before if it is written, compared after if it is read, where the job says so."""
        reads, checked = self._job.direction == "read", self._job.checked
        if checked and not reads:
            self._buffer.load(self._pattern.next(offset))
        start = time.perf_counter_ns()
        try:
            moved = self._transfer(offset)
        except OSError as error:
            raise TransferError(offset, 0, error) from error
        if moved != self._job.block_bytes:
            raise TransferError(offset, moved, None)
        now = time.perf_counter_ns()
        log.ends.append(now)
        log.latencies.append(now - start)
        if checked and reads and (mismatch := self._pattern.check(self._buffer.address(), offset)):
            raise MismatchError(mismatch)

    def close(self) -> None:
        """Nothing that the buffer's end would not free."""


class Mixed:
    """Reads and writes of one thread, one block at a time, by a lane for each."""

    def __init__(self, job: Job, reading: OneAtATime, writing: OneAtATime) -> None:
        self._reading, self._writing = reading, writing
        self._reads = job.reads_in_turn()
        self._pace = Pace(job.every_ns)

    def drive(self, offsets: Sequence[int], stop: Stop, log: Log) -> None:
        pace, writes = self._pace, log.split()
        for offset in offsets:
            if (now := pace.wait(stop)) >= stop.at:
                return
            pace.taken(now)
            if next(self._reads):
                self._reading.step(offset, log)
            else:
                self._writing.step(offset, writes)
            log.relieve()

    def close(self) -> None:
        self._reading.close()
        self._writing.close()

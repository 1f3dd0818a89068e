"""Threads at work, each in a process of its own where the engine allows it: start together, stop together."""

from __future__ import annotations

import contextlib
import functools
import itertools
import mmap
import os
import resource
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import NamedTuple

import msgspec

from gdsctl.errors import RefusedError, UsageError
from gdsctl.probe import processes
from gdsctl.probe.deadline import PATIENCE_S, Worker, within
from gdsctl.probe.engine import (
    Direction,
    Engine,
    Job,
    Joined,
    Log,
    MismatchError,
    Mixed,
    OneAtATime,
    Stop,
    TransferError,
)
from gdsctl.probe.histogram import Histogram
from gdsctl.probe.pattern import Mismatch
from gdsctl.probe.pauses import Pauses, slept_seconds
from gdsctl.probe.sizes import words
from gdsctl.probe.target import refused
from gdsctl.record import Record

Progress = Callable[[int, float], None]
"""Told now and then: bytes moved and seconds passed."""

_LOOK_EVERY_S, _SHOW_EVERY_S = 1.0, 0.25


class Side(Record, frozen=True, kw_only=True):
    """The reads or the writes of a run. `moved_blocks`: with those before blocks count; `latencies`: nanoseconds."""

    moved_blocks: int
    latencies: Histogram


class Timed(Record, frozen=True, kw_only=True):
    """One run, from where blocks count to its end.

    `sides`: what was read and what was written; `series_gbs`: GB/s in each whole second; `by_thread`: blocks that each
    thread moved; `mismatch`: the first block that was not as written; `paused_seconds`: of the run, in which a process of
    it did not run; `slept_seconds`: of the machine, which are not in it.
    """

    block_bytes: int
    seconds: float
    cpu_seconds: float
    series_gbs: tuple[float, ...]
    sides: dict[Direction, Side]
    by_thread: tuple[int, ...] = ()
    mismatch: Mismatch | None = None
    paused_seconds: float = 0.0
    slept_seconds: float = 0.0

    @property
    def blocks(self) -> int:
        return sum(side.latencies.total for side in self.sides.values())

    @property
    def bytes(self) -> int:
        return self.blocks * self.block_bytes

    @property
    def latencies(self) -> Histogram:
        return merged(side.latencies for side in self.sides.values())


Begin = Callable[[], int]
"""Called when all lanes are open: gives the moment at which the run begins (time.perf_counter_ns)."""


_Drive = Callable[[], None]
"""Moves all blocks once, or over and over until it is time to stop."""

_Open = Callable[[], contextlib.AbstractContextManager[_Drive]]


class _Hooks(NamedTuple):
    """What ties a run to whoever started it. `look_every_s`: how often blocks are counted, which costs CPU, too."""

    progress: Progress | None
    look_every_s: float
    stop: Stop | None = None
    begin: Begin = time.perf_counter_ns


def _look_every_s(progress: Progress | None) -> float:
    return _LOOK_EVERY_S if progress is None else _SHOW_EVERY_S


class _Timing(NamedTuple):
    seconds: float | None
    ramp_seconds: float
    patience_s: float


class _Crew:
    """`workers`: that carry the blocks of so many threads; `seconds`: how long, or None for every block once."""

    def __init__(self, workers: int, threads: int, timing: _Timing, hooks: _Hooks) -> None:
        self.seconds = timing.seconds
        self.ramp_ns = int(timing.ramp_seconds * 1e9)
        self.stop = hooks.stop or Stop()
        self._when = hooks.begin
        self.look_every_s = min(hooks.look_every_s, timing.patience_s / 2)
        self.logs = [Log() for _ in range(threads)]
        self.errors: list[BaseException] = []
        self.started = self.counted = self.ended = 0
        self.cpu_seconds: float | None = None
        self.pauses = Pauses(workers)
        self.ready = threading.Barrier(workers + 1, action=self._begin)

    def _begin(self) -> None:
        """Once, when all lanes are open and before any moves a block."""
        self.started = self._when()
        self.counted = self.started + self.ramp_ns
        self.look()
        for log in self.logs:
            log.origin = self.counted
        if self.seconds is not None:
            self.stop.at = self.counted + int(self.seconds * 1e9)

    def look(self) -> float:
        """Begin to count the CPU's time when blocks begin to count; returns seconds until it is worth to look again."""
        ahead = self.counted - time.perf_counter_ns()
        if ahead <= 0 and self.cpu_seconds is None:
            self.cpu_seconds = -_cpu_seconds()
        return min(self.look_every_s, ahead / 1e9) if ahead > 0 else self.look_every_s

    def end(self) -> None:
        self.ended = time.perf_counter_ns()
        self.cpu_seconds = (self.cpu_seconds or 0.0) + _cpu_seconds()


def run(
    engine: Engine,
    jobs: Sequence[Job],
    orders: Sequence[Sequence[int]],
    *,
    seconds: float | None = None,
    ramp_seconds: float = 0.0,
    progress: Progress | None = None,
    patience_s: float = PATIENCE_S,
) -> Timed:
    """Move the blocks of each order, a thread each: once, or over and over for `seconds` after `ramp_seconds`.

    Raises RefusedError for the first block that the system does not move, and where none moves for `patience_s`.
    """
    timing = _Timing(seconds, ramp_seconds, patience_s + 2 * max(job.every_ns for job in jobs) / 1e9)
    slept = slept_seconds()
    timed = _run(engine, jobs, orders, timing, progress)
    return msgspec.structs.replace(timed, slept_seconds=max(0.0, slept_seconds() - slept))


def _run(
    engine: Engine,
    jobs: Sequence[Job],
    orders: Sequence[Sequence[int]],
    timing: _Timing,
    progress: Progress | None,
) -> Timed:
    if engine.forks:  # even one thread alone: a process with a thread that the kernel does not let go of cannot end
        return _forked(engine, jobs, orders, timing, progress)
    return _threads(engine, jobs, orders, timing, _Hooks(progress, _look_every_s(progress)))


def _forked(
    engine: Engine,
    jobs: Sequence[Job],
    orders: Sequence[Sequence[int]],
    timing: _Timing,
    progress: Progress | None,
) -> Timed:
    """A process for each job, up to processes.at_once; beyond that several threads' blocks in each."""
    block, count = jobs[0].block_bytes, processes.at_once(len(jobs))
    began, cpu = time.perf_counter(), 0.0

    def go() -> None:
        nonlocal cpu
        cpu = -_cpu_seconds()

    def work(share: slice, connection: Connection) -> Timed:
        stop = Stop()
        line = processes.Line(connection, stop.now)

        def tell(moved: int, _: float) -> None:
            line.moved(moved // block)

        return _threads(
            engine, jobs[share], orders[share], timing, _Hooks(tell, _look_every_s(progress), stop, line.go)
        )

    def moved(blocks: int) -> None:
        if progress is not None:
            progress(blocks * block, time.perf_counter() - began)

    shares = [slice(number, None, count) for number in range(count)]
    found = processes.together(
        [functools.partial(work, share) for share in shares],
        ended=lambda result: isinstance(result, BaseException) or result.mismatch is not None,
        begin=go,
        moved=moved,
        patience_s=timing.patience_s,
    )
    errors = [result for result in found if isinstance(result, BaseException)]
    if errors:
        raise errors[0]
    return _joined(found, shares, len(jobs), cpu + _cpu_seconds())


def _joined(found: Sequence[Timed], shares: Sequence[slice], threads: int, cpu_seconds: float) -> Timed:
    """The figures of all processes as one; `cpu_seconds`: of the process that watched them."""
    by_thread = [0] * threads
    for timed, share in zip(found, shares, strict=True):
        by_thread[share] = timed.by_thread
    series = itertools.zip_longest(*(timed.series_gbs for timed in found), fillvalue=0.0)
    mismatches = [timed.mismatch for timed in found if timed.mismatch is not None]
    return Timed(
        block_bytes=found[0].block_bytes,
        seconds=max(timed.seconds for timed in found),
        cpu_seconds=sum(timed.cpu_seconds for timed in found) + cpu_seconds,
        series_gbs=tuple(map(sum, series)),
        sides={direction: _side([timed.sides[direction] for timed in found]) for direction in found[0].sides},
        by_thread=tuple(by_thread),
        mismatch=min(mismatches, key=lambda mismatch: mismatch.offset, default=None),
        paused_seconds=max(timed.paused_seconds for timed in found),
    )


def _side(sides: Sequence[Side]) -> Side:
    return Side(
        moved_blocks=sum(side.moved_blocks for side in sides), latencies=merged(side.latencies for side in sides)
    )


def merged(histograms: Iterable[Histogram]) -> Histogram:
    together = Histogram()
    for histogram in histograms:
        together.merge(histogram)
    return together


def _threads(
    engine: Engine,
    jobs: Sequence[Job],
    orders: Sequence[Sequence[int]],
    timing: _Timing,
    hooks: _Hooks,
) -> Timed:
    joined = engine.joined(jobs)
    crew = _Crew(1 if joined else len(jobs), len(jobs), timing, hooks)
    if joined is not None:
        lanes: list[_Open] = [functools.partial(_together, joined, orders, crew)]
    else:
        lanes = [
            functools.partial(_alone, engine, job, order, crew.stop, log)
            for job, order, log in zip(jobs, orders, crew.logs, strict=True)
        ]
    workers = [
        Worker(functools.partial(_work, crew, job, lane))
        for job, lane in zip(
            jobs, lanes, strict=False
        )  # a joined lane stands for all, whose jobs differ in the file only
    ]
    for worker in workers:
        worker.start()
    try:
        with contextlib.suppress(threading.BrokenBarrierError):
            crew.ready.wait(timing.patience_s)
        _watch(crew, workers, jobs[0].block_bytes, progress=hooks.progress, patience_s=timing.patience_s)
        crew.end()
    finally:
        crew.stop.now()
        crew.ready.abort()
        for worker in workers:
            worker.ended(5.0)
    mismatches = [error.mismatch for error in crew.errors if isinstance(error, MismatchError)]
    mismatch = min(mismatches, key=lambda found: found.offset, default=None)
    others = [error for error in crew.errors if not isinstance(error, MismatchError)]
    if others:
        raise _told(others[0], jobs[0])
    return _figures(crew, jobs[0], mismatch)


def _work(crew: _Crew, job: Job, lane: _Open) -> None:
    try:
        if job.cpus:
            os.sched_setaffinity(0, job.cpus)  # of this thread: Linux knows it by 0, too
        with lane() as drive:
            crew.ready.wait(PATIENCE_S)
            while (ahead := min(crew.started + job.after_ns, crew.stop.at) - time.perf_counter_ns()) > 0:
                time.sleep(min(_SHOW_EVERY_S, ahead / 1e9))
            while True:
                drive()
                if crew.seconds is None or time.perf_counter_ns() >= crew.stop.at:
                    return
    except threading.BrokenBarrierError:
        return
    except BaseException as error:  # noqa: BLE001 -- told by the thread that waits
        crew.errors.append(error)
        crew.stop.now()
        crew.ready.abort()


@contextlib.contextmanager
def _together(opened: Callable[[], Joined], orders: Sequence[Sequence[int]], crew: _Crew) -> Iterator[_Drive]:
    lane = opened()
    try:
        yield functools.partial(lane.drive, orders, crew.stop, crew.logs, again=crew.seconds is not None)
    finally:
        lane.close()


@contextlib.contextmanager
def _alone(engine: Engine, job: Job, order: Sequence[int], stop: Stop, log: Log) -> Iterator[_Drive]:
    if job.read_percent is None or (engine.mixes_in_queue and engine.queues and job.iodepth > 1):
        lane = engine.lane(job)
    else:
        reading, writing = engine.lane(job.alone("read")), engine.lane(job.alone("write"))
        if not isinstance(reading, OneAtATime) or not isinstance(writing, OneAtATime):
            raise UsageError(f"{engine.name} does not mix reads and writes in a queue; take --iodepth 1")
        lane = Mixed(job, reading, writing)
    try:
        yield functools.partial(lane.drive, order, stop, log)
    finally:
        lane.close()


def _watch(crew: _Crew, workers: Sequence[Worker], block: int, *, progress: Progress | None, patience_s: float) -> None:
    """Until all have ended. A signal's handler runs here, in the main thread, between two looks."""
    seen, since = -1, time.perf_counter()
    crew.pauses.begin()
    for worker in workers:
        ended = False
        while not ended:
            ended = worker.ended(wait_s := crew.look())
            since += crew.pauses.after(wait_s)
            blocks = sum(log.blocks for log in crew.logs)
            if blocks != seen:
                seen, since = blocks, time.perf_counter()
            elif time.perf_counter() - since > patience_s:
                raise RefusedError(
                    f"no transfer of {words(block)} was completed for {patience_s:g} s; is the storage still there?"
                )
            if progress is not None:
                progress(blocks * block, (time.perf_counter_ns() - crew.started) / 1e9)


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _told(error: BaseException, job: Job) -> BaseException:
    if isinstance(error, TransferError):
        what = f"{job.direction} of {words(job.block_bytes)} at offset {error.offset}"
        if error.error is None:
            return RefusedError(f"{what}: only {error.moved} bytes of it were moved{_why_short(job, error)}")
        return refused(what, error.error)
    if isinstance(error, OSError):
        return refused(f"starting to {job.direction}", error)
    if isinstance(error, MemoryError):
        return RefusedError(f"no memory for {job.iodepth} blocks of {words(job.block_bytes)} a thread")
    return error


def _why_short(job: Job, error: TransferError) -> str:
    """What the system says to the rest of it: a full disk first writes what it can."""
    rest, offset = job.block_bytes - error.moved, error.offset + error.moved
    try:
        facts = os.fstat(job.descriptor)
        if stat.S_ISREG(facts.st_mode) and facts.st_size < offset + rest:
            return f": the file ends at {facts.st_size}, others made it shorter"
        if job.direction == "write":
            within("the rest", lambda: os.pwritev(job.descriptor, [mmap.mmap(-1, rest)], offset))
    except (OSError, RefusedError) as why:
        return f": {refused('then', why) if isinstance(why, OSError) else why}"
    return ""


def _figures(crew: _Crew, job: Job, mismatch: Mismatch | None) -> Timed:
    for log in crew.logs:
        log.fold()
    beside = [log.writes for log in crew.logs if log.writes is not None]
    logs: dict[Direction, list[Log]] = {job.direction: crew.logs}
    if job.read_percent is not None:
        logs = {"read": crew.logs, "write": beside}
    per_second: dict[int, int] = {}
    for log in itertools.chain(*logs.values()):
        for second, done in log.done_in_second.items():
            per_second[second] = per_second.get(second, 0) + done
    seconds = max(0, crew.ended - crew.counted) / 1e9
    return Timed(
        block_bytes=job.block_bytes,
        seconds=seconds,
        cpu_seconds=crew.cpu_seconds or 0.0,
        series_gbs=tuple(per_second.get(second, 0) * job.block_bytes / 1e9 for second in range(int(seconds))),
        sides={
            direction: Side(
                moved_blocks=sum(log.folded for log in some), latencies=merged(log.histogram for log in some)
            )
            for direction, some in logs.items()
        },
        by_thread=tuple(log.folded for log in crew.logs),
        mismatch=mismatch,
        paused_seconds=crew.pauses.seconds,
    )


def flush(descriptor: int, path: str) -> float:
    """Seconds that fsync took. An error that the storage kept back until now is told here."""
    started = time.perf_counter()
    try:
        within(f"{path}: fsync", lambda: os.fsync(descriptor), 300.0)
    except OSError as error:
        raise refused(f"{path}: fsync", error) from error
    return time.perf_counter() - started

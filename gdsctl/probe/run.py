"""Threads at work, each in a process of its own where the engine allows it: start together, stop together."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection

from gdsctl.errors import RefusedError
from gdsctl.probe import processes
from gdsctl.probe.deadline import PATIENCE_S, within
from gdsctl.probe.engine import Engine, Job, Lane, Log, MismatchError, Stop, TransferError
from gdsctl.probe.histogram import Histogram
from gdsctl.probe.pattern import Mismatch
from gdsctl.probe.sizes import words
from gdsctl.probe.target import refused
from gdsctl.record import Record

Progress = Callable[[int, float], None]
"""Told now and then: bytes moved and seconds passed."""

_LOOK_EVERY_S = 0.2
_MOST_PROCESSES = 64


class Timed(Record, frozen=True, kw_only=True):
    """One run. `series_gbs`: GB/s in each whole second; `by_thread`: blocks that each thread moved.

    `mismatch`: the first block that was not as written.
    """

    bytes: int
    blocks: int
    seconds: float
    cpu_seconds: float
    series_gbs: tuple[float, ...]
    by_thread: tuple[int, ...] = ()
    mismatch: Mismatch | None = None


Begin = Callable[[], int]
"""Called when all lanes are open: gives the moment at which the run begins (time.perf_counter_ns)."""


class _Crew:
    """`seconds`: how long, or None for every block once."""

    def __init__(self, threads: int, seconds: float | None, stop: Stop, begin: Begin) -> None:
        self.seconds = seconds
        self.stop = stop
        self._when = begin
        self.logs = [Log() for _ in range(threads)]
        self.errors: list[BaseException] = []
        self.started = self.ended = 0
        self.cpu_seconds = 0.0
        self.ready = threading.Barrier(threads + 1, action=self._begin)

    def _begin(self) -> None:
        """Once, when all lanes are open and before any moves a block."""
        self.started = self._when()
        self.cpu_seconds = -_cpu_seconds()
        for log in self.logs:
            log.origin = self.started
        if self.seconds is not None:
            self.stop.at = self.started + int(self.seconds * 1e9)

    def end(self) -> None:
        self.ended = time.perf_counter_ns()
        self.cpu_seconds += _cpu_seconds()


def run(
    engine: Engine,
    jobs: Sequence[Job],
    orders: Sequence[Sequence[int]],
    *,
    seconds: float | None = None,
    progress: Progress | None = None,
    patience_s: float = PATIENCE_S,
) -> tuple[Timed, Histogram]:
    """Move the blocks of each order, a thread each: once, or over and over for `seconds`.

    Raises RefusedError for the first block that the system does not move, and where none moves for `patience_s`.
    """
    if engine.forks and len(jobs) > 1:
        return _forked(engine, jobs, orders, seconds=seconds, progress=progress, patience_s=patience_s)
    stop = Stop()
    return _threads(engine, jobs, orders, stop, seconds=seconds, progress=progress, patience_s=patience_s)


def _forked(
    engine: Engine,
    jobs: Sequence[Job],
    orders: Sequence[Sequence[int]],
    *,
    seconds: float | None,
    progress: Progress | None,
    patience_s: float,
) -> tuple[Timed, Histogram]:
    """A process for each job, up to a number; beyond it several threads in each."""
    block, count = jobs[0].block_bytes, min(len(jobs), _MOST_PROCESSES)
    began, cpu = time.perf_counter(), -_cpu_seconds()

    def work(share: slice, connection: Connection) -> tuple[Timed, Histogram]:
        stop = Stop()
        line = processes.Line(connection, stop.now)

        def tell(moved: int, _: float) -> None:
            line.moved(moved // block)

        return _threads(
            engine,
            jobs[share],
            orders[share],
            stop,
            seconds=seconds,
            progress=tell,
            patience_s=patience_s,
            begin=line.go,
        )

    def moved(blocks: int) -> None:
        if progress is not None:
            progress(blocks * block, time.perf_counter() - began)

    shares = [slice(number, None, count) for number in range(count)]
    found = processes.together(
        [functools.partial(work, share) for share in shares],
        ended=lambda result: isinstance(result, BaseException) or result[0].mismatch is not None,
        moved=moved,
        patience_s=patience_s,
    )
    errors = [result for result in found if isinstance(result, BaseException)]
    if errors:
        raise errors[0]
    return _joined(found, shares, len(jobs), cpu + _cpu_seconds())


def _joined(
    found: Sequence[tuple[Timed, Histogram]], shares: Sequence[slice], threads: int, cpu_seconds: float
) -> tuple[Timed, Histogram]:
    """The figures of all processes as one; `cpu_seconds`: of the process that watched them."""
    histogram, by_thread = Histogram(), [0] * threads
    for (timed, part), share in zip(found, shares, strict=True):
        histogram.merge(part)
        by_thread[share] = timed.by_thread
    each = [timed for timed, _ in found]
    seconds = max(timed.seconds for timed in each)
    series = itertools.zip_longest(*(timed.series_gbs for timed in each), fillvalue=0.0)
    mismatches = [timed.mismatch for timed in each if timed.mismatch is not None]
    joined = Timed(
        bytes=sum(timed.bytes for timed in each),
        blocks=histogram.total,
        seconds=seconds,
        cpu_seconds=sum(timed.cpu_seconds for timed in each) + cpu_seconds,
        series_gbs=tuple(round(sum(second), 4) for second in series),
        by_thread=tuple(by_thread),
        mismatch=min(mismatches, key=lambda mismatch: mismatch.offset, default=None),
    )
    return joined, histogram


def _threads(
    engine: Engine,
    jobs: Sequence[Job],
    orders: Sequence[Sequence[int]],
    stop: Stop,
    *,
    seconds: float | None,
    progress: Progress | None,
    patience_s: float,
    begin: Begin = time.perf_counter_ns,
) -> tuple[Timed, Histogram]:
    crew = _Crew(len(jobs), seconds, stop, begin)
    workers = [
        threading.Thread(target=_work, args=(crew, engine, job, order, log), daemon=True)
        for job, order, log in zip(jobs, orders, crew.logs, strict=True)
    ]
    for worker in workers:
        worker.start()
    try:
        with contextlib.suppress(threading.BrokenBarrierError):
            crew.ready.wait(patience_s)
        _watch(crew, workers, jobs[0].block_bytes, progress=progress, patience_s=patience_s)
        crew.end()
    finally:
        crew.stop.now()
        crew.ready.abort()
        for worker in workers:
            worker.join(5.0)
    mismatches = [error.mismatch for error in crew.errors if isinstance(error, MismatchError)]
    mismatch = min(mismatches, key=lambda found: found.offset, default=None)
    others = [error for error in crew.errors if not isinstance(error, MismatchError)]
    if others:
        raise _told(others[0], jobs[0])
    return _figures(crew, jobs[0].block_bytes, mismatch)


def _work(crew: _Crew, engine: Engine, job: Job, order: Sequence[int], log: Log) -> None:
    try:
        with _lane(engine, job) as lane:
            crew.ready.wait(PATIENCE_S)
            while True:
                lane.drive(order, crew.stop, log)
                if crew.seconds is None or time.perf_counter_ns() >= crew.stop.at:
                    return
    except threading.BrokenBarrierError:
        return
    except BaseException as error:  # noqa: BLE001 -- told by the thread that waits
        crew.errors.append(error)
        crew.stop.now()
        crew.ready.abort()


@contextlib.contextmanager
def _lane(engine: Engine, job: Job) -> Iterator[Lane]:
    lane = engine.lane(job)
    try:
        yield lane
    finally:
        lane.close()


def _watch(
    crew: _Crew, workers: Sequence[threading.Thread], block: int, *, progress: Progress | None, patience_s: float
) -> None:
    """Until all have ended. A signal's handler runs here, in the main thread, between two looks."""
    seen, since = -1, time.perf_counter()
    for worker in workers:
        while worker.is_alive():
            worker.join(_LOOK_EVERY_S)
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
            return RefusedError(f"{what}: only {error.moved} bytes of it were moved")
        return refused(what, error.error)
    if isinstance(error, OSError):
        return refused(f"starting to {job.direction}", error)
    if isinstance(error, MemoryError):
        return RefusedError(f"no memory for {job.iodepth} blocks of {words(job.block_bytes)} a thread")
    return error


def _figures(crew: _Crew, block: int, mismatch: Mismatch | None) -> tuple[Timed, Histogram]:
    histogram = Histogram()
    per_second: dict[int, int] = {}
    for log in crew.logs:
        log.fold()
        histogram.merge(log.histogram)
        for second, done in log.done_in_second.items():
            per_second[second] = per_second.get(second, 0) + done
    seconds = (crew.ended - crew.started) / 1e9
    timed = Timed(
        bytes=histogram.total * block,
        blocks=histogram.total,
        seconds=seconds,
        cpu_seconds=crew.cpu_seconds,
        series_gbs=tuple(round(per_second.get(second, 0) * block / 1e9, 4) for second in range(int(seconds))),
        by_thread=tuple(log.folded for log in crew.logs),
        mismatch=mismatch,
    )
    return timed, histogram


def flush(descriptor: int, path: str) -> float:
    """Seconds that fsync took. An error that the storage kept back until now is told here."""
    started = time.perf_counter()
    try:
        within(f"{path}: fsync", lambda: os.fsync(descriptor), 300.0)
    except OSError as error:
        raise refused(f"{path}: fsync", error) from error
    return time.perf_counter() - started

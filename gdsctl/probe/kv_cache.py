"""A KV cache's traffic on host memory: one file for each chunk; sessions are stored once and retrieved in other orders.

What LMCache and its like do to a file system at their second level, without the model. Requests come one at a time. Each
is for all chunks of one session, which the threads share: open, one transfer, close.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from gdsctl.errors import UsageError
from gdsctl.model.node import Report
from gdsctl.probe.counters import Counters, Reading, cached_bytes
from gdsctl.probe.deadline import within
from gdsctl.probe.engine import Direction, Job, OneAtATime, Uncounted
from gdsctl.probe.figures import environment, latency, mount_of, pauses, predicted, stability
from gdsctl.probe.offsets import order
from gdsctl.probe.posix import HostBuffer
from gdsctl.probe.report import ProbeReport, RequestRow
from gdsctl.probe.request import Request, check, require_memory
from gdsctl.probe.run import Progress, Timed, run
from gdsctl.probe.sizes import words
from gdsctl.probe.target import held, no_direct, own_folder, require_space
from gdsctl.probe.verdict import Observed, judge
from gdsctl.source.base import Source, printable

THREADS = (1, 2, 4, 8)
SESSIONS = 8
_CHUNKS = 8
"""Of a session at least, where nothing else is asked for and there are so many: its threads share them."""


class _SessionEngine(Uncounted):
    """Its blocks are sessions; an offset is where a session, or a chunk, would stand if all were one file."""

    name = "posix"
    how = "open, preadv/pwritev, close for each chunk"
    queues = False
    why_no_queue = "requests come one at a time"

    def __init__(self, folder: str, chunk_bytes: int, threads: int) -> None:
        self._folder = folder
        self._chunk_bytes = chunk_bytes
        self._threads = threads

    def lane(self, job: Job) -> OneAtATime:
        return _SessionLane(job, HostBuffer(job.block_bytes), self._folder, self._chunk_bytes, self._threads)


class _SessionLane(OneAtATime):
    def __init__(self, job: Job, buffer: HostBuffer, folder: str, chunk_bytes: int, threads: int) -> None:
        self._folder = folder
        self._pool = ThreadPoolExecutor(threads)
        self._chunks = range(0, job.block_bytes, chunk_bytes)
        self._views = [buffer.view[low : low + chunk_bytes] for low in self._chunks]
        self._flags = os.O_RDONLY if job.direction == "read" else os.O_WRONLY | os.O_CREAT | os.O_EXCL
        self._call = os.preadv if job.direction == "read" else os.pwritev
        super().__init__(job, self._session, buffer)

    def _session(self, offset: int) -> int:
        return sum(self._pool.map(self._chunk, self._views, (offset + low for low in self._chunks)))

    def _chunk(self, view: memoryview, offset: int) -> int:
        path = os.path.join(self._folder, f"{offset:016x}.kv")
        descriptor = os.open(path, self._flags | os.O_DIRECT | os.O_CLOEXEC, 0o600)
        try:
            return self._call(descriptor, [view], 0)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        self._pool.shutdown()
        super().close()


_ENOUGH = 100
"""Requests of which one lies above p99."""


class _Shape:
    """Chunks of `chunk_bytes`, dealt to sessions of equal length; chunks that do not make one up are left out."""

    def __init__(self, request: Request) -> None:
        self.chunk_bytes = request.cases[0].block_bytes
        chunks = request.size_bytes // self.chunk_bytes
        self.sessions = request.sessions or max(1, min(SESSIONS, chunks // _CHUNKS))
        if not 1 <= self.sessions <= chunks:
            raise UsageError(
                f"--sessions must be 1 to {chunks}: --size holds {chunks} chunks of {words(self.chunk_bytes)}"
            )
        self.chunks = chunks // self.sessions * self.sessions
        self.session_bytes = self.chunks // self.sessions * self.chunk_bytes
        require_memory(self.session_bytes)
        self.offsets = range(0, self.sessions * self.session_bytes, self.session_bytes)


def _few(rows: Sequence[RequestRow]) -> tuple[str, ...]:
    """A percentile is the greatest of the values where fewer lie above it than one."""
    least = min(row.requests for row in rows)
    if least >= _ENOUGH:
        return ()
    return (f"percentiles of as few as {least} request{'s' * (least > 1)} tell little: more --sessions or --rounds",)


def probe(request: Request, source: Source, node: Report, *, progress: Progress | None = None) -> ProbeReport:
    """Store and retrieve all sessions with each number of threads. Raises as gdsctl.probe.probe.probe does."""
    if request.engine not in ("auto", "posix"):
        raise UsageError("--workload kv-cache runs on host memory only: --engine posix")
    check(request)
    _only_what_it_does(request)
    if len(request.block_bytes) > 1 or request.iodepth != (1,) or request.rw != "read":
        raise UsageError("--workload kv-cache stores and retrieves chunks of one --bs, one block deep, whatever --rw")
    shape = _Shape(request)
    numbers = request.threads if request.threads != (1,) else THREADS
    rows: list[RequestRow] = []
    mount = mount_of(node, request.path)
    with _folder(request.path, shape.chunks * shape.chunk_bytes) as folder:
        counters = Counters(source, "read", device=_device(folder), mount=mount, blocks=node.block, mounts=node.mounts)
        before = after = Reading()
        for threads in numbers:
            engine = _SessionEngine(folder, shape.chunk_bytes, threads)
            within(folder, functools.partial(_empty, folder), 300.0)
            rows.append(_row("store", threads, _step(engine, request, shape, "write", progress)))
            before = counters.read()
            timed = _step(engine, request, shape, "read", progress)
            after = counters.read()
            rows.append(_row("retrieve", threads, timed))
        added = after.since(before).with_cache(_cached(folder))
    last = rows[-1]
    seen = Observed(
        engine="posix",
        direction="read",
        bytes=timed.bytes,
        blocks=timed.blocks,
        distinct_bytes=shape.chunks * shape.chunk_bytes,
        counters=added,
        below=counters.below,
    )
    taken = judge(seen)
    return ProbeReport(
        tool=node.tool,
        engine="posix",
        engine_because="the workload kv-cache runs on host memory",
        carried_by=engine.how,
        path=printable(request.path),
        file=f"{shape.chunks} files in a folder of their own, removed at the end",
        direct={"mixed": False, "unknown": None}.get(taken.verdict, True),
        rw="read",
        block_bytes=shape.chunk_bytes,
        threads=last.threads,
        iodepth=1,
        files=shape.chunks,
        bytes=timed.bytes,
        seconds=last.seconds,
        throughput_gbs=last.throughput_gbs,
        iops=round(timed.bytes / shape.chunk_bytes / last.seconds, 1),
        latency_us=last.latency_us,
        cpu_seconds_per_gb=round(timed.cpu_seconds / timed.bytes * 1e9, 4),
        stability=stability(timed.series_gbs),
        path_taken=taken,
        prediction=predicted(node, mount, (), last.throughput_gbs, to_gpu=False),
        requests=tuple(rows),
        notes=(
            f"{shape.sessions} session{'s' * (shape.sessions > 1)} of {words(shape.session_bytes)}{' each' * (shape.sessions > 1)}, which one request is for",
            *_few(rows),
            "the figures outside the table are those of its last row",
            *pauses(timed),
        ),
        environment=environment(node, mount),
    )


def _only_what_it_does(request: Request) -> None:
    given = {
        "--duration": request.seconds is not None,
        "--rate": request.rate_bytes is not None,
        "--ramp": request.ramp_seconds,
        "--warmup": request.warmup_seconds,
        "--repeat": request.repeat > 1,
        "--files": request.files > 1,
        "--numa": request.numa != "auto",
        "--i-know-this-destroys-data": request.destroys is not None,
    }
    if wrong := [name for name, value in given.items() if value]:
        raise UsageError(f"{', '.join(wrong)}: not with --workload kv-cache, which has --sessions and --rounds")


def _step(
    engine: _SessionEngine, request: Request, shape: _Shape, direction: Direction, progress: Progress | None
) -> Timed:
    job = Job(
        descriptor=-1,
        direction=direction,
        block_bytes=shape.session_bytes,
        seed=request.seed,
        checked=direction == "write",
    )
    orders: Sequence[Sequence[int]] = [shape.offsets]
    if direction == "read":
        rounds = [order(shape.offsets, shuffled=True, seed=request.seed + number) for number in range(request.rounds)]
        orders = [list(itertools.chain(*rounds))]
    return run(engine, [job], orders, progress=progress)


def _row(operation: str, threads: int, timed: Timed) -> RequestRow:
    """Its seconds are those in which a request was under way; filling buffers with contents is not."""
    seconds = timed.latencies.sum / 1e9
    return RequestRow(
        operation=operation,
        threads=threads,
        requests=timed.blocks,
        seconds=round(seconds, 6),
        throughput_gbs=round(timed.bytes / seconds / 1e9, 4),
        latency_us=latency(timed.latencies),
    )


@contextlib.contextmanager
def _folder(path: str, size_bytes: int) -> Iterator[str]:
    """A folder of our own, on a file system that does direct I/O and has the room."""
    if not within(path, lambda: os.path.isdir(path)):
        raise UsageError(f"{path}: the workload kv-cache needs a directory")
    within(path, lambda: require_space(path, size_bytes))
    with own_folder(path) as folder:
        try:
            with held(os.path.join(folder, "direct"), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_DIRECT):
                pass
        except OSError as error:
            raise no_direct(path, error) from error
        yield folder


def _device(folder: str) -> tuple[int, int]:
    facts = os.stat(folder)
    return os.major(facts.st_dev), os.minor(facts.st_dev)


def _empty(folder: str) -> None:
    for name in os.listdir(folder):
        os.unlink(os.path.join(folder, name))


def _cached(folder: str) -> int | None:
    total = 0
    for name in os.listdir(folder):
        with held(os.path.join(folder, name), os.O_RDONLY) as descriptor:
            cached = cached_bytes(descriptor, os.fstat(descriptor).st_size)
        if cached is None:
            return None
        total += cached
    return total

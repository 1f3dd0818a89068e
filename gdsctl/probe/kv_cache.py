"""A KV cache's traffic on host memory: one file for each chunk, stored once, retrieved once in another order.

What LMCache and its like do to a file system at their second level, without the model: open, one transfer, close.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import tempfile
from collections.abc import Iterator

from gdsctl.errors import UsageError
from gdsctl.model.node import Report
from gdsctl.probe.counters import Counters, Reading, cached_bytes
from gdsctl.probe.deadline import within
from gdsctl.probe.engine import Direction, Job, OneAtATime, Uncounted
from gdsctl.probe.figures import environment, latency, mount_of, predicted, stability
from gdsctl.probe.offsets import order, regions
from gdsctl.probe.posix import HostBuffer
from gdsctl.probe.report import ProbeReport, RequestRow
from gdsctl.probe.request import Request, check
from gdsctl.probe.run import Progress, Timed, run
from gdsctl.probe.sizes import words
from gdsctl.probe.target import no_direct, refused, require_space
from gdsctl.probe.verdict import Observed, judge
from gdsctl.source.base import Source

THREADS = (1, 2, 4, 8)


class _ChunkEngine(Uncounted):
    """Offsets are those that the chunks would have in one file; each names a file of its own."""

    name = "posix"
    how = "open, preadv/pwritev, close for each chunk"
    forks = True
    queues = False
    why_no_queue = "each thread has one request at a time"

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def path(self, offset: int) -> str:
        return os.path.join(self._folder, f"{offset:016x}.kv")

    def lane(self, job: Job) -> OneAtATime:
        buffer = HostBuffer(job.block_bytes)
        transfer = self._retrieve if job.direction == "read" else self._store
        return OneAtATime(job, functools.partial(transfer, [buffer.view]), buffer)

    def _store(self, views: list[memoryview], offset: int) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_DIRECT | os.O_CLOEXEC
        descriptor = os.open(self.path(offset), flags, 0o600)
        try:
            return os.pwritev(descriptor, views, 0)
        finally:
            os.close(descriptor)

    def _retrieve(self, views: list[memoryview], offset: int) -> int:
        descriptor = os.open(self.path(offset), os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
        try:
            return os.preadv(descriptor, views, 0)
        finally:
            os.close(descriptor)


def probe(request: Request, source: Source, node: Report, *, progress: Progress | None = None) -> ProbeReport:
    """Store and retrieve all chunks with each number of threads. Raises as gdsctl.probe.probe.probe does."""
    if request.engine not in ("auto", "posix"):
        raise UsageError("--workload kv-cache runs on host memory only: --engine posix")
    check(request)
    if request.sweeps or request.mixed:
        raise UsageError("--workload kv-cache stores and retrieves chunks of one --bs; it has its own thread counts")
    chunk_bytes = request.cases[0].block_bytes
    chunks = request.size_bytes // chunk_bytes
    rows: list[RequestRow] = []
    mount = mount_of(node, request.path)
    with _folder(request.path, chunks * chunk_bytes) as folder:
        engine = _ChunkEngine(folder)
        counters = Counters(source, "read", device=_device(folder), mount=mount, blocks=node.block)
        before = after = Reading()
        timed: Timed | None = None
        for threads in (count for count in THREADS if count <= chunks):
            within(folder, functools.partial(_empty, folder), 300.0)
            rows.append(_row("store", threads, _step(engine, request, threads, "write", progress)))
            before = counters.read()
            timed = _step(engine, request, threads, "read", progress)
            after = counters.read()
            rows.append(_row("retrieve", threads, timed))
        added = after.since(before).with_cache(_cached(folder))
    if timed is None:
        raise UsageError(f"--size holds no chunk of {words(chunk_bytes)}")
    last = rows[-1]
    seen = Observed(
        engine="posix",
        direction="read",
        bytes=timed.bytes,
        blocks=timed.blocks,
        distinct_bytes=chunks * chunk_bytes,
        counters=added,
    )
    taken = judge(seen)
    return ProbeReport(
        tool=node.tool,
        engine="posix",
        engine_because="the workload kv-cache runs on host memory",
        carried_by=engine.how,
        path=request.path,
        file=f"{chunks} files in a folder of their own, removed at the end",
        direct={"mixed": False, "unknown": None}.get(taken.verdict, True),
        rw="read",
        block_bytes=chunk_bytes,
        threads=last.threads,
        iodepth=1,
        bytes=timed.bytes,
        seconds=last.seconds,
        throughput_gbs=last.throughput_gbs,
        iops=round(timed.blocks / timed.seconds, 1),
        latency_us=last.latency_us,
        cpu_seconds_per_gb=round(timed.cpu_seconds / timed.bytes * 1e9, 4),
        stability=stability(timed),
        path_taken=taken,
        prediction=predicted(node, mount, (), last.throughput_gbs, to_gpu=False),
        requests=tuple(rows),
        notes=("the figures outside the table are those of its last row",),
        environment=environment(node, mount),
    )


def _step(
    engine: _ChunkEngine, request: Request, threads: int, direction: Direction, progress: Progress | None
) -> Timed:
    block = request.cases[0].block_bytes
    job = Job(
        descriptor=-1,
        direction=direction,
        block_bytes=block,
        seed=request.seed,
        checked=direction == "write",
    )
    parts = regions(request.size_bytes, block, threads)
    orders = [order(part, shuffled=direction == "read", seed=request.seed + at) for at, part in enumerate(parts)]
    return run(engine, [job] * threads, orders, progress=progress)


def _row(operation: str, threads: int, timed: Timed) -> RequestRow:
    return RequestRow(
        operation=operation,
        threads=threads,
        requests=timed.blocks,
        seconds=round(timed.seconds, 6),
        throughput_gbs=round(timed.bytes / timed.seconds / 1e9, 4),
        latency_us=latency(timed.latencies),
    )


@contextlib.contextmanager
def _folder(path: str, size_bytes: int) -> Iterator[str]:
    """A folder of our own inside `path`, gone with all that is in it however the block ends; but for SIGKILL."""
    if not within(path, lambda: os.path.isdir(path)):
        raise UsageError(f"{path}: the workload kv-cache needs a directory")
    within(path, lambda: require_space(path, size_bytes))
    try:
        folder = within(path, lambda: tempfile.mkdtemp(prefix=".gdsctl-probe-", dir=path))
    except OSError as error:
        raise refused(path, error) from error
    try:
        try:
            os.close(os.open(os.path.join(folder, "direct"), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_DIRECT, 0o600))
        except OSError as error:
            raise no_direct(path, error) from error
        yield folder
    finally:
        within(folder, lambda: shutil.rmtree(folder, ignore_errors=True), 300.0)


def _device(folder: str) -> tuple[int, int]:
    facts = os.stat(folder)
    return os.major(facts.st_dev), os.minor(facts.st_dev)


def _empty(folder: str) -> None:
    for name in os.listdir(folder):
        os.unlink(os.path.join(folder, name))


def _cached(folder: str) -> int | None:
    total = 0
    for name in os.listdir(folder):
        descriptor = os.open(os.path.join(folder, name), os.O_RDONLY)
        try:
            held = cached_bytes(descriptor, os.fstat(descriptor).st_size)
        finally:
            os.close(descriptor)
        if held is None:
            return None
        total += held
    return total

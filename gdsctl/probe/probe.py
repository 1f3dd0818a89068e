"""One probe from beginning to end: a file, an engine, the run, the evidence, the comparison."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import statistics
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from gdsctl.data import filesystems
from gdsctl.errors import RefusedError, UsageError
from gdsctl.model.devices import Mount
from gdsctl.model.judgement import Route
from gdsctl.model.node import Report
from gdsctl.probe import choose
from gdsctl.probe.counters import Counters
from gdsctl.probe.engine import Direction, Engine, Job
from gdsctl.probe.histogram import Histogram
from gdsctl.probe.offsets import order, regions
from gdsctl.probe.posix import PosixEngine
from gdsctl.probe.report import Latency, Prediction, ProbeReport, Stability, SweepRow, Verified
from gdsctl.probe.run import Progress, Timed, flush, run
from gdsctl.probe.sizes import words
from gdsctl.probe.target import Target, opened
from gdsctl.probe.verdict import Observed, PathTaken, judge
from gdsctl.record import Record
from gdsctl.source.base import Source

ReadWrite = Literal["read", "write", "randread", "randwrite"]

SWEEP = (4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20)
"""Block sizes of a sweep: what fio, gdsio and KV caches are commonly quoted at."""
SWEEP_SECONDS = 3.0

_LAYOUT_BLOCK = 1 << 20
_SMALLEST, _LARGEST = 512, 64 << 20
_MOST_THREADS, _MOST_DEPTH = 1024, 4096
_STEADY_SECONDS = 3
_MOST_LOG_LINES = 5


class Request(Record, frozen=True, kw_only=True):
    """What was asked for. `seconds` None: every block once; `gpus`: indices, empty for the first, None for all."""

    path: str
    engine: str = "auto"
    rw: ReadWrite = "read"
    block_bytes: int = 1 << 20
    size_bytes: int = 1 << 30
    threads: int = 1
    iodepth: int = 1
    seconds: float | None = None
    warmup_seconds: float = 0.0
    gpus: tuple[int, ...] | None = ()
    verify: bool = False
    allow_existing: bool = False
    strict: bool = False
    sweep: bool = False
    seed: int = 0

    @property
    def direction(self) -> Direction:
        return "read" if self.rw.endswith("read") else "write"

    @property
    def shuffled(self) -> bool:
        return self.rw.startswith("rand")

    @property
    def blocks(self) -> tuple[int, ...]:
        """Block sizes to run."""
        if not self.sweep:
            return (self.block_bytes,)
        return tuple(block for block in SWEEP if block * self.threads <= self.size_bytes)


class _Setting(NamedTuple):
    request: Request
    chosen: choose.Chosen
    target: Target
    source: Source
    node: Report
    mount: Mount | None


class _Figures(Record, frozen=True, kw_only=True):
    block_bytes: int
    timed: Timed
    latency: Latency
    taken: PathTaken
    fsync_seconds: float | None
    verified: Verified | None


def check(request: Request) -> None:
    """Raises UsageError for what cannot be run, RefusedError for what memory does not hold."""
    if not _SMALLEST <= request.block_bytes <= _LARGEST or request.block_bytes % _SMALLEST:
        raise UsageError(f"--bs must be a multiple of 512 between 512 and 64M, not {request.block_bytes}")
    if not 1 <= request.threads <= _MOST_THREADS:
        raise UsageError(f"--threads must be 1 to {_MOST_THREADS}")
    if not 1 <= request.iodepth <= _MOST_DEPTH:
        raise UsageError(f"--iodepth must be 1 to {_MOST_DEPTH}")
    if request.seconds is not None and not 0 < request.seconds <= 86400:
        raise UsageError("--duration must be more than 0 and at most 86400 seconds")
    if not 0 <= request.warmup_seconds <= 86400:
        raise UsageError("--warmup must be 0 to 86400 seconds")
    if not request.blocks or request.size_bytes < request.block_bytes * request.threads:
        raise UsageError(f"--size is less than one block of --bs for each of {request.threads} threads")
    if request.verify and request.allow_existing:
        raise UsageError("--verify needs contents that the probe wrote; it does not go with --allow-existing")
    memory = max(request.blocks) * request.threads * request.iodepth
    if memory > os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2:
        raise RefusedError(f"{words(memory)} of buffers are more than half of the memory that is free")


def probe(request: Request, source: Source, node: Report, *, progress: Progress | None = None) -> ProbeReport:
    """Run it. Raises UsageError, RefusedError (the system refused) and UndecidedError (no such engine here)."""
    check(request)
    with contextlib.ExitStack() as stack:
        chosen = choose.engine(request.engine, node, iodepth=request.iodepth, gpus=request.gpus, strict=request.strict)
        engine = chosen.engine
        stack.callback(engine.close)
        size = request.size_bytes // max(request.blocks) * max(request.blocks)
        target = stack.enter_context(
            opened(
                request.path,
                size,
                writes=request.direction == "write",
                allow_existing=request.allow_existing,
                block_bytes=max(request.blocks),
                introduce=engine.introduce,
            )
        )
        setting = _Setting(request, chosen, target, source, node, mount_of(node, request.path))
        if target.own and request.direction == "read":
            lay_out(target, request, progress)
        return _report(setting, [_measure(setting, block, progress) for block in request.blocks])


def lay_out(target: Target, request: Request, progress: Progress | None) -> None:
    """Write every block of the file, so that reads find data and not holes, and flush it to the storage."""
    block = min(request.blocks)
    large = block * max(1, _LAYOUT_BLOCK // block)
    job = Job(descriptor=target.descriptor, direction="write", block_bytes=large, seed=request.seed, checked=True)
    whole = target.size_bytes // large * large
    engine = PosixEngine(1)
    parts = [part for part in regions(whole, large, 2) if part]
    if parts:
        run(engine, [job] * len(parts), parts, progress=progress)
    if whole < target.size_bytes:
        small = Job(descriptor=target.descriptor, direction="write", block_bytes=block, seed=request.seed, checked=True)
        run(engine, [small], [range(whole, target.size_bytes, block)])
    flush(target.descriptor, target.path)


def _measure(setting: _Setting, block: int, progress: Progress | None) -> _Figures:
    request, chosen, target, source, node, mount = setting
    engine = chosen.engine
    lanes, depth = request.threads, request.iodepth
    if depth > 1 and not engine.queues:  # no queue here: as many more threads keep as many blocks under way
        lanes, depth = lanes * depth, 1
    lanes = min(lanes, target.size_bytes // block)
    gpus = chosen.gpus
    jobs = [
        Job(
            descriptor=target.descriptor,
            direction=request.direction,
            block_bytes=block,
            iodepth=depth,
            seed=request.seed,
            checked=request.verify,
            gpu=gpus[lane % len(gpus)] if gpus else None,
        )
        for lane in range(lanes)
    ]
    orders = [
        order(region, shuffled=request.shuffled, seed=request.seed + lane)
        for lane, region in enumerate(regions(target.size_bytes, block, lanes))
    ]
    if request.warmup_seconds:
        run(engine, jobs, orders, seconds=request.warmup_seconds)
    counters = Counters(source, request.direction, device=target.device, mount=mount, blocks=node.block)
    seconds = request.seconds or (SWEEP_SECONDS if request.sweep else None)
    before = counters.read(target.descriptor, target.size_bytes)
    if target.own:
        before = before.with_cache(0)
    engine.begin()
    timed, histogram = run(engine, jobs, orders, seconds=seconds, progress=progress)
    fsync_seconds = flush(target.descriptor, target.path) if request.direction == "write" else None
    after = counters.read(target.descriptor, target.size_bytes)
    if not timed.blocks:
        raise RefusedError("not one block was moved in the time given; give more --duration")
    seen = Observed(
        engine="posix" if engine.name == "posix" else "bounce" if engine.name == "bounce" else "cufile",
        direction=request.direction,
        bytes=timed.bytes,
        blocks=timed.blocks,
        distinct_bytes=min(timed.bytes, target.size_bytes),
        direct=bool(fcntl.fcntl(target.descriptor, fcntl.F_GETFL) & os.O_DIRECT),
        counters=after.since(before),
        compat_allowed=engine.compat_allowed,
        c2c=_c2c(node, gpus),
        user_rdma=_user_rdma(mount),
        cufile=engine.counts(request.direction),
    )
    return _Figures(
        block_bytes=block,
        timed=timed,
        latency=latency(histogram),
        taken=judge(seen),
        fsync_seconds=fsync_seconds,
        verified=_verified(request, engine, jobs, orders, timed) if request.verify else None,
    )


def _verified(
    request: Request, engine: Engine, jobs: Sequence[Job], orders: Sequence[Sequence[int]], timed: Timed
) -> Verified:
    """Reads were compared as they came; what was written is read back and compared now, with the same engine."""
    checked, mismatch = timed.bytes, timed.mismatch
    if request.direction == "write":
        written = [order[:count] for order, count in zip(orders, timed.by_thread, strict=True) if count]
        back = [
            Job(
                descriptor=job.descriptor,
                direction="read",
                block_bytes=job.block_bytes,
                iodepth=job.iodepth,
                seed=job.seed,
                checked=True,
                gpu=job.gpu,
            )
            for job, count in zip(jobs, timed.by_thread, strict=True)
            if count
        ]
        again, _ = run(engine, back, written)
        checked, mismatch = again.bytes, again.mismatch
    return Verified(
        ok=mismatch is None,
        seed=request.seed,
        bytes=checked,
        first_bad_offset=mismatch.offset if mismatch else None,
        kind=mismatch.kind if mismatch else None,
        found=mismatch.found if mismatch else None,
    )


def latency(histogram: Histogram) -> Latency:
    """Nanoseconds to microseconds."""

    def us(nanoseconds: float | None) -> float:
        return round((nanoseconds or 0) / 1e3, 3)

    return Latency(
        min=us(histogram.minimum),
        mean=us(histogram.mean()),
        p50=us(histogram.percentile(50)),
        p90=us(histogram.percentile(90)),
        p99=us(histogram.percentile(99)),
        p99_9=us(histogram.percentile(99.9)),
        max=us(histogram.maximum),
    )


def stability(timed: Timed) -> Stability:
    series = timed.series_gbs
    mean = statistics.fmean(series) if series else 0.0
    spread = statistics.stdev(series) / mean if len(series) >= _STEADY_SECONDS and mean else None
    return Stability(series_gbs=series, coefficient_of_variation=None if spread is None else round(spread, 4))


def _c2c(node: Report, gpus: Sequence[int]) -> bool | None:
    """Are the GPUs joined to the CPU by NVLink-C2C? No machine but those with Grace, which is an Arm CPU, has it."""
    if node.platform.arch == "x86_64":
        return False
    known = {node.gpus[gpu].c2c for gpu in gpus if gpu < len(node.gpus)}
    return known.pop() if len(known) == 1 else None


def _user_rdma(mount: Mount | None) -> bool:
    row = filesystems.filesystem(mount.fstype) if mount is not None else None
    return row is not None and row.rdma == "userspace"


def mount_of(node: Report, path: str) -> Mount | None:
    """The mount that a path lies on; of several on one target, the one on top."""
    real = os.path.realpath(path)
    over = [m for m in node.mounts if real == m.target or real.startswith(m.target.rstrip("/") + "/")]
    return max(enumerate(over), key=lambda found: (len(found[1].target), found[0]))[1] if over else None


def predicted(node: Report, mount: Mount | None, gpus: Sequence[int], throughput: float, *, to_gpu: bool) -> Prediction:
    if mount is None:
        return Prediction(because="the mount is not among those that inspect knows")
    wanted = {node.gpus[index].address or str(index) for index in (gpus or (0,)) if index < len(node.gpus)}
    routes: list[Route] = [route for route in node.routes if route.mount == mount.target and route.gpu in wanted]
    if not routes:
        return Prediction(mount=mount.target, because="no GPU, so inspect predicts no route for this mount")
    first = routes[0]
    ceilings = [route.ceiling_gbs for route in routes if route.ceiling_gbs is not None]
    ceiling = sum(ceilings) if len(ceilings) == len(routes) else None
    return Prediction(
        gpu=first.gpu,
        mount=mount.target,
        route=first.route,
        ceiling_gbs=ceiling,
        ratio=round(throughput / ceiling, 4) if ceiling and to_gpu else None,
        because=first.because if to_gpu else f"for GPU memory, which this engine did not use: {first.because}",
    )


def _report(setting: _Setting, found: Sequence[_Figures]) -> ProbeReport:
    request, chosen, target, _, node, mount = setting
    best = max(found, key=lambda figures: figures.timed.bytes / figures.timed.seconds)
    timed, engine = best.timed, chosen.engine
    throughput = timed.bytes / timed.seconds / 1e9
    to_gpu = bool(chosen.gpus)
    direct = {"mixed": False, "compat": False, "unknown": None}.get(best.taken.verdict, True)
    bad = next((figures.verified for figures in found if figures.verified and not figures.verified.ok), None)
    return ProbeReport(
        tool=node.tool,
        engine=engine.name,
        engine_because=chosen.because,
        carried_by=engine.how,
        path=request.path,
        file=target.named,
        direct=direct,
        rw=request.rw,
        block_bytes=best.block_bytes,
        threads=request.threads,
        iodepth=request.iodepth,
        gpus=chosen.gpus,
        bytes=timed.bytes,
        seconds=round(timed.seconds, 6),
        throughput_gbs=round(throughput, 4),
        iops=round(timed.blocks / timed.seconds, 1),
        latency_us=best.latency,
        cpu_seconds_per_gb=round(timed.cpu_seconds / timed.bytes * 1e9, 4),
        fsync_seconds=best.fsync_seconds,
        stability=stability(timed),
        verify=bad or best.verified,
        path_taken=best.taken,
        prediction=predicted(node, mount, chosen.gpus, throughput, to_gpu=to_gpu),
        sweep=tuple(map(_sweep_row, found)) if request.sweep else (),
        notes=_notes(request, engine, best),
        environment=environment(node, mount),
    )


def _sweep_row(figures: _Figures) -> SweepRow:
    timed = figures.timed
    return SweepRow(
        block_bytes=figures.block_bytes,
        bytes=timed.bytes,
        seconds=round(timed.seconds, 6),
        throughput_gbs=round(timed.bytes / timed.seconds / 1e9, 4),
        iops=round(timed.blocks / timed.seconds, 1),
        latency_us=figures.latency,
        cpu_seconds_per_gb=round(timed.cpu_seconds / timed.bytes * 1e9, 4),
        stability=stability(timed),
        path_taken=figures.taken,
    )


def _notes(request: Request, engine: Engine, best: _Figures) -> tuple[str, ...]:
    """What a reader of the figures has to know, and what held them back."""
    timed = best.timed
    notes = []
    if request.iodepth > 1 and not engine.queues:
        why = engine.why_no_queue
        notes.append(f"--iodepth {request.iodepth} is kept by {request.threads * request.iodepth} threads: {why}")
    if request.verify:
        notes.append("the figures include filling and comparing each block; latencies do not")
    if timed.seconds < 1:
        notes.append("less than a second of data: the throughput is not steady; give more --size or a --duration")
    cores = timed.cpu_seconds / timed.seconds
    busy = min(request.threads * (1 if engine.queues else request.iodepth), os.cpu_count() or 1)
    if cores > 0.9 * busy:
        notes.append(f"the CPU is the limit: {cores:.2f} cores were busy for {busy} threads; larger --bs costs less")
    elif request.threads == 1 and request.iodepth == 1:
        notes.append("one block under way at a time; --threads or --iodepth show what the storage gives at most")
    notes.extend(f"cufile.log: {line}" for line in engine.log_lines()[:_MOST_LOG_LINES])
    return tuple(notes)


def environment(node: Report, mount: Mount | None) -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "host": node.source.host,
        "time": node.source.captured_at,
        "kernel": node.platform.kernel,
        "arch": node.platform.arch,
        "cpu_model": node.platform.cpu_model,
        "cpus": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 2),
        "virtualization": node.platform.virtualization,
        "python": platform.python_version(),
        "gds_version": node.gds.version,
        "nvidia_driver": node.nvidia_driver.version,
        "mount": mount.target if mount else None,
        "fstype": mount.fstype if mount else None,
        "options": list(mount.options) if mount else None,
        "device": mount.device if mount else None,
        "backing": mount.backing.kind if mount else None,
    }

"""One probe from beginning to end: files, an engine, the runs, the evidence."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import secrets
from collections.abc import Sequence
from typing import NamedTuple

from gdsctl.data import filesystems
from gdsctl.errors import RefusedError, UsageError
from gdsctl.model.devices import Mount
from gdsctl.model.node import Report
from gdsctl.probe import choose
from gdsctl.probe.counters import Counters, Reading
from gdsctl.probe.engine import Direction, Engine, Job
from gdsctl.probe.figures import Carrier, Figures, latency, mount_of, predicted, report
from gdsctl.probe.limiter import STALLED, Held, Limiter, limiter
from gdsctl.probe.offsets import order, regions
from gdsctl.probe.pattern import Generations, Mismatch
from gdsctl.probe.pinning import cpus, numa_node
from gdsctl.probe.posix import PosixEngine, memory_bytes
from gdsctl.probe.processes import at_once
from gdsctl.probe.report import ProbeReport, SideRow, Verified
from gdsctl.probe.request import SWEEP_SECONDS, Case, Request, check, require_memory
from gdsctl.probe.run import Progress, Timed, flush, run
from gdsctl.probe.sizes import words
from gdsctl.probe.stack import Stack
from gdsctl.probe.target import Target, opened
from gdsctl.probe.verdict import Observed, joined, judge
from gdsctl.source.base import Source

_LAYOUT_BLOCK = 1 << 20
_MOST_LOG_LINES = 5
_LONG_ENOUGH_S = 0.5


class _Written:
    """How often each block of the files was written, where that is to be verified."""

    def __init__(self) -> None:
        self._block_bytes: int | None = None
        self._counts: tuple[Generations, ...] = ()

    def counts(
        self, request: Request, targets: Sequence[Target], block_bytes: int, progress: Progress | None
    ) -> tuple[Generations | None, ...]:
        """Of each file for the next run, from where it stands now; one of other blocks is laid out again before it is read."""
        if not (request.verify and request.writes):
            return (None,) * len(targets)
        if request.mixed and self._block_bytes == block_bytes:
            return self._counts
        if request.mixed and self._block_bytes is not None:
            for target in targets:
                lay_out(target, request, progress)
        self._block_bytes = block_bytes
        self._counts = tuple(Generations(target.size_bytes, block_bytes) for target in targets)
        return self._counts


class _Setting(NamedTuple):
    """What all runs share. `cpus`: for each GPU, or for host memory, what its threads are bound to."""

    request: Request
    chosen: choose.Chosen
    targets: tuple[Target, ...]
    source: Source
    node: Report
    mount: Mount | None
    cpus: tuple[tuple[int, ...], ...]
    written: _Written


def probe(request: Request, source: Source, node: Report, *, progress: Progress | None = None) -> ProbeReport:
    """Run it. Raises UsageError, RefusedError (the system refused) and UndecidedError (no such engine here)."""
    check(request)
    largest = max(case.block_bytes for case in request.cases)
    with contextlib.ExitStack() as stack:
        chosen = choose.engine(
            request.engine,
            node,
            iodepth=max(request.iodepth),
            shared=_shared(request),
            gpus=request.gpus,
            strict=request.strict,
            api=request.api,
            registered=request.registered,
        )
        stack.callback(chosen.engine.close)
        targets = stack.enter_context(
            opened(
                request.path,
                request.size_bytes // largest * largest,
                writes=request.writes,
                allow_existing=request.allow_existing,
                block_bytes=largest,
                files=request.files,
                destroys=request.destroys,
                introduce=chosen.engine.introduce,
            )
        )
        setting = _Setting(
            request=request,
            chosen=chosen,
            targets=targets,
            source=source,
            node=node,
            mount=mount_of(node, request.path),
            cpus=cpus(node, request.numa, chosen.addresses),
            written=_Written(),
        )
        for case in request.cases:
            _require_blocks(request.path, case, targets)
        if targets[0].blank and request.reads:
            for target in targets:
                lay_out(target, request, progress)
        found = [_repeated(setting, case, progress) for case in request.cases]
        return report(_carrier(setting), found, [*_notes(setting), *_short(setting, found)])


def _require_blocks(path: str, case: Case, targets: Sequence[Target]) -> None:
    """Raises UsageError unless there is a block for each thread: an existing file may be shorter than --size."""
    blocks = sum(target.size_bytes // case.block_bytes for target in targets)
    if case.threads > _most_threads(case, targets):
        raise UsageError(
            f"{path}: {blocks} block{'s' * (blocks != 1)} of {words(case.block_bytes)} are too few for {case.threads}"
            f" threads{'' if len(targets) == 1 else f' on {len(targets)} files'}; take fewer --threads or a smaller --bs"
        )


def _most_threads(case: Case, targets: Sequence[Target]) -> int:
    """A block for each, where they are dealt to the files in turn."""
    return len(targets) * min(target.size_bytes // case.block_bytes for target in targets)


def _shared(request: Request) -> bool:
    between_blocks = request.verify or request.mixed or request.rate_bytes or request.ramp_seconds
    return not between_blocks and any(at_once(threads) < threads for threads in request.threads)


def _carrier(setting: _Setting) -> Carrier:
    chosen, named = setting.chosen, setting.targets[0].named
    return Carrier(
        request=setting.request,
        engine=chosen.engine.name,
        because=chosen.because,
        how=chosen.engine.how,
        file=named if len(setting.targets) == 1 else f"{len(setting.targets)} files, each {named}",
        node=setting.node,
        mount=setting.mount,
        gpus=chosen.gpus,
        addresses=chosen.addresses,
        cpus=setting.cpus,
    )


def _notes(setting: _Setting) -> list[str]:
    engine, notes = setting.chosen.engine, []
    if max(setting.request.iodepth) > 1 and not engine.queues:
        notes.append(f"--iodepth is kept by as many more threads, as far as there are blocks: {engine.why_no_queue}")
    return [*notes, *(f"cufile.log: {line}" for line in engine.log_lines()[:_MOST_LOG_LINES])]


def _short(setting: _Setting, found: Sequence[Sequence[Figures]]) -> list[str]:
    """Of what was there already less may be read than --size asks for."""
    request, target = setting.request, setting.targets[0]
    if target.own or target.size_bytes + max(case.block_bytes for case in request.cases) > request.size_bytes:
        return []
    passes = max(figures.bytes for runs in found for figures in runs) / target.size_bytes
    again = f", over and over: up to {passes:.1f} times in a run" if passes > 1 else ""
    did = "written and read" if request.mixed else "written" if request.writes else "read"
    return [f"{target.path} is shorter than --size: its {words(target.size_bytes)} in whole blocks were {did}{again}"]


def lay_out(target: Target, request: Request, progress: Progress | None) -> None:
    """Write every block of the file, so that reads find data and not holes, and flush it to the storage."""
    block = min(case.block_bytes for case in request.cases)
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


def _repeated(setting: _Setting, case: Case, progress: Progress | None) -> tuple[Figures, ...]:
    """The runs of one case; those after a mismatch are left out."""
    found: list[Figures] = []
    for _ in range(setting.request.repeat):
        found.append(_measure(setting, case, progress))
        verified = found[-1].verified
        if verified is not None and not verified.ok:
            break
    return tuple(found)


class _Lanes(NamedTuple):
    jobs: tuple[Job, ...]
    orders: tuple[Sequence[int], ...]
    depth: int


def _lanes(setting: _Setting, case: Case, contents: int, written: Sequence[Generations | None]) -> _Lanes:
    """Threads are dealt to the files, then to the GPUs, in turn; each has its own part of its file.

    `contents`: the seed of what is written, or of what is read; `written`: of each file how often its blocks were.
    """
    request, engine, gpus = setting.request, setting.chosen.engine, setting.chosen.gpus
    threads, depth = case.threads, case.iodepth
    if depth > 1 and not engine.queues:  # no queue here: as many more threads keep as many blocks under way
        threads, depth = threads * depth, 1
    files = len(setting.targets)
    threads = min(threads, _most_threads(case, setting.targets))
    every_ns = int(1e9 * case.block_bytes * threads / request.rate_bytes) if request.rate_bytes else 0
    require_memory(threads * memory_bytes(case.block_bytes * depth))
    parts = [
        regions(target.size_bytes, case.block_bytes, len(range(at, threads, files)))
        for at, target in enumerate(setting.targets)
    ]
    jobs, orders = [], []
    for lane in range(threads):
        jobs.append(
            Job(
                descriptor=setting.targets[lane % files].descriptor,
                direction=request.directions[0],
                block_bytes=case.block_bytes,
                iodepth=depth,
                seed=contents,
                checked=request.verify,
                generations=written[lane % files],
                gpu=gpus[lane % len(gpus)] if gpus else None,
                read_percent=request.read_percent if request.mixed else None,
                after_ns=int((1e9 * request.ramp_seconds + every_ns) * lane / threads),
                every_ns=every_ns,
                cpus=setting.cpus[lane % len(setting.cpus)],
            )
        )
        orders.append(order(parts[lane % files][lane // files], shuffled=request.shuffled, seed=request.seed + lane))
    return _Lanes(tuple(jobs), tuple(orders), depth)


def _contents(request: Request) -> int:
    """Other bytes for each run that only writes: a write that is lost must not find what it would have left."""
    return request.seed if request.reads else secrets.randbits(63)


def _measure(setting: _Setting, case: Case, progress: Progress | None) -> Figures:
    request, engine, mount = setting.request, setting.chosen.engine, setting.mount
    written = setting.written.counts(request, setting.targets, case.block_bytes, progress)
    lanes = _lanes(setting, case, _contents(request), written)
    if request.warmup_seconds:
        warming = lanes if request.reads else _lanes(setting, case, _contents(request), (None,) * len(setting.targets))
        run(engine, warming.jobs, warming.orders, seconds=request.warmup_seconds)
    files = [(target.descriptor, target.size_bytes) for target in setting.targets]
    counters = {
        direction: Counters(
            setting.source,
            direction,
            device=setting.targets[0].device,
            mount=mount,
            blocks=setting.node.block,
            mounts=setting.node.mounts,
            gpus=setting.chosen.addresses,
        )
        for direction in request.directions
    }
    before = {direction: some.read(*files) for direction, some in counters.items()}
    if setting.targets[0].own:
        before = {direction: reading.with_cache(0) for direction, reading in before.items()}
    engine.begin()
    timed = run(
        engine,
        lanes.jobs,
        lanes.orders,
        seconds=request.seconds or (SWEEP_SECONDS if request.sweeps else None),
        ramp_seconds=request.ramp_seconds,
        progress=progress,
    )
    fsync_seconds = sum(flush(target.descriptor, target.path) for target in setting.targets) if request.writes else None
    added = {direction: some.read(*files).since(before[direction]) for direction, some in counters.items()}
    if not timed.blocks:
        raise RefusedError("not one block was moved in the time given; give more --duration")
    seen = {
        direction: _observed(setting, timed, direction, added[direction], below=some.below)
        for direction, some in counters.items()
    }
    sides = {direction: _side(timed, direction) for direction in request.directions} if request.mixed else {}
    return Figures(
        case=case,
        bytes=timed.bytes,
        blocks=timed.blocks,
        seconds=timed.seconds,
        cpu_seconds=timed.cpu_seconds,
        latency=latency(timed.latencies),
        series_gbs=timed.series_gbs,
        read=sides.get("read"),
        write=sides.get("write"),
        taken=joined({direction: judge(one) for direction, one in seen.items() if one.blocks or len(seen) == 1}),
        limiter=_limiter(setting, lanes, timed, next(iter(added.values()))),
        fsync_seconds=fsync_seconds,
        verified=_verified(request, engine, lanes, timed) if request.verify else None,
        paused_seconds=timed.paused_seconds,
        slept_seconds=timed.slept_seconds,
    )


def _side(timed: Timed, direction: Direction) -> SideRow:
    latencies = timed.sides[direction].latencies
    moved = latencies.total * timed.block_bytes
    return SideRow(
        bytes=moved,
        throughput_gbs=round(moved / timed.seconds / 1e9, 4),
        iops=round(latencies.total / timed.seconds, 1),
        latency_us=latency(latencies),
    )


def _observed(setting: _Setting, timed: Timed, direction: Direction, added: Reading, *, below: Stack) -> Observed:
    engine, gpus = setting.chosen.engine, setting.chosen.gpus
    moved = timed.sides[direction].moved_blocks
    size = sum(target.size_bytes for target in setting.targets)
    return Observed(
        engine="posix" if engine.name == "posix" else "bounce" if engine.name == "bounce" else "cufile",
        direction=direction,
        bytes=moved * timed.block_bytes,
        blocks=moved,
        distinct_bytes=min(sum(side.moved_blocks for side in timed.sides.values()) * timed.block_bytes, size),
        direct=all(fcntl.fcntl(target.descriptor, fcntl.F_GETFL) & os.O_DIRECT for target in setting.targets),
        others_file=not all(target.own for target in setting.targets),
        counters=added,
        compat_allowed=engine.compat_allowed,
        c2c=_c2c(setting.node, setting.chosen.addresses) if gpus else None,
        below=below,
        user_rdma=_user_rdma(setting.mount),
        cufile=engine.counts(direction),
    )


def _limiter(setting: _Setting, lanes: _Lanes, timed: Timed, added: Reading) -> Limiter:
    request, mount, chosen = setting.request, setting.mount, setting.chosen
    gbs = timed.bytes / timed.seconds / 1e9
    prediction = predicted(setting.node, mount, chosen.addresses, gbs, to_gpu=bool(chosen.gpus))
    drive = next((drive for drive in setting.node.nvme if mount is not None and mount.device in drive.namespaces), None)
    home = numa_node(setting.node, drive.address) if drive is not None and drive.address is not None else None
    nodes = {entry.id: entry.cpus for entry in setting.node.numa.nodes}
    local = cpus(setting.node, str(home), ())[0] if home in nodes and any(setting.cpus) else ()
    stalls, stalled = timed.latencies.above(STALLED * (timed.latencies.percentile(50) or 0))
    return limiter(
        Held(
            gbs=gbs,
            block_bytes=timed.block_bytes,
            lanes=len(lanes.jobs),
            under_way=len(lanes.jobs) * lanes.depth,
            cores=timed.cpu_seconds / timed.seconds,
            cpus=len(set(itertools.chain(*setting.cpus)) or os.sched_getaffinity(0)),
            mean_latency_us=(timed.latencies.mean() or 0) / 1e3,
            rate_gbs=request.rate_bytes / 1e9 if request.rate_bytes else None,
            ratio=prediction.ratio,
            busy=_share(added.busy_ms, timed.seconds),
            queue=_share(added.queued_ms, timed.seconds),
            nfs_connections=_nfs_connections(mount),
            remote=bool(local) and not set(local) & set(itertools.chain(*setting.cpus)),
            stalls=stalls,
            stalled=stalled,
        )
    )


def _share(milliseconds: int | None, seconds: float) -> float | None:
    """Of the run; None for a run so short that the kernel's ticks and what comes before and after it matter."""
    return milliseconds / 1e3 / seconds if milliseconds is not None and seconds >= _LONG_ENOUGH_S else None


def _nfs_connections(mount: Mount | None) -> int | None:
    """As far as the mount's options tell; None for other file systems, and for VAST's lists of ports."""
    if mount is None or not mount.fstype.startswith("nfs"):
        return None
    options = dict(option.partition("=")[::2] for option in mount.options)
    if options.keys() & {"localports", "remoteports"}:
        return None
    count = options.get("nconnect", "1")
    return int(count) if count.isdecimal() else None


def _verified(request: Request, engine: Engine, lanes: _Lanes, timed: Timed) -> Verified:
    """Reads were compared as they came; what was written is read back and compared now, with the same engine."""
    checked, mismatch = timed.bytes, timed.mismatch
    wanted = lanes.orders
    if not request.reads:
        wanted = tuple(some[:count] for some, count in zip(lanes.orders, timed.by_thread, strict=True))
    back = [(job.alone("read"), some) for job, some in zip(lanes.jobs, wanted, strict=True) if some]
    if request.writes and mismatch is None:
        again = run(engine, [job for job, _ in back], [some for _, some in back])
        checked, mismatch = again.bytes, again.mismatch
    if mismatch is not None:
        mismatch = _lowest(engine, back, mismatch)
    return Verified(
        ok=mismatch is None,
        seed=lanes.jobs[0].seed,
        bytes=checked,
        first_bad_offset=mismatch.offset if mismatch else None,
        kind=mismatch.kind if mismatch else None,
        found=mismatch.found if mismatch else None,
    )


def _lowest(engine: Engine, back: Sequence[tuple[Job, Sequence[int]]], found: Mismatch) -> Mismatch:
    """The first one in the file: threads end where they meet one, whatever others have not yet come to."""
    for descriptor in dict.fromkeys(job.descriptor for job, _ in back):
        here = [(job, some) for job, some in back if job.descriptor == descriptor]
        before = sorted(offset for _, some in here for offset in some if offset < found.offset)
        with contextlib.suppress(RefusedError):  # what cannot be read again holds no lower mismatch that can be told
            lower = run(engine, [here[0][0]], [before]).mismatch if before else None
            found = lower if lower is not None else found
    return found


def _c2c(node: Report, addresses: Sequence[str]) -> bool | None:
    """Are the GPUs joined to the CPU by NVLink-C2C? No machine but those with Grace, which is an Arm CPU, has it."""
    if node.platform.arch == "x86_64":
        return False
    known = {gpu.c2c for gpu in node.gpus if gpu.address in addresses}
    return known.pop() if len(known) == 1 else None


def _user_rdma(mount: Mount | None) -> bool:
    row = filesystems.filesystem(mount.fstype) if mount is not None else None
    return row is not None and row.rdma == "userspace"

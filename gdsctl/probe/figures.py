"""From what was measured to the `probe` document."""

from __future__ import annotations

import contextlib
import os
import platform
import stat
import statistics
from collections.abc import Sequence
from typing import Any

import msgspec

from gdsctl.model.devices import Mount
from gdsctl.model.judgement import Route
from gdsctl.model.node import Report
from gdsctl.probe.histogram import Histogram
from gdsctl.probe.limiter import Limiter
from gdsctl.probe.report import (
    Latency,
    Prediction,
    ProbeReport,
    RepeatRow,
    SideRow,
    Spread,
    Stability,
    SweepRow,
    Verified,
)
from gdsctl.probe.request import Case, Request
from gdsctl.probe.run import Timed
from gdsctl.probe.verdict import PathTaken
from gdsctl.record import Record
from gdsctl.source.base import printable

_STEADY_SECONDS = 3
_SHORT_SLEEP_S = 0.1
_MUCH_MORE = 1.15


class Carrier(Record, frozen=True, kw_only=True):
    """What moved the blocks of all runs, and from or to where. `gpus`: by the CUDA driver's index; `addresses`: theirs;
    `cpus`: for each GPU, or for host memory, what its threads are bound to.
    """

    request: Request
    engine: str
    because: str
    how: str
    file: str
    node: Report
    mount: Mount | None
    gpus: tuple[int, ...] = ()
    addresses: tuple[str, ...] = ()
    cpus: tuple[tuple[int, ...], ...] = ((),)


class Figures(Record, frozen=True, kw_only=True):
    """One run. `read`, `write`: the sides of a mixed one; `cpu_seconds`: with all that belongs to the engine."""

    case: Case
    bytes: int
    blocks: int
    seconds: float
    cpu_seconds: float
    latency: Latency
    taken: PathTaken
    limiter: Limiter
    series_gbs: tuple[float, ...] = ()
    read: SideRow | None = None
    write: SideRow | None = None
    fsync_seconds: float | None = None
    verified: Verified | None = None
    paused_seconds: float = 0.0
    slept_seconds: float = 0.0

    @property
    def gbs(self) -> float:
        return self.bytes / self.seconds / 1e9

    @property
    def iops(self) -> float:
        return round(self.blocks / self.seconds, 1)

    @property
    def cpu_seconds_per_gb(self) -> float:
        return round(self.cpu_seconds / self.bytes * 1e9, 4)


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


def stability(series: tuple[float, ...]) -> Stability:
    """`series`: GB/s in each whole second."""
    mean = statistics.fmean(series) if series else 0.0
    spread = statistics.stdev(series) / mean if len(series) >= _STEADY_SECONDS and mean else None
    series = tuple(round(gbs, 6) for gbs in series)
    return Stability(series_gbs=series, coefficient_of_variation=None if spread is None else round(spread, 4))


def mount_of(node: Report, path: str) -> Mount | None:
    """The mount that a path lies on; of several on one target, the one on top. A block device stands for itself."""
    real = os.path.realpath(path)
    with contextlib.suppress(OSError):
        if stat.S_ISBLK(os.stat(real).st_mode):
            return Mount(target=printable(path), device=os.path.basename(real))
    real = printable(real)
    over = [m for m in node.mounts if real == m.target or real.startswith(m.target.rstrip("/") + "/")]
    return max(enumerate(over), key=lambda found: (len(found[1].target), found[0]))[1] if over else None


def predicted(
    node: Report, mount: Mount | None, addresses: Sequence[str], throughput: float, *, to_gpu: bool
) -> Prediction:
    """`addresses`: of the GPUs that were used; without any, what is predicted for the first one is told."""
    if mount is None:
        return Prediction(because="the mount is not among those that inspect knows")
    wanted = set(addresses) or {gpu.address or str(gpu.index) for gpu in node.gpus[:1]}
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


def report(carrier: Carrier, found: Sequence[Sequence[Figures]], notes: Sequence[str]) -> ProbeReport:
    """`found`: of each case its runs; `notes`: the engine's own."""
    request, node, mount = carrier.request, carrier.node, carrier.mount
    medians = _saturated([_median(runs) for runs in found])
    best = max(medians, key=lambda figures: figures.gbs)
    runs = found[medians.index(best)]
    bad = next((one.verified for some in found for one in some if one.verified and not one.verified.ok), None)
    return ProbeReport(
        tool=node.tool,
        engine=carrier.engine,
        engine_because=carrier.because,
        carried_by=carrier.how,
        path=printable(request.path),
        file=carrier.file,
        direct={"mixed": False, "compat": False, "unknown": None}.get(best.taken.verdict, True),
        rw=request.rw,
        block_bytes=best.case.block_bytes,
        threads=best.case.threads,
        iodepth=best.case.iodepth,
        files=request.files,
        rate_gbs=request.rate_bytes / 1e9 if request.rate_bytes else None,
        gpus=carrier.gpus,
        numa_cpus=carrier.cpus if any(carrier.cpus) else (),
        bytes=best.bytes,
        seconds=round(best.seconds, 6),
        throughput_gbs=round(best.gbs, 4),
        iops=best.iops,
        latency_us=best.latency,
        cpu_seconds_per_gb=best.cpu_seconds_per_gb,
        read=best.read,
        write=best.write,
        repeats=tuple(map(_repeat, runs)) if request.repeat > 1 else (),
        spread=_spread(runs),
        fsync_seconds=best.fsync_seconds,
        stability=stability(best.series_gbs),
        verify=bad or best.verified,
        path_taken=best.taken,
        prediction=predicted(node, mount, carrier.addresses, best.gbs, to_gpu=bool(carrier.gpus)),
        limiter=best.limiter,
        sweep=tuple(_sweep_row(one, _spread(some)) for one, some in zip(medians, found, strict=True))
        if request.sweeps
        else (),
        notes=tuple(map(printable, (*_notes(request, best), *notes))),
        environment=environment(node, mount),
    )


def _median(runs: Sequence[Figures]) -> Figures:
    """The run in the middle, by throughput; of an even number the lower one."""
    return sorted(runs, key=lambda figures: figures.gbs)[(len(runs) - 1) // 2]


def _saturated(found: Sequence[Figures]) -> list[Figures]:
    """Where a sweep shows that more blocks under way give no more, the storage is the limit, not their number."""

    def under_way(figures: Figures) -> int:
        return figures.case.threads * figures.case.iodepth

    def shape(figures: Figures) -> str:
        return f"{figures.case.threads} threads, {figures.case.iodepth} deep"

    def judged(figures: Figures) -> Figures:
        if figures.limiter.name not in ("concurrency", "small-blocks", "unknown"):
            return figures
        others = [other for other in found if other.case.block_bytes == figures.case.block_bytes]
        more = [other for other in others if under_way(other) >= 2 * under_way(figures)]
        fewer = [other for other in others if 2 * under_way(other) <= under_way(figures)]
        pairs = [(figures, other) for other in more] or [(other, figures) for other in fewer]
        if not pairs:
            return figures
        few, many = max(pairs, key=lambda pair: pair[1].gbs / pair[0].gbs if more else -pair[1].gbs / pair[0].gbs)
        if many.gbs >= _MUCH_MORE * few.gbs:
            return figures
        because = f"{shape(many)} gave {many.gbs / few.gbs:.2f} times what {shape(few)} did"
        return msgspec.structs.replace(figures, limiter=Limiter(name="storage", likely=True, because=because))

    return [judged(figures) for figures in found]


def _repeat(figures: Figures) -> RepeatRow:
    return RepeatRow(
        throughput_gbs=round(figures.gbs, 4),
        iops=figures.iops,
        p50_us=figures.latency.p50,
        p99_us=figures.latency.p99,
        cpu_seconds_per_gb=figures.cpu_seconds_per_gb,
        verdict=figures.taken.verdict,
    )


def _spread(runs: Sequence[Figures]) -> Spread | None:
    if len(runs) < 2:
        return None
    each = [figures.gbs for figures in runs]
    varies = round(statistics.stdev(each) / statistics.fmean(each), 4) if len(each) > 2 else None
    return Spread(
        min=round(min(each), 4),
        median=round(statistics.median(each), 4),
        max=round(max(each), 4),
        coefficient_of_variation=varies,
    )


def _sweep_row(figures: Figures, spread: Spread | None) -> SweepRow:
    return SweepRow(
        block_bytes=figures.case.block_bytes,
        threads=figures.case.threads,
        iodepth=figures.case.iodepth,
        bytes=figures.bytes,
        seconds=round(figures.seconds, 6),
        throughput_gbs=round(figures.gbs, 4),
        iops=figures.iops,
        latency_us=figures.latency,
        cpu_seconds_per_gb=figures.cpu_seconds_per_gb,
        stability=stability(figures.series_gbs),
        path_taken=figures.taken,
        limiter=figures.limiter,
        spread=spread,
    )


def _notes(request: Request, best: Figures) -> tuple[str, ...]:
    """What a reader of the figures has to know."""
    notes = []
    if request.verify:
        notes.append("the figures include filling and comparing each block; latencies do not")
    if request.rate_bytes is not None:
        notes.append("latencies count from when a block began, not from when it was due at the rate asked for")
    notes += pauses(best)
    if best.seconds < 1:
        notes.append("less than a second of data: the throughput is not steady; give more --size or a --duration")
    return tuple(notes)


def pauses(run: Figures | Timed) -> list[str]:
    """That a run was held up by something else than the storage."""
    notes = []
    if run.paused_seconds:
        notes.append(
            f"for up to {run.paused_seconds:.2g} s the probe was stopped (SIGSTOP, a frozen control group) or had no CPU; the figures"
            " include that time and are worth little: repeat the run"
        )
    if run.slept_seconds >= _SHORT_SLEEP_S:
        notes.append(
            f"the machine slept for {run.slept_seconds:.3g} s in the middle of it, which the figures leave out"
        )
    return notes


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

"""The same probe with another program moving the blocks: its figures, our evidence."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gdsctl.errors import UndecidedError, UsageError
from gdsctl.model.devices import Mount
from gdsctl.model.node import Report
from gdsctl.probe.counters import Counters
from gdsctl.probe.cufile_settings import CufileSettings
from gdsctl.probe.engine import Direction
from gdsctl.probe.figures import Carrier, Figures, mount_of, report
from gdsctl.probe.limiter import Held, limiter
from gdsctl.probe.report import Latency, ProbeReport, SideRow
from gdsctl.probe.request import SWEEP_SECONDS, Case, Request, check
from gdsctl.probe.run import Progress
from gdsctl.probe.tools.run import TOOLS, Prepared, able, prepared
from gdsctl.probe.tools.tool import Side, ToolFigures, Work
from gdsctl.probe.verdict import Observed, joined, judge
from gdsctl.source.base import Source


class _Setting(NamedTuple):
    """`gpus`: by the CUDA driver's index, `addresses`: theirs; `settings`: what libcufile runs with."""

    request: Request
    source: Source
    node: Report
    mount: Mount | None
    gpus: tuple[int, ...]
    addresses: tuple[str, ...]
    settings: CufileSettings


def probe(request: Request, source: Source, node: Report, *, progress: Progress | None = None) -> ProbeReport:
    """Run it; `progress` hears nothing, since programs do not tell on their way.

    Raises as gdsctl.probe.probe.probe does, UndecidedError also where the program is not installed, ToolError where it
    fails.
    """
    del progress
    check(request)
    gpus, addresses = require(request)
    settings = CufileSettings(node.gds.cufile_config.merged or {}, strict=request.strict)
    with contextlib.ExitStack() as stack:
        stack.callback(settings.close)
        setting = _Setting(request, source, node, mount_of(node, request.path), gpus, addresses, settings)
        found, ran = [], []
        for case in request.cases:
            with prepared(
                request.engine,
                request.tool_mode,
                _work(request, gpus, case),
                request.path,
                environment={**settings.environment, "GLIBC_TUNABLES": _tunables()},
            ) as ready:
                runs = [_measure(setting, case, ready) for _ in range(request.repeat)]
            found.append([figures for figures, _ in runs])
            ran.append(runs[0][1])
        log = settings.log_lines()
    return report(_carrier(setting, ran[0]), found, _notes(ran, log))


def require(request: Request) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Can the program do all that is asked for? Asked before it moves anything; the GPUs that it is to use, by the CUDA
    driver's index and by their addresses.

    Raises UsageError for what it cannot do, UndecidedError where it, a mode of it or a GPU is not here.
    """
    _only_what_tools_do(request)
    gpus, addresses = _gpus(request)
    for case in request.cases:
        able(TOOLS[request.engine], request.tool_mode, _work(request, gpus, case))
    return gpus, addresses


def _tunables() -> str:
    """Buffers on transparent huge pages, as our own engine has them, for programs that take them from malloc (glibc 2.35)."""
    return ":".join(filter(None, (os.environ.get("GLIBC_TUNABLES"), "glibc.malloc.hugetlb=1")))


def _only_what_tools_do(request: Request) -> None:
    given = {
        "--verify": request.verify,
        "--allow-existing": request.allow_existing,
        "--i-know-this-destroys-data": request.destroys is not None,
        "--files": request.files > 1,
        "--rate": request.rate_bytes is not None,
        "--ramp": request.ramp_seconds,
        "--warmup": request.warmup_seconds,
        "--numa": request.numa != "auto",
    }
    if wrong := [name for name, value in given.items() if value]:
        raise UsageError(f"{', '.join(wrong)}: not with --engine {request.engine}, which is another program")


def _gpus(request: Request) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """None where there is no CUDA driver: the program then works on host memory."""
    from gdsctl.probe.cuda import Cuda, gpus_wanted

    try:
        cuda = Cuda()
    except UndecidedError:
        if request.gpus != ():  # a GPU was named
            raise
        return (), ()
    wanted = tuple(range(cuda.count)) if request.gpus is None else gpus_wanted(cuda, request.gpus)
    return wanted, tuple(map(cuda.address, wanted))


def _work(request: Request, gpus: tuple[int, ...], case: Case) -> Work:
    return Work(
        rw=request.rw,
        read_percent=request.read_percent,
        block_bytes=case.block_bytes,
        size_bytes=request.size_bytes,
        threads=case.threads,
        iodepth=case.iodepth,
        seconds=request.seconds or (SWEEP_SECONDS if request.sweeps else None),
        gpus=gpus,
        registered=request.registered,
        seed=request.seed,
    )


def _measure(setting: _Setting, case: Case, ready: Prepared) -> tuple[Figures, ToolFigures]:
    request = setting.request
    with _open(ready) as files:
        device = os.stat(request.path).st_dev
        counters: Mapping[Direction, Counters] = {
            direction: Counters(
                setting.source,
                direction,
                device=(os.major(device), os.minor(device)),
                mount=setting.mount,
                blocks=setting.node.block,
                mounts=setting.node.mounts,
                gpus=setting.addresses,
            )
            for direction in request.directions
        }
        before = {direction: some.read(*files) for direction, some in counters.items()}
        ran = ready.run()
    fsync_seconds = ready.flush() if request.writes else None
    with _open(ready) as files:  # a program may have made files anew
        added = {direction: some.read(*files).since(before[direction]) for direction, some in counters.items()}
    told = ran.told
    seen = {
        side.direction: Observed(
            engine="cufile" if ran.mode.cufile else "bounce" if ran.mode.gpu else "posix",
            direction=side.direction,
            bytes=side.bytes,
            blocks=side.blocks,
            distinct_bytes=min(told.bytes, request.size_bytes),
            counters=added[side.direction],
            direct=ran.direct,
            direct_from="/proc/PID/fdinfo of the program",
            below=counters[side.direction].below,
        )
        for side in told.sides
        if side.blocks
    }
    cpu_seconds = ran.cpu_seconds if told.cpu_seconds is None else told.cpu_seconds
    busy_ms = added[told.sides[0].direction].busy_ms
    sides = {side.direction: _side(side, told.seconds) for side in told.sides} if request.mixed else {}
    figures = Figures(
        case=case,
        bytes=told.bytes,
        blocks=told.blocks,
        seconds=told.seconds,
        cpu_seconds=cpu_seconds,
        latency=told.sides[0].latency_us if len(told.sides) == 1 else Latency(),
        read=sides.get("read"),
        write=sides.get("write"),
        taken=joined({direction: judge(one) for direction, one in seen.items()}),
        limiter=limiter(
            Held(
                gbs=told.bytes / told.seconds / 1e9,
                block_bytes=case.block_bytes,
                lanes=case.threads,
                under_way=case.threads * case.iodepth,
                cores=cpu_seconds / told.seconds,
                cpus=len(os.sched_getaffinity(0)),
                mean_latency_us=1e6 * told.seconds * case.threads * case.iodepth / told.blocks,
                busy=busy_ms / 1e3 / told.seconds if busy_ms is not None else None,
            )
        ),
        fsync_seconds=fsync_seconds,
    )
    return figures, ran


@contextlib.contextmanager
def _open(ready: Prepared) -> Iterator[tuple[tuple[int, int], ...]]:
    """Descriptors and sizes of the files that are there, for a look at the page cache."""
    with contextlib.ExitStack() as stack:
        files = []
        for path in ready.paths:
            with contextlib.suppress(FileNotFoundError):
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                stack.callback(os.close, descriptor)
                files.append((descriptor, os.fstat(descriptor).st_size))
        yield tuple(files)


def _side(side: Side, seconds: float) -> SideRow:
    return SideRow(
        bytes=side.bytes,
        throughput_gbs=round(side.bytes / seconds / 1e9, 4),
        iops=round(side.blocks / seconds, 1),
        latency_us=side.latency_us,
    )


def _carrier(setting: _Setting, ran: ToolFigures) -> Carrier:
    to_gpu = ran.mode.gpu
    return Carrier(
        request=setting.request,
        engine=ran.tool,
        because="asked for",
        how=f"{ran.tool} {ran.version or 'of an unknown version'}, {ran.mode.name}: {ran.mode.what}",
        file="files of its own, removed at the end",
        node=setting.node,
        mount=setting.mount,
        gpus=setting.gpus if to_gpu else (),
        addresses=setting.addresses if to_gpu else (),
    )


def _notes(ran: list[ToolFigures], log: tuple[str, ...]) -> list[str]:
    first = ran[0]
    notes = [f"run as: {shlex.join(first.command)}", *first.told.notes]
    if first.told.cpu_seconds is None:
        notes.append(f"the CPU time includes what {first.tool} does before and after moving blocks")
    return [*notes, *(f"cufile.log: {line}" for line in log[:5])]

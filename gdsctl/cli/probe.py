from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from gdsctl.cli.messages import say
from gdsctl.cli.options import Format, Formatted, NoColor, Output, Verbose

if TYPE_CHECKING:
    from gdsctl.probe.report import ProbeReport
    from gdsctl.probe.request import Request
    from gdsctl.probe.run import Progress


class EngineName(str, Enum):
    auto = "auto"
    posix = "posix"
    cufile = "cufile"
    bounce = "bounce"
    compat = "compat"
    fio = "fio"
    gdsio = "gdsio"
    elbencho = "elbencho"
    nixlbench = "nixlbench"


_PROGRAMS = (EngineName.fio, EngineName.gdsio, EngineName.elbencho, EngineName.nixlbench)


class CufileApi(str, Enum):
    sync = "sync"
    batch = "batch"
    stream = "stream"


class Rw(str, Enum):
    read = "read"
    write = "write"
    randread = "randread"
    randwrite = "randwrite"
    rw = "rw"
    randrw = "randrw"


class RouteWanted(str, Enum):
    nvidia_fs = "nvidia-fs"
    p2pdma = "p2pdma"
    c2c = "c2c"
    rdma = "rdma"
    compat = "compat"
    host_direct = "host-direct"


class Workload(str, Enum):
    kv_cache = "kv-cache"


def probe(  # noqa: PLR0917 -- options, named on the command line
    path: Annotated[
        str, typer.Argument(metavar="DIR_OR_FILE", help="A directory gets a file of its own; a file is only read.")
    ],
    engine: Annotated[
        EngineName,
        typer.Option(
            help="auto: cufile, else bounce, else posix (host memory). fio and so on: programs, if installed."
        ),
    ] = EngineName.auto,
    rw: Annotated[Rw, typer.Option(help="What to do, and in which order; rw and randrw mix both.")] = Rw.read,
    mix: Annotated[
        Optional[int],
        typer.Option(
            metavar="PERCENT", help="Of the blocks of rw and randrw are read. Default: 50.", show_default=False
        ),
    ] = None,
    bs: Annotated[
        Optional[str],
        typer.Option(
            metavar="SIZE",
            help="Block size: 512 to 64M (a chunk: to 1G); several with commas. Default: 1M.",
            show_default=False,
        ),
    ] = None,
    size: Annotated[str, typer.Option(metavar="SIZE", help="Of all files, or of the part that is read.")] = "1G",
    threads: Annotated[
        str, typer.Option(metavar="N", help="Threads, each with its own part of a file; several with commas.")
    ] = "1",
    iodepth: Annotated[
        str, typer.Option(metavar="N", help="Blocks under way in each thread (posix: io_uring); several with commas.")
    ] = "1",
    file_count: Annotated[int, typer.Option("--files", metavar="N", help="Files that the threads are dealt to.")] = 1,
    duration: Annotated[
        Optional[float],
        typer.Option(
            metavar="S",
            help="Go on for so many seconds instead of once through; a sweep: 3 for each combination.",
            show_default=False,
        ),
    ] = None,
    warmup: Annotated[float, typer.Option(metavar="S", help="Seconds before counting begins.")] = 0.0,
    ramp: Annotated[
        float, typer.Option(metavar="S", help="Seconds in which threads begin one by one, before counting begins.")
    ] = 0.0,
    rate: Annotated[
        Optional[str],
        typer.Option(metavar="SIZE", help="No more than so many bytes a second, all threads.", show_default=False),
    ] = None,
    repeat: Annotated[int, typer.Option(metavar="N", help="Runs; told are the median one and the spread.")] = 1,
    gpu: Annotated[
        Optional[str],
        typer.Option(
            metavar="N|all", help="GPU by the CUDA driver's index; several with commas. Default: 0.", show_default=False
        ),
    ] = None,
    numa: Annotated[
        str, typer.Option(metavar="N|auto|off", help="NUMA node of the threads; auto: that of their GPU.")
    ] = "auto",
    cufile_api: Annotated[
        CufileApi, typer.Option("--cufile-api", help="How cuFile is called; batch and stream keep --iodepth.")
    ] = CufileApi.sync,
    unregistered: Annotated[
        bool, typer.Option("--unregistered", help="cuFile without registered buffers: through its own.")
    ] = False,
    tool_mode: Annotated[
        Optional[str],
        typer.Option(metavar="NAME", help="Of fio its ioengine, of gdsio its -x, ...", show_default=False),
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Write a pattern and compare each block with it.")] = False,
    require_path: Annotated[
        Optional[RouteWanted],
        typer.Option("--require-path", help="Exit code 1 unless the bytes took this path.", show_default=False),
    ] = None,
    allow_existing: Annotated[
        bool, typer.Option("--allow-existing", help="Read a file that is there already.")
    ] = False,
    i_know_this_destroys_data: Annotated[
        Optional[str],
        typer.Option(
            metavar="DEVICE", help="Write to this block device: PATH again, word for word.", show_default=False
        ),
    ] = None,
    sweep: Annotated[
        bool,
        typer.Option("--sweep", help="Block sizes from 4 KiB to 16 MiB, 3 s each unless --duration says otherwise."),
    ] = False,
    workload: Annotated[
        Optional[Workload],
        typer.Option(
            help="kv-cache: one file for each chunk of --bs, stored and retrieved by 1, 2, 4, 8 threads.",
            show_default=False,
        ),
    ] = None,
    sessions: Annotated[
        Optional[int],
        typer.Option(metavar="N", help="kv-cache: what the chunks are dealt to. Default: 8.", show_default=False),
    ] = None,
    rounds: Annotated[
        Optional[int],
        typer.Option(
            metavar="N", help="kv-cache: how often each session is retrieved. Default: 2.", show_default=False
        ),
    ] = None,
    model: Annotated[
        Optional[str],
        typer.Option(metavar="CONFIG.json", help="kv-cache: chunks of this model instead of --bs.", show_default=False),
    ] = None,
    chunk_tokens: Annotated[
        Optional[int],
        typer.Option(metavar="N", help="kv-cache: tokens of such a chunk. Default: 256.", show_default=False),
    ] = None,
    tp: Annotated[
        Optional[int],
        typer.Option(
            metavar="N", help="kv-cache: GPUs that share --model; a chunk is one GPU's. Default: 1.", show_default=False
        ),
    ] = None,
    compare: Annotated[
        Optional[list[EngineName]],
        typer.Option(help="Then do the same with another engine; may be repeated.", show_default=False),
    ] = None,
    plot: Annotated[
        Optional[str],
        typer.Option(metavar="FILE", help="Draw it: .svg, .png or .pdf (needs gdsctl[plot]).", show_default=False),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the contents and of the random order.")] = 1,
    format: Formatted = Format.table,  # noqa: A002 -- the option's name
    output: Output = None,
    no_color: NoColor = False,
    verbose: Verbose = False,
) -> int:
    """Move data by direct I/O: figures, and the path that the bytes took, proven by counters.

    Never overwrites, truncates or fills up anything; its own file is gone when it ends, however it ends.
    """
    from gdsctl import pipeline
    from gdsctl.errors import UsageError
    from gdsctl.probe.outputs import require_writable
    from gdsctl.probe.request import Request, check
    from gdsctl.probe.sizes import size as bytes_of
    from gdsctl.render import documents
    from gdsctl.source.live import LiveSource

    _keep_streams_taken()
    if plot is not None:
        from gdsctl.render import probe_plot

        probe_plot.ready(plot)
    if workload is not None and (sweep or verify or allow_existing or compare):
        raise UsageError("--workload does not go with --sweep, --verify, --allow-existing or --compare")
    if workload is None and any(given is not None for given in (sessions, rounds, model, chunk_tokens, tp)):
        raise UsageError("--sessions, --rounds, --model, --chunk-tokens and --tp go with --workload kv-cache")
    if model is None and (chunk_tokens is not None or tp is not None):
        raise UsageError("--chunk-tokens and --tp go with --model")
    if bs is not None and (sweep or model is not None):
        raise UsageError(f"--bs: {'--sweep' if sweep else '--model'} says which blocks; give one of the two")
    if mix is not None and rw not in (Rw.rw, Rw.randrw):
        raise UsageError("--mix goes with --rw rw or randrw")
    if gpu is not None and engine is EngineName.posix:
        raise UsageError("--gpu: --engine posix works on host memory")
    if compare and verify:
        raise UsageError("--compare does not go with --verify: comparing blocks costs more than moving them")
    if tool_mode is not None and engine not in _PROGRAMS:
        raise UsageError(f"--tool-mode is of other programs, and --engine {engine.value} is none")
    request = Request(
        path=path,
        engine=engine.value,
        rw=rw.value,
        read_percent=50 if mix is None else mix,
        block_bytes=(_chunk_bytes(model, chunk_tokens, tp or 1),)
        if model is not None
        else tuple(dict.fromkeys(bytes_of(part) for part in (bs or "1M").split(","))),
        size_bytes=bytes_of(size),
        threads=_numbers("--threads", threads),
        iodepth=_numbers("--iodepth", iodepth),
        files=file_count,
        seconds=duration,
        warmup_seconds=warmup,
        ramp_seconds=ramp,
        rate_bytes=bytes_of(rate) if rate is not None else None,
        repeat=repeat,
        gpus=() if gpu is None else None if gpu == "all" else _numbers("--gpu", gpu, "or all"),
        numa=numa,
        api=cufile_api.value,
        registered=not unregistered,
        tool_mode=tool_mode,
        verify=verify,
        allow_existing=allow_existing,
        destroys=i_know_this_destroys_data,
        strict=require_path not in (None, RouteWanted.compat, RouteWanted.host_direct),
        sweep=sweep,
        workload="kv-cache" if workload is not None else None,
        sessions=sessions,
        rounds=2 if rounds is None else rounds,
        seed=seed,
    )
    check(request)
    others = list(dict.fromkeys(engine.value for engine in compare or ()))
    if others:
        from gdsctl.probe.compare import require

        require(request, others)
    for result in (output if output != "-" else None, plot):
        if result is not None:
            require_writable(result)
    with _progress() as progress:
        source = LiveSource()
        if workload is not None:
            from gdsctl.probe.kv_cache import probe as run
        elif engine in _PROGRAMS:
            from gdsctl.probe.by_tool import probe as run
        else:
            from gdsctl.probe.probe import probe as run
        report = run(request, source, pipeline.inspect(source), progress=progress)
    code = 0
    if compare:
        report, code = _with_comparison(request, report, others)
    if plot is not None:
        documents.write_atomically(plot, probe_plot.picture(report, os.path.splitext(plot)[1][1:].lower()))
    if format is Format.table:
        from gdsctl.render import probe_report, terminal

        terminal.deliver(probe_report.probe_report(report, verbose=verbose), output, no_color=no_color)
    else:
        documents.deliver(documents.ENCODERS[format.value](report), output)
    return _code(report, require_path.value if require_path else None) or code


def _keep_streams_taken() -> None:
    """Else the next file to be opened would be where libraries print to, if whoever started us closed that."""
    with contextlib.suppress(FileNotFoundError):  # a root without /dev
        while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
            os.set_inheritable(descriptor, True)
        os.close(descriptor)


def _with_comparison(request: Request, report: ProbeReport, engines: list[str]) -> tuple[ProbeReport, int]:
    """With the exit code of the first engine that did not run."""
    import msgspec

    from gdsctl.probe.compare import compared

    rows, notes, code = compared(request, report, engines)
    for note in notes:
        say(note)
    return msgspec.structs.replace(report, comparison=rows, notes=(*report.notes, *notes)), code


def _chunk_bytes(model: str, tokens: int | None, tp: int) -> int:
    """A chunk of one GPU's part of a model's cache, filled up to whole sectors as direct I/O wants them. Raises InputError, UsageError."""
    from gdsctl.cli.text_files import read_text
    from gdsctl.errors import InputError, UsageError
    from gdsctl.kvcache.model_config import read_model_config
    from gdsctl.kvcache.size import Asked, size_of_model

    wanted = 256 if tokens is None else tokens
    if not 1 <= wanted <= 1 << 20:
        raise UsageError(f"--chunk-tokens must be 1 to {1 << 20}")
    try:
        attention = read_model_config(read_text(model), "auto")
    except InputError as error:
        raise error.at("<stdin>" if model == "-" else model) from None
    return -(-size_of_model(attention, tp, Asked(chunk_tokens=wanted)).chunk_bytes // 4096) * 4096


def _numbers(name: str, text: str, more: str = "") -> tuple[int, ...]:
    """Of a list with commas, each once. Raises UsageError."""
    from gdsctl.errors import UsageError

    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise UsageError(f"{name} takes a number, several with commas{', ' if more else ''}{more}; not {text!r}")
    return tuple(dict.fromkeys(map(int, parts)))


def _code(report: ProbeReport, wanted: str | None) -> int:
    """1 for other bytes than were written or another path than required, 3 where the path is not known."""
    if report.verify is not None and not report.verify.ok:
        say(f"data mismatch: offset {report.verify.first_bad_offset} is {report.verify.kind}: {report.verify.found}")
        return 1
    taken = report.path_taken
    if wanted is None or taken.verdict == wanted:
        return 0
    if taken.verdict == "unknown":
        say(f"the path is not known: {taken.because}; settle with: {_settle(wanted)}")
        return 3
    say(f"the path was {taken.verdict}, not {wanted}: {taken.because}")
    return 1


def _settle(wanted: str) -> str:
    if wanted == "host-direct":
        return (
            "the probe with more --size or --duration on a quiet device, as root with mount -t debugfs none"
            " /sys/kernel/debug"
        )
    return "libcufile 1.15 or newer, or echo 1 > /sys/module/nvidia_fs/parameters/rw_stats_enabled"


@contextlib.contextmanager
def _progress() -> Iterator[Progress | None]:
    """One line that is written over, on a terminal only."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield None
        return
    last = 0.0

    def tell(moved: int, seconds: float) -> None:
        nonlocal last
        if seconds > 0 and time.monotonic() - last >= 0.2:
            last = time.monotonic()
            sys.stderr.write(f"\r\x1b[K{moved / 1e9:8.2f} GB  {moved / seconds / 1e9:6.2f} GB/s  {seconds:5.1f} s")
            sys.stderr.flush()

    try:
        yield tell
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()

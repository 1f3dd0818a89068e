"""The same job by another engine, in a process of its own: libcufile takes its configuration once a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from gdsctl.errors import RefusedError
from gdsctl.probe import by_tool
from gdsctl.probe.cuda import Cuda, gpus_wanted
from gdsctl.probe.report import ComparisonRow, ProbeReport
from gdsctl.probe.request import Request
from gdsctl.probe.tools.run import TOOLS

_ALIKE = 0.05
_BEYOND_S = 600.0
_ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), *([os.pardir] * 2)))
# Not `-m`: it looks for modules in the current folder first, and that may be anybody's.
_START = """
import sys
root = sys.argv.pop(1)
sys.path = [*filter(None, sys.path), root]
from gdsctl.cli import main
main()
"""
_TO_GPU = frozenset({"nvidia-fs", "p2pdma", "c2c", "rdma"})
_CUFILE = frozenset({"cufile", "compat", "auto"})
_ON_GPU = frozenset({"cufile", "compat", "bounce"})
_OVER_HOST = frozenset({"compat", "bounce"})


class Compared(NamedTuple):
    """`rows`: of the engines that ran; `notes`: of those that did not, and why; `code`: the exit code of the first of them."""

    rows: tuple[ComparisonRow, ...]
    notes: tuple[str, ...]
    code: int


def require(request: Request, engines: Sequence[str]) -> None:
    """Are the engines here? Asked before anything is moved, as far as it can be told without them at work.

    Raises UsageError for what one of them cannot do, UndecidedError for one that is not here. A program is asked for one
    combination only: of a sweep it will repeat the fastest.
    """
    for engine in engines:
        if engine in TOOLS:
            case = request.cases[0]
            one = {"block_bytes": (case.block_bytes,), "threads": (case.threads,), "iodepth": (case.iodepth,)}
            by_tool.require(msgspec.structs.replace(request, engine=engine, tool_mode=None, sweep=False, **one))
        elif engine in _ON_GPU:
            cuda = Cuda()
            if request.gpus is not None:
                gpus_wanted(cuda, request.gpus)


def compared(request: Request, report: ProbeReport, engines: Sequence[str]) -> Compared:
    """Of a sweep the fastest combination is repeated."""
    rows, notes, code = [], [], 0
    for engine in engines:
        limit_s = _BEYOND_S + request.repeat * (10 * report.seconds + request.warmup_seconds + request.ramp_seconds)
        try:
            done = subprocess.run(
                [sys.executable, "-c", _START, _ROOT, *arguments(request, report, engine)],
                input=b"", capture_output=True, check=False, timeout=limit_s,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            notes.append(f"not compared with {engine}: not done after {limit_s:.0f} s")
            code = code or RefusedError.exit_code
            continue
        if done.returncode in (0, 1) and done.stdout:
            rows.append(_row(report, engine, msgspec.json.decode(done.stdout)))
        else:
            code = code or max(done.returncode, 0) or RefusedError.exit_code
            said = done.stderr.decode(errors="backslashreplace").strip().split("\n")[-1]
            notes.append(
                f"not compared with {engine}: {said.removeprefix('gdsctl: ') or f'exit code {done.returncode}'}"
            )
    return Compared(tuple(rows), tuple(notes), code)


def arguments(request: Request, report: ProbeReport, engine: str) -> list[str]:
    """The command line that repeats a probe with another engine."""
    chosen: dict[str, Any] = {
        "engine": engine,
        "rw": request.rw,
        "mix": request.read_percent if request.mixed else None,
        "bs": report.block_bytes,
        "size": request.size_bytes,
        "threads": report.threads,
        "iodepth": report.iodepth,
        "files": request.files,
        "duration": request.seconds or (report.seconds if request.sweeps else None),
        "warmup": request.warmup_seconds,
        "ramp": request.ramp_seconds,
        "rate": request.rate_bytes,
        "repeat": request.repeat,
        "gpu": None
        if engine == "posix" or request.gpus == ()
        else "all"
        if request.gpus is None
        else ",".join(map(str, request.gpus)),
        "numa": request.numa,
        "cufile-api": request.api if engine in _CUFILE else None,
        "seed": request.seed,
        "i-know-this-destroys-data": request.destroys,
        "format": "json",
    }
    options = [f"--{name}={value}" for name, value in chosen.items() if value is not None]
    flags = ["--allow-existing"] if request.allow_existing else []
    if engine in _CUFILE and not request.registered:
        flags.append("--unregistered")
    return ["probe", *options, *flags, "--", request.path]


_ONCE = "; one run each, which may be chance: --repeat would tell"


def _row(mine: ProbeReport, engine: str, other: dict[str, Any]) -> ComparisonRow:
    verdict = other["path_taken"]["verdict"]
    ratio = mine.bytes / mine.seconds / (other["bytes"] / other["seconds"])
    return ComparisonRow(
        engine=engine,
        carried_by=other["carried_by"],
        throughput_gbs=other["throughput_gbs"],
        cpu_seconds_per_gb=other["cpu_seconds_per_gb"],
        p50_us=other["latency_us"]["p50"],
        p99_us=other["latency_us"]["p99"],
        verdict=verdict,
        ratio=round(ratio, 4),
        says=said(mine.path_taken.verdict, engine, ratio, overlap=_overlap(mine, other["spread"]))
        + ("" if mine.spread is not None else _ONCE),
    )


def _overlap(mine: ProbeReport, other: dict[str, Any] | None) -> bool:
    """Did some of several runs do as well as some of the other's?"""
    return (
        mine.spread is not None
        and other is not None
        and mine.spread.min <= other["max"]
        and other["min"] <= mine.spread.max
    )


def said(verdict: str, engine: str, ratio: float, *, overlap: bool = False) -> str:
    """What a ratio of throughputs means: `verdict` is the path of the probe, `engine` what it is compared with."""
    if verdict in _TO_GPU and engine in _OVER_HOST and ratio <= 1 + _ALIKE:
        return (
            f"direct moves no more than {engine} here ({ratio:.2f} times): the storage or its link is the limit, not"
            " host memory; what direct saves is CPU and memory bandwidth"
        )
    if overlap:
        return f"no difference to {engine} that these runs could show ({ratio:.2f} times): their ranges overlap"
    if abs(ratio - 1) <= _ALIKE:
        return f"as much as {engine} ({ratio:.2f} times)"
    return f"{abs(ratio - 1) * 100:.0f} % {'more' if ratio > 1 else 'less'} than {engine}"

"""What a probe is asked for."""

from __future__ import annotations

import itertools
import os
from typing import Literal, NamedTuple

from gdsctl.errors import RefusedError, UsageError
from gdsctl.probe.libcufile import Api
from gdsctl.probe.posix import memory_bytes
from gdsctl.probe.sizes import words
from gdsctl.probe.traffic import Traffic

SWEEP = (4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20)
"""Block sizes of a sweep: what fio, gdsio and KV caches are commonly quoted at."""
SWEEP_SECONDS = 3.0

_SMALLEST, _LARGEST, _LARGEST_CHUNK = 512, 64 << 20, 1 << 30
_MOST_THREADS, _MOST_DEPTH, _MOST_FILES, _MOST_REPEATS, _MOST_CASES = 1024, 4096, 1024, 100, 200
_MOST_ROUNDS = 1_000_000
_LONGEST_S = 86400
_LONGEST_WAIT_S = 20


class Case(NamedTuple):
    """One combination of a sweep."""

    block_bytes: int
    threads: int
    iodepth: int


class Request(Traffic, frozen=True, kw_only=True):
    """`seconds` None: every block once; `rate_bytes`: a second, of all threads together; `gpus`: indices by the CUDA
    driver, empty for the first, None for all; `numa`: a node, `auto` or `off`; `destroys`: the block device given up;
    `api`, `registered`: how cuFile is called; `tool_mode`: of another
    program, how it moves blocks; `sessions`, `rounds`: of the workload kv-cache, what the chunks are dealt
    to and how often each is retrieved.
    """

    path: str
    engine: str = "auto"
    block_bytes: tuple[int, ...] = (1 << 20,)
    size_bytes: int = 1 << 30
    threads: tuple[int, ...] = (1,)
    iodepth: tuple[int, ...] = (1,)
    files: int = 1
    seconds: float | None = None
    warmup_seconds: float = 0.0
    ramp_seconds: float = 0.0
    rate_bytes: int | None = None
    repeat: int = 1
    gpus: tuple[int, ...] | None = ()
    numa: str = "auto"
    api: Api = "sync"
    tool_mode: str | None = None
    registered: bool = True
    verify: bool = False
    allow_existing: bool = False
    destroys: str | None = None
    strict: bool = False
    sweep: bool = False
    workload: Literal["kv-cache"] | None = None
    sessions: int | None = None
    rounds: int = 2
    seed: int = 0

    @property
    def cases(self) -> tuple[Case, ...]:
        """In the order in which they run. A plain sweep leaves out the blocks that --size has not one of a thread."""
        blocks = self.block_bytes
        if self.sweep:
            blocks = tuple(block for block in SWEEP if block * max(self.threads) <= self.size_bytes)
        return tuple(itertools.starmap(Case, itertools.product(blocks, self.threads, self.iodepth)))

    @property
    def sweeps(self) -> bool:
        return self.sweep or len(self.cases) > 1


def check(request: Request) -> None:
    """Raises UsageError for what cannot be run, RefusedError for what memory does not hold."""
    what, largest, told = ("--bs", _LARGEST, "64M") if request.workload is None else ("a chunk", _LARGEST_CHUNK, "1G")
    for block in request.block_bytes:
        if not _SMALLEST <= block <= largest or block % _SMALLEST:
            raise UsageError(f"{what} must be a multiple of 512 between 512 and {told}, not {block}")
    _within("--threads", request.threads, _MOST_THREADS)
    _within("--iodepth", request.iodepth, _MOST_DEPTH)
    _within("--files", (request.files,), min(_MOST_FILES, *request.threads), "or --threads, if that is less")
    _within("--repeat", (request.repeat,), _MOST_REPEATS)
    _within("--rounds", (request.rounds,), _MOST_ROUNDS)
    if not 0 <= request.read_percent <= 100:
        raise UsageError("--mix must be 0 to 100 (percent of reads)")
    if request.seconds is not None and not 0 < request.seconds <= _LONGEST_S:
        raise UsageError(f"--duration must be more than 0 and at most {_LONGEST_S} seconds")
    for name, seconds in (("--warmup", request.warmup_seconds), ("--ramp", request.ramp_seconds)):
        if not 0 <= seconds <= _LONGEST_S:
            raise UsageError(f"{name} must be 0 to {_LONGEST_S} seconds")
    if request.ramp_seconds and request.seconds is None and not request.sweeps:
        raise UsageError("--ramp needs a --duration: what is moved while threads begin one by one does not count")
    slowest = max((case.block_bytes * case.threads for case in request.cases), default=0)
    if request.rate_bytes is not None and request.rate_bytes < slowest / _LONGEST_WAIT_S:
        raise UsageError(f"--rate is less than a block of --bs for each of --threads in {_LONGEST_WAIT_S} seconds")
    if len(request.cases) > _MOST_CASES:
        raise UsageError(f"{len(request.cases)} combinations of --bs, --threads and --iodepth; {_MOST_CASES} at most")
    large = max(request.cases, key=lambda case: case.block_bytes * case.threads, default=None)
    if large is None or request.size_bytes < large.block_bytes * large.threads:
        what = "block" if request.workload is None else "chunk"
        least = f"one {what} of {words(large.block_bytes)}" if large else "a block"
        each = f" for each of {large.threads} threads" if large and large.threads > 1 else ""
        raise UsageError(f"--size {words(request.size_bytes)} is less than {least}{each}")
    if request.verify and request.allow_existing:
        raise UsageError("--verify needs contents that the probe wrote; it does not go with --allow-existing")
    require_memory(max(case.threads * memory_bytes(case.block_bytes * case.iodepth) for case in request.cases))


def require_memory(size_bytes: int) -> None:
    if size_bytes > os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2:
        raise RefusedError(f"{words(size_bytes)} of buffers are more than half of the memory that is free")


def _within(name: str, values: tuple[int, ...], most: int, more: str = "") -> None:
    if not all(1 <= value <= most for value in values):
        raise UsageError(f"{name} must be 1 to {most}{' ' if more else ''}{more}")

"""What a tool is: ways of moving blocks, a command line for each, and an output to be read."""

from __future__ import annotations

import glob
import os
import re
import shutil
from collections.abc import Sequence
from typing import Protocol

from gdsctl.errors import GdsctlError, UndecidedError, UsageError
from gdsctl.probe.engine import Direction
from gdsctl.probe.report import Latency
from gdsctl.probe.traffic import Traffic
from gdsctl.record import Record


class ToolError(GdsctlError):
    """The tool ran and failed, or told something else than its results."""

    exit_code = 5


class Mode(Record, frozen=True, kw_only=True):
    """A way in which a tool moves blocks. `name`: as the tool calls it; `what`: which path that asks for.

    `gpu`: into or out of GPU memory; `cufile`: by libcufile, which wants the file to have a name.
    """

    name: str
    what: str
    gpu: bool = False
    cufile: bool = False


class Work(Traffic, frozen=True, kw_only=True):
    """What is to be moved. `size_bytes`: of all threads together; `seconds` None: every block once; `gpus`: by the CUDA
    driver's index; `registered`: buffers, where libcufile moves them.
    """

    block_bytes: int = 1 << 20
    size_bytes: int = 1 << 30
    threads: int = 1
    iodepth: int = 1
    seconds: float | None = None
    gpus: tuple[int, ...] = ()
    registered: bool = True
    seed: int = 0

    @property
    def each_bytes(self) -> int:
        """Of one thread, in whole blocks."""
        return self.size_bytes // self.threads // self.block_bytes * self.block_bytes


class Side(Record, frozen=True, kw_only=True):
    """What was moved in one direction."""

    direction: Direction
    bytes: int
    blocks: int
    latency_us: Latency = Latency()


class Told(Record, frozen=True, kw_only=True):
    """What a tool's output says. `seconds`, `cpu_seconds`: in which it moved blocks, preparations left out; `notes`: what
    one has to know to compare.
    """

    seconds: float
    sides: tuple[Side, ...]
    cpu_seconds: float | None = None
    version: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(side.bytes for side in self.sides)

    @property
    def blocks(self) -> int:
        return sum(side.blocks for side in self.sides)


class ToolFigures(Record, frozen=True, kw_only=True):
    """`told`: by the tool; `command`: as it was run; `cpu_seconds`: user and system time of its processes;
    `wall_seconds`: from its start to its end; both with its own preparations; `direct`: did it have its files open with
    O_DIRECT, as far as that was seen?
    """

    tool: str
    version: str | None
    mode: Mode
    command: tuple[str, ...]
    told: Told
    cpu_seconds: float
    wall_seconds: float
    direct: bool | None = None


class Place(Record, frozen=True, kw_only=True):
    """`path`: of the file; `folder`: private, that it lies in, None for a file without a name; `results`: a file for
    results, where the tool wants one.
    """

    path: str
    folder: str | None
    results: str


class Tool(Protocol):
    """`makes_files`: it names and writes in Place.folder what it reads; else it is given one file, at Place.path."""

    name: str
    modes: tuple[Mode, ...]
    makes_files: bool

    def default(self, work: Work) -> str:
        """Name of the mode for this work, where none is asked for."""

    def program(self) -> str:
        """Its path; raises UndecidedError where it is not installed."""

    def version(self, program: str) -> str | None:
        """None where the output of a run tells it, or nothing does."""

    def require(self, program: str, mode: Mode, work: Work) -> None:
        """Raises UsageError for what this tool cannot do, UndecidedError for what this build of it cannot."""

    def layout(self, program: str, work: Work, place: Place) -> tuple[str, ...]:
        """The command that writes what will be read, of a tool that `makes_files`."""

    def command(self, program: str, mode: Mode, work: Work, place: Place) -> tuple[str, ...]: ...

    def parse(self, output: str, results: str, work: Work) -> Told:
        """`output`: what it printed; `results`: contents of Place.results. Raises ToolError."""


class GivenAFile:
    """A tool that works on one file, which it is given, and tells its version with its results or not at all."""

    makes_files = False

    def version(self, program: str) -> str | None:  # noqa: ARG002 -- the protocol's
        return None

    def layout(self, program: str, work: Work, place: Place) -> tuple[str, ...]:
        raise NotImplementedError


def find(name: str, places: Sequence[str] = ()) -> str:
    """On the PATH, else the last of the places (patterns) that has it. Raises UndecidedError."""
    found = shutil.which(name) or next(
        (path for pattern in places for path in sorted(glob.glob(pattern), reverse=True) if os.access(path, os.X_OK)),
        None,
    )
    if found is None:
        raise UndecidedError(f"{name} is not installed here; settle with: command -v {name}")
    return found


def mode_of(tool: Tool, wanted: str | None, work: Work) -> Mode:
    """Raises UsageError for a mode that the tool does not have."""
    name = tool.default(work) if wanted is None else wanted
    for mode in tool.modes:
        if mode.name == name:
            return mode
    raise UsageError(
        f"--tool-mode: {tool.name} has no mode {name}; it has {', '.join(mode.name for mode in tool.modes)}"
    )


def last_line(output: str) -> str:
    """In an error message: the last one that says something, results in JSON and tables of numbers left out."""
    lines = [line.strip() for line in output.splitlines()]
    said = [line for line in lines if re.search("[A-Za-z]{2} ", line) and not line.startswith('"')]
    return (said or [line for line in lines if line] or [""])[-1][:200]

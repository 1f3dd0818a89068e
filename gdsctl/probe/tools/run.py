"""A tool at work on a file of our own, which it never leaves behind."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from gdsctl.errors import UsageError
from gdsctl.probe.deadline import within
from gdsctl.probe.engine import Job
from gdsctl.probe.offsets import regions
from gdsctl.probe.posix import PosixEngine
from gdsctl.probe.run import flush
from gdsctl.probe.run import run as transfer
from gdsctl.probe.target import held, opened, own_folder, refused, require_space
from gdsctl.probe.tools.elbencho import Elbencho
from gdsctl.probe.tools.execute import Ended, execute
from gdsctl.probe.tools.fio import Fio
from gdsctl.probe.tools.gdsio import Gdsio
from gdsctl.probe.tools.nixlbench import Nixlbench
from gdsctl.probe.tools.open_files import Watch
from gdsctl.probe.tools.tool import Mode, Place, Tool, ToolError, ToolFigures, Work, last_line, mode_of

_ALL: tuple[Tool, ...] = (Fio(), Gdsio(), Elbencho(), Nixlbench())
TOOLS: Mapping[str, Tool] = {tool.name: tool for tool in _ALL}

_LAYOUT_BLOCK = 1 << 20
_BEYOND_S = 120.0
_BY_SIZE_S = 6 * 3600.0
_MOST_RESULTS = 16 << 20


class Prepared(NamedTuple):
    """A tool about to run. `descriptors`: that it inherits, of which the first is for its results."""

    tool: Tool
    mode: Mode
    work: Work
    command: tuple[str, ...]
    version: str | None
    place: Place
    descriptors: tuple[int, ...]
    environment: Mapping[str, str | None]

    @property
    def paths(self) -> tuple[str, ...]:
        """Of the files whose blocks it moves, as long as they are there."""
        if self.place.folder is None:
            return (self.place.path,)
        return tuple(sorted(os.path.join(self.place.folder, name) for name in os.listdir(self.place.folder)))

    def run(self) -> ToolFigures:
        """Once; may be called again. Raises ToolError where the tool fails, RefusedError where it does not end."""
        results, seconds = self.descriptors[0], self.work.seconds
        os.ftruncate(results, 0)
        watch = Watch([self.place.folder or self.place.path], self.descriptors)
        ended = _execute(
            self.command,
            limit_s=_BY_SIZE_S if seconds is None else seconds + _BEYOND_S,
            environment=self.environment,
            descriptors=self.descriptors,
            look=watch.look,
        )
        told = self.tool.parse(ended.stdout, os.pread(results, _MOST_RESULTS, 0).decode("utf-8", "replace"), self.work)
        if min(told.bytes, told.blocks, *(side.bytes for side in told.sides)) < 0 or not told.bytes * told.blocks:
            raise ToolError(f"{self.tool.name} tells that it moved nothing")
        if told.seconds <= 0:
            raise ToolError(f"{self.tool.name} was done in less time than it can tell; give more --size")
        return ToolFigures(
            tool=self.tool.name,
            version=told.version or self.version,
            mode=self.mode,
            command=self.command,
            told=told,
            cpu_seconds=round(ended.cpu_seconds, 6),
            wall_seconds=round(ended.wall_seconds, 6),
            direct=watch.direct,
        )

    def flush(self) -> float:
        """Seconds that fsync of the files took."""
        seconds = 0.0
        for path in self.paths:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                seconds += flush(descriptor, path)
            finally:
                os.close(descriptor)
        return seconds


def able(tool: Tool, mode: str | None, work: Work) -> tuple[str, Mode]:
    """The program and the mode it is to run in. Raises UsageError for what it cannot do, UndecidedError where it, or this
    mode of it, is not here.
    """
    chosen = mode_of(tool, mode, work)
    if not work.each_bytes:
        raise UsageError(f"--size is less than one block of --bs for each of {work.threads} threads")
    program = tool.program()
    tool.require(program, chosen, work)
    return program, chosen


@contextlib.contextmanager
def prepared(
    name: str, mode: str | None, work: Work, folder: str, *, environment: Mapping[str, str | None] | None = None
) -> Iterator[Prepared]:
    """The tool, with a file in `folder` that holds what it is to read; gone when the block ends, however it ends.

    `mode`: one of the tool's, None for its usual one; `environment`: on top of ours, such as CufileSettings.environment. Where
    the file needs a name, for libcufile or because the tool gives it one, it lies in a folder of its own.
    Raises as `able` does, RefusedError where the system refuses, ToolError where the tool fails.
    """
    tool = TOOLS[name]
    program, chosen = able(tool, mode, work)
    with contextlib.ExitStack() as stack:
        results = os.memfd_create("gdsctl-results")
        stack.callback(os.close, results)
        named = chosen.cufile or tool.makes_files
        path, inside, held = stack.enter_context(_folder(folder, work) if named else _nameless(folder, work))
        place = Place(path=path, folder=inside, results=f"/proc/self/fd/{results}")
        if "read" in work.directions:
            if tool.makes_files:
                _execute(tool.layout(program, work, place), limit_s=_BY_SIZE_S, environment={}, descriptors=())
            else:
                _lay_out(path, work)
        ready = Prepared(
            tool=tool,
            mode=chosen,
            work=work,
            command=tool.command(program, chosen, work, place),
            version=tool.version(program),
            place=place,
            descriptors=(results, *held),
            environment=environment or {},
        )
        if "read" in work.directions:
            ready.flush()
        yield ready


@contextlib.contextmanager
def _nameless(folder: str, work: Work) -> Iterator[tuple[str, None, tuple[int, ...]]]:
    """The tool opens it through the descriptor that it inherits."""
    size = work.each_bytes * work.threads
    with opened(folder, size, writes=True, allow_existing=False, block_bytes=work.block_bytes) as (target,):
        yield f"/proc/self/fd/{target.descriptor}", None, (target.descriptor,)


@contextlib.contextmanager
def _folder(folder: str, work: Work) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """A folder of our own, and the path of a file in it that is not there yet."""
    within(folder, lambda: require_space(folder, work.size_bytes))
    with own_folder(folder) as private:
        yield os.path.join(private, "file"), private, ()


def _lay_out(path: str, work: Work) -> None:
    """Write every block, so that reads find data and not holes."""
    with contextlib.ExitStack() as stack:
        try:
            descriptor = stack.enter_context(held(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT))
        except OSError as error:
            raise refused(path, error) from error
        size = work.each_bytes * work.threads
        block = work.block_bytes * max(1, _LAYOUT_BLOCK // work.block_bytes)
        for each, parts in (
            (block, regions(size, block, 2)),
            (work.block_bytes, (range(size // block * block, size, work.block_bytes),)),
        ):
            orders = [part for part in parts if part]
            job = Job(descriptor=descriptor, direction="write", block_bytes=each, seed=work.seed, checked=True)
            if orders:
                transfer(PosixEngine(1), [job] * len(orders), orders)


def _execute(
    command: tuple[str, ...],
    *,
    limit_s: float,
    environment: Mapping[str, str | None],
    descriptors: tuple[int, ...],
    look: Callable[[int], bool] | None = None,
) -> Ended:
    ended = execute(command, limit_s=limit_s, environment=environment, descriptors=descriptors, look=look)
    if ended.code:
        how = f"ended with {ended.code}" if ended.code > 0 else f"was ended by signal {-ended.code}"
        raise ToolError(f"{os.path.basename(command[0])} {how}: {last_line(ended.stderr) or last_line(ended.stdout)}")
    return ended

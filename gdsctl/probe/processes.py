"""Workers in processes of their own: threads of one interpreter wait for each other between two blocks."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, NamedTuple

from gdsctl.errors import RefusedError
from gdsctl.probe.pauses import Pauses

_MOST = 64
_PR_SET_PDEATHSIG = 1  # Linux, include/uapi/linux/prctl.h
_LOOK_EVERY_S = 1.0
_END_PATIENCE_S = 5.0
_CLEAN_PATIENCE_S = 300.0


def at_once(threads: int) -> int:
    """How many processes carry the blocks of so many threads: no more than there are CPUs.

    More would carry no more, and each switch between two finds caches and TLB filled by another.
    """
    return min(threads, _MOST, len(os.sched_getaffinity(0)))


class _Moved(NamedTuple):
    blocks: int


class Line:
    """A worker's connection to the process that started it."""

    def __init__(self, connection: Connection, stop: Callable[[], None]) -> None:
        self._connection = connection
        self._stop = stop

    def go(self) -> int:
        """Say that all is open; returns the common start, in nanoseconds of time.perf_counter_ns (CLOCK_MONOTONIC)."""
        self._connection.send(None)
        started: int = self._connection.recv()
        return started

    def moved(self, blocks: int) -> None:
        """Say how many blocks are done so far, and hear whether to stop."""
        self._connection.send(_Moved(blocks))
        if self._connection.poll():
            self._stop()


Work = Callable[[Connection], Any]


class _Worker(NamedTuple):
    process: int
    connection: Connection


def together(
    works: Sequence[Work],
    *,
    ended: Callable[[Any], bool],
    moved: Callable[[int], None],
    patience_s: float,
    begin: Callable[[], None] = lambda: None,
) -> list[Any]:
    """What each work returns, or raises, in order; each in a forked process, and begun at one moment (Line.go).

    `ended`: does a result end the others; `begin`: told when all are about to begin; `moved`: told the sum of Line.moved. No process outlives this call, or its
    caller's SIGKILL, but for one that the kernel does not let go of. Raises RefusedError where one is killed or silent.
    """
    results: list[Any] = [None] * len(works)
    with _workers(works) as workers:
        at = {worker.connection: number for number, worker in enumerate(workers)}
        waiting, blocks = set(at), [0] * len(works)
        unready = len(works)
        stopped, heard, pauses = False, time.monotonic(), Pauses()
        while waiting:
            ready = waiting.intersection(wait(list(waiting), _LOOK_EVERY_S))
            heard += pauses.after(_LOOK_EVERY_S)
            for connection in ready:
                heard = time.monotonic()
                try:
                    said = connection.recv()
                except (EOFError, ConnectionError):
                    raise RefusedError(_killed(workers[at[connection]].process)) from None
                if said is None:
                    unready -= 1
                    if not unready:
                        begin()
                        _tell(at, time.perf_counter_ns())
                elif isinstance(said, _Moved):
                    blocks[at[connection]] = said.blocks
                else:
                    results[at[connection]] = said
                    waiting.discard(connection)
                    if not stopped and ended(said):
                        stopped = True
                        if unready:  # it never came to begin: the others need not either
                            return results
                        _tell(waiting, 0)
            moved(sum(blocks))
            if time.monotonic() - heard > patience_s + 2 * _END_PATIENCE_S:
                why = "is the storage still there?"
                if any(_is_stopped(worker.process) for worker in workers):
                    why = "one is stopped, by a signal or a debugger"
                raise RefusedError(f"worker processes said nothing for {patience_s:g} s; {why}")
    return results


def _killed(process: int) -> str:
    """How a worker ended that said nothing; left to be waited for."""
    until = time.monotonic() + _LOOK_EVERY_S  # its pipe is closed a little before it is gone
    facts = None
    while facts is None and time.monotonic() < until:
        facts = os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        time.sleep(0.005)
    if facts is None or facts.si_code == os.CLD_EXITED:
        return "a worker process ended and said nothing"
    name = signal.Signals(facts.si_status).name
    return f"a worker process was ended by {name}" + ("; was there too little memory?" if name == "SIGKILL" else "")


def _is_stopped(process: int) -> bool:
    """State T or t in /proc/PID/stat, behind the name, which may hold anything."""
    try:
        with open(f"/proc/{process}/stat", "rb") as stream:
            return stream.read().rpartition(b") ")[2][:1] in (b"T", b"t")
    except OSError:
        return False


def _tell(connections: Any, what: int) -> None:
    for connection in connections:
        with contextlib.suppress(OSError):  # one that has just ended
            connection.send(what)


@contextlib.contextmanager
def _workers(works: Sequence[Work]) -> Iterator[list[_Worker]]:
    workers: list[_Worker] = []
    parent = os.getpid()
    try:
        for work in works:
            ours, theirs = Pipe()
            try:
                process = _fork()
            except OSError as error:
                ours.close()
                theirs.close()
                raise RefusedError(f"starting {len(works)} worker processes: {error.strerror}") from error
            if not process:
                _live(work, theirs, parent, [ours, *(worker.connection for worker in workers)])
            theirs.close()
            workers.append(_Worker(process, ours))
        yield workers
    finally:
        for worker in workers:
            worker.connection.close()
        _reap([worker.process for worker in workers])


@contextlib.contextmanager
def keeper(clean: Callable[[], None], *, keeps: int | None = None) -> Iterator[Callable[[], None]]:
    """Does `clean` when the block ends, in a process that outlives SIGKILL of this one and of its workers.

    It waits for the end of a connection that they all hold open; `keeps`: a descriptor that it wants. Given is what tells
    it that there is nothing to clean. Raises RefusedError where it cannot be started.
    """
    ours, theirs = socket.socketpair()
    try:
        process = _fork()
    except OSError as error:
        ours.close()
        theirs.close()
        raise RefusedError(f"starting a process that cleans up: {error.strerror}") from error
    if not process:
        _keep(theirs.detach(), ours.detach(), clean, keeps)
    theirs.close()

    def nothing_to_clean() -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # somebody killed it
            ours.send(b"x")

    try:
        if not ours.recv(1):  # until it is out of reach of what ends this one
            raise RefusedError("the process that cleans up ended before it began")
        yield nothing_to_clean
    finally:
        ours.close()
        _wait_for(process, _CLEAN_PATIENCE_S)


def _keep(mine: int, theirs: int, clean: Callable[[], None], keeps: int | None) -> None:
    """The whole life of the keeper; does not return. `keeps`: the one descriptor that stays open for `clean`."""
    try:
        # What the terminal or a shell sends to the group is not for it, nor what `killall` sends to all of one name: it
        # keeps off whatever can be kept off, as _fork left it.
        os.setsid()
        os.close(theirs)
        # Whoever reads our output to its end does not wait for this one; and what is left open may be all that may be.
        for descriptor in _descriptors() - {mine, keeps}:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        os.write(mine, b"x")
        try:
            told = os.read(mine, 1)
        except ConnectionResetError:  # it was killed with our word unread
            told = b""
        if not told:
            os.close(mine)
            clean()
    finally:
        os._exit(0)


def _descriptors() -> set[int]:
    """That are open here, or may be where /proc is not mounted."""
    try:
        return set(map(int, os.listdir("/proc/self/fd")))
    except OSError:
        return set(range(1024))


def _wait_for(process: int, seconds: float) -> None:
    until = time.monotonic() + seconds
    while os.waitpid(process, os.WNOHANG)[0] == 0 and time.monotonic() < until:
        time.sleep(0.005)


def _fork() -> int:
    """The child comes back with all signals held off; it lets them in when it is set up to live with them.

    Python runs other modules' functions after a fork, in the parent, too: a KeyboardInterrupt in one of them would be
    written to standard error and forgotten (logging's, for one).
    """
    held, process = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()), -1
    try:
        with warnings.catch_warnings():
            # Python 3.12 warns where there are other threads, whose locks a child would keep; it takes none of them.
            warnings.simplefilter("ignore", DeprecationWarning)
            process = os.fork()
            return process
    finally:
        if process:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)


def _live(work: Work, connection: Connection, parent: int, others: Sequence[Connection]) -> None:
    """The whole life of a worker; does not return."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to all; the parent decides
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            return
        for other in others:
            other.close()
        try:
            said = work(connection)
        except Exception as error:  # noqa: BLE001 -- told by the parent
            said = error
        connection.send(said)
    finally:
        os._exit(0)


def _reap(processes: list[int]) -> None:
    until = time.monotonic() + _END_PATIENCE_S
    killed = False
    while processes:
        processes = [process for process in processes if os.waitpid(process, os.WNOHANG)[0] == 0]
        if not processes:
            return
        if not killed:  # they have said what they had to say, or nobody listens any more
            killed = True
            for process in processes:
                os.kill(process, signal.SIGKILL)
        elif time.monotonic() > until:
            return
        time.sleep(0.001)

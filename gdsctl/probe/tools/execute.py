"""A program run to its end: no shell, gone when we are gone, its output bounded, its CPU time counted."""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, NamedTuple

from gdsctl.errors import RefusedError
from gdsctl.probe.target import refused

_PR_SET_PDEATHSIG = 1  # Linux, include/uapi/linux/prctl.h
_MOST_OUTPUT = 16 << 20
_FIRST_LOOKS_S, _LOOK_EVERY_S = 0.01, 0.5
_END_PATIENCE_S = 3.0

_prctl = ctypes.CDLL(None).prctl  # found before the fork: afterwards nothing may take a lock


class Ended(NamedTuple):
    """`code`: exit status, below zero the signal that ended it."""

    code: int
    stdout: str
    stderr: str
    cpu_seconds: float
    wall_seconds: float


def execute(
    command: Sequence[str],
    *,
    limit_s: float,
    environment: Mapping[str, str | None] | None = None,
    descriptors: Sequence[int] = (),
    look: Callable[[int], bool] | None = None,
) -> Ended:
    """Call it from a thread that lives as long as the program may: the kernel ends it with that thread.

    `environment`: on top of ours, None to remove; `descriptors`: it inherits, by their numbers;
    `look`: called with its process while it runs, more seldom once it has seen something. Raises RefusedError where it cannot be
    started or is not done within `limit_s`; its process group is gone however this ends.
    """
    began = time.monotonic()
    parent = os.getpid()
    merged: dict[str, str | None] = {**os.environ, "LC_ALL": "C", **(environment or {})}
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # closed at once; a chroot may have no /dev/null
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={name: value for name, value in merged.items() if value is not None},
            pass_fds=descriptors,
            start_new_session=True,
            preexec_fn=lambda: _tie(parent),  # noqa: PLW1509 -- two system calls, no lock
        )
    except OSError as error:
        raise refused(command[0], error) from error
    if process.stdin is not None:
        process.stdin.close()
    status: int | None = None
    cpu = 0.0
    try:
        texts = _drain(process, began + limit_s, look)
        while status is None:
            if time.monotonic() > began + limit_s:
                raise RefusedError(f"{command[0]} was not done after {limit_s:g} s, and was ended")
            status, cpu = _reaped(process)
            if status is None:
                time.sleep(0.01)
    finally:
        if status is None:
            status = _end(process)
        else:
            _signal(process, signal.SIGKILL)  # what it may have left behind
        process.returncode = os.waitstatus_to_exitcode(status)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
    return Ended(process.returncode, *texts, cpu, time.monotonic() - began)


def _tie(parent: int) -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _drain(process: subprocess.Popen[bytes], until: float, look: Callable[[int], bool] | None) -> tuple[str, str]:
    """Both outputs until they end; what is beyond the limit is read and forgotten."""
    streams = [stream for stream in (process.stdout, process.stderr) if stream is not None]
    kept: dict[IO[bytes], bytearray] = {stream: bytearray() for stream in streams}
    every_s = _FIRST_LOOKS_S if look is not None else _LOOK_EVERY_S
    with selectors.DefaultSelector() as selector:
        for stream in kept:
            selector.register(stream, selectors.EVENT_READ, stream)
        while selector.get_map() and time.monotonic() < until:
            ready = selector.select(every_s)
            if look is not None:
                every_s = _LOOK_EVERY_S if look(process.pid) else _FIRST_LOOKS_S
            for key, _ in ready:
                stream = key.data
                chunk = os.read(key.fd, 1 << 16)
                if not chunk:
                    selector.unregister(stream)
                kept[stream] += chunk[: max(0, _MOST_OUTPUT - len(kept[stream]))]
    out, err = (bytes(text).decode("utf-8", "replace") for text in kept.values())
    return out, err


def _reaped(process: subprocess.Popen[bytes]) -> tuple[int | None, float]:
    pid, status, usage = os.wait4(process.pid, os.WNOHANG)
    return (status, usage.ru_utime + usage.ru_stime) if pid else (None, 0.0)


def _end(process: subprocess.Popen[bytes]) -> int:
    """Ask, then force. A process that the kernel does not let go of (a vanished server) is left to it."""
    _signal(process, signal.SIGTERM)
    until = time.monotonic() + _END_PATIENCE_S
    while (status := _reaped(process)[0]) is None and time.monotonic() < until + _END_PATIENCE_S:
        if time.monotonic() > until:
            _signal(process, signal.SIGKILL)
        time.sleep(0.01)
    _signal(process, signal.SIGKILL)
    return signal.SIGKILL if status is None else status


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)

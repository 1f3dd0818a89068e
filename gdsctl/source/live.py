"""The running machine."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from gdsctl.model.node import SourceInfo
from gdsctl.source.base import Missing, Output, decode, printable
from gdsctl.source.commands import COMMANDS, ENVIRONMENT
from gdsctl.source.tree import missing, read_file

_LOCAL = ("/sys/", "/proc/", "/etc/", "/run/", "/dev/", "/boot/", "/usr/", "/lib/", "/var/")
_SIGNS = {"/sys": "/sys/class", "/proc": "/proc/self"}  # what stands wherever these are mounted
_PATIENCE_S = 5.0
_OUTPUT_LIMIT = 32 * 1024 * 1024

T = TypeVar("T")


class LiveSource:
    """Reads the machine gdsctl runs on. Never writes, never sets anything, never waits for ever."""

    def __init__(self) -> None:
        self._info = SourceInfo(
            kind="live",
            host=os.uname().nodename,
            captured_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            euid=os.geteuid(),
        )
        self._unmounted = tuple(f"{folder}/" for folder, sign in _SIGNS.items() if not os.path.lexists(sign))
        self._outputs: dict[str, Output | Missing] = {}
        self._answers: dict[str, Any] = {}

    @property
    def info(self) -> SourceInfo:
        return self._info

    def read(self, path: str) -> bytes | Missing:
        return self._seen(path, _guarded(path, read_file))

    def names(self, path: str) -> tuple[str, ...] | Missing:
        return self._seen(path, _guarded(path, _listing))

    def real(self, path: str) -> str | Missing:
        return self._seen(path, _guarded(path, _canonical))

    def exists(self, path: str) -> bool | Missing:
        reading = self._seen(path, _guarded(path, os.lstat))
        if isinstance(reading, Missing):
            return False if reading.status == "absent" else reading
        return True

    def _seen(self, path: str, reading: T | Missing) -> T | Missing:
        """Nothing is absent from a sysfs that is not mounted, as in some containers: it cannot be looked at."""
        if isinstance(reading, Missing) and reading.status == "absent" and path.startswith(self._unmounted):
            return Missing(status="not_captured", detail=f"{path[: path.index('/', 1)]} is not mounted")
        return reading

    def run(self, name: str) -> Output | Missing:
        """Each command is run once; who asks again hears the same."""
        if name not in self._outputs:
            self._outputs[name] = self._start(name)
        return self._outputs[name]

    def _start(self, name: str) -> Output | Missing:
        command = COMMANDS.get(name)
        if command is None:
            return Missing(status="not_captured", detail=f"gdsctl does not run {name} itself")
        environment = dict(ENVIRONMENT)
        if name == "gdscheck":
            environment |= {key: value for key, value in os.environ.items() if key.startswith("CUFILE_")}
        for argv in command.argvs:
            program = shutil.which(argv[0], path=ENVIRONMENT["PATH"])
            if program:
                return _run([program, *argv[1:]], environment, command.timeout_s)
        return Missing(status="no_tool", detail=f"{command.argvs[0][0]} is not installed")

    def ask(self, name: str) -> Any | Missing:
        """Each library is asked once."""
        if name not in self._answers:
            self._answers[name] = self._ask(name)
        return self._answers[name]

    def _ask(self, name: str) -> Any | Missing:
        if name == "nvml":
            from gdsctl.source import nvml

            return nvml.ask()
        if name == "udev":
            from gdsctl.source import udev

            return udev.ask()
        from gdsctl.source import host

        return host.ask()


def _listing(path: str) -> tuple[str, ...]:
    return tuple(sorted(map(printable, os.listdir(path))))


def _canonical(path: str) -> str:
    os.lstat(path)
    real = printable(os.path.realpath(path))
    me = f"/proc/{os.getpid()}"  # what /proc/self is for now; the name that lasts says more
    return "/proc/self" + real[len(me) :] if real == me or real.startswith(me + "/") else real


def _guarded(path: str, function: Callable[[str], T]) -> T | Missing:
    """The function's answer, or the reason; outside the system's own folders (a dead NFS server) only with a deadline."""
    if path.startswith(_LOCAL):
        return _attempt(path, function)
    box: list[T | Missing] = []
    worker = threading.Thread(target=lambda: box.append(_attempt(path, function)), daemon=True)
    worker.start()
    worker.join(_PATIENCE_S)
    return box[0] if box else Missing(status="timeout", detail=f"no answer within {_PATIENCE_S:g} s")


def _attempt(path: str, function: Callable[[str], T]) -> T | Missing:
    try:
        return function(path)
    except OSError as error:
        return missing(error)
    except ValueError as error:  # a NUL or half a surrogate pair, from a file's contents: no file has such a name
        return Missing(status="absent", detail=str(error))


def _run(argv: list[str], environment: dict[str, str], timeout_s: float) -> Output | Missing:
    try:
        process = subprocess.Popen(
            argv,
            env=environment,
            stdin=subprocess.PIPE,  # closed at once; a chroot may have no /dev/null
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # so that a wrapper's children end with it
        )
    except OSError as error:
        return missing(error)
    if process.stdin is not None:
        process.stdin.close()
    try:
        streams = _streams(process, time.monotonic() + timeout_s)
    except BaseException:
        _end(process)
        raise
    if streams is None or sum(map(len, streams)) > _OUTPUT_LIMIT:
        _end(process)
        if streams is None:
            return Missing(status="timeout", detail=f"{argv[0]} gave no result within {timeout_s:g} s")
        return Missing(status="error", detail=f"{argv[0]} printed more than {_OUTPUT_LIMIT} bytes")
    return Output(stdout=decode(streams[0]), stderr=decode(streams[1]), exit_code=process.returncode)


def _streams(process: subprocess.Popen[bytes], until: float) -> tuple[bytes, bytes] | None:
    """Standard output and error until the process has ended; no more than a little over the limit; None if too late."""
    heard = (bytearray(), bytearray())
    with selectors.DefaultSelector() as selector:
        for stream, place in zip((process.stdout, process.stderr), heard, strict=True):
            if stream is not None:
                selector.register(stream, selectors.EVENT_READ, place)
        while selector.get_map() and sum(map(len, heard)) <= _OUTPUT_LIMIT:
            ready = selector.select(max(0.0, until - time.monotonic()))
            if not ready:
                return None
            for key, _ in ready:
                chunk = os.read(key.fd, 65536)
                key.data.extend(chunk)
                if not chunk:
                    selector.unregister(key.fileobj)
    if sum(map(len, heard)) <= _OUTPUT_LIMIT:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            return None
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    return bytes(heard[0]), bytes(heard[1])


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):  # stuck in the kernel: it dies when the kernel lets go
        process.wait(timeout=1)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()

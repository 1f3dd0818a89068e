"""The running machine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from typing import Any

from gdsctl.model.node import SourceInfo
from gdsctl.source.base import Missing, Output, decode
from gdsctl.source.commands import COMMANDS, ENVIRONMENT
from gdsctl.source.tree import missing, read_file

_LOCAL = ("/sys/", "/proc/", "/etc/", "/run/", "/dev/", "/boot/", "/usr/", "/lib/", "/var/")
_PATIENCE_S = 5.0
_OUTPUT_LIMIT = 32 * 1024 * 1024


class LiveSource:
    """Reads the machine gdsctl runs on. Never writes, never sets anything, never waits for ever."""

    def __init__(self) -> None:
        self._info = SourceInfo(
            kind="live",
            host=os.uname().nodename,
            captured_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            euid=os.geteuid(),
        )

    @property
    def info(self) -> SourceInfo:
        return self._info

    def read(self, path: str) -> bytes | Missing:
        return _guarded(path, read_file)

    def names(self, path: str) -> tuple[str, ...] | Missing:
        reading: tuple[str, ...] | Missing = _guarded(path, lambda place: tuple(sorted(os.listdir(place))))
        return reading

    def real(self, path: str) -> str | Missing:
        try:
            os.lstat(path)
            return os.path.realpath(path) if os.path.islink(path) else path
        except OSError as error:
            return missing(error)

    def exists(self, path: str) -> bool | Missing:
        reading = _guarded(path, os.lstat)
        if isinstance(reading, Missing):
            return False if reading.status == "absent" else reading
        return True

    def run(self, name: str) -> Output | Missing:
        command = COMMANDS[name]
        environment = dict(ENVIRONMENT)
        if name == "gdscheck":
            environment |= {key: value for key, value in os.environ.items() if key.startswith("CUFILE_")}
        for argv in command.argvs:
            program = shutil.which(argv[0], path=ENVIRONMENT["PATH"])
            if program:
                return _run([program, *argv[1:]], environment, command.timeout_s)
        return Missing(status="no_tool", detail=f"{command.argvs[0][0]} is not installed")

    def ask(self, name: str) -> Any | Missing:
        if name == "nvml":
            from gdsctl.source import nvml

            return nvml.ask()
        if name == "udev":
            from gdsctl.source import udev

            return udev.ask()
        from gdsctl.source import host

        return host.ask()


def _guarded(path: str, function: Any) -> Any:
    """The function's answer, or the reason; outside the system's own folders (a dead NFS server) only with a deadline."""
    try:
        if path.startswith(_LOCAL):
            return function(path)
    except OSError as error:
        return missing(error)
    box: list[Any] = []

    def attempt() -> None:
        try:
            box.append(function(path))
        except OSError as error:
            box.append(missing(error))

    worker = threading.Thread(target=attempt, daemon=True)
    worker.start()
    worker.join(_PATIENCE_S)
    return box[0] if box else Missing(status="timeout", detail=f"no answer within {_PATIENCE_S:g} s")


def _run(argv: list[str], environment: dict[str, str], timeout_s: float) -> Output | Missing:
    try:
        process = subprocess.Popen(
            argv,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # so that a wrapper's children end with it
        )
    except OSError as error:
        return missing(error)
    try:
        stdout, stderr = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _end(process)
        return Missing(status="timeout", detail=f"{argv[0]} gave no result within {timeout_s:g} s")
    except BaseException:
        _end(process)
        raise
    if len(stdout) > _OUTPUT_LIMIT:
        return Missing(status="error", detail=f"{argv[0]} printed more than {_OUTPUT_LIMIT} bytes")
    return Output(stdout=decode(stdout), stderr=decode(stderr), exit_code=process.returncode)


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    try:
        process.communicate(timeout=1)
    except subprocess.TimeoutExpired:
        pass  # stuck in the kernel: it dies when the kernel lets go

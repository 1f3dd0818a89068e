"""What a Source offers: six verbs, each with an answer or the reason why there is none."""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeGuard, TypeVar, runtime_checkable

from gdsctl.model.node import SourceInfo
from gdsctl.record import Record

Status = Literal["absent", "denied", "error", "timeout", "not_captured", "no_tool"]

FILE_LIMIT = 16 * 1024 * 1024
"""A file longer than this many bytes is an error, not a fact: the largest we read, kallsyms, has about 10 MB."""


class Missing(Record, frozen=True, kw_only=True):
    """Why a reading gave nothing.

    absent: looked for and not there; denied: needs more rights; not_captured: nobody looked; no_tool: the command is
    not installed. `detail`: the system's words or the tool's.
    """

    status: Status
    detail: str = ""


class Output(Record, frozen=True, kw_only=True):
    """What a command printed. `stdout` and `stderr` are decoded with backslash escapes for bytes that are not UTF-8."""

    stdout: str
    stderr: str = ""
    exit_code: int = 0


MANIFEST_LIMIT = 96 * 1024 * 1024
"""Of manifest.json, which names every path asked for: 10,000 functions with 25 attributes of 90 characters are 24 MB."""


T = TypeVar("T")


def got(reading: T | Missing) -> TypeGuard[T]:
    """True where a reading holds its value."""
    return not isinstance(reading, Missing)


@runtime_checkable
class Source(Protocol):
    """A machine to read: the running one, a snapshot of another, or a bare tree.

    Paths are absolute and in canonical form (no `.`, `..`, `//`); implementations never leave their root.
    """

    @property
    def info(self) -> SourceInfo: ...

    def read(self, path: str) -> bytes | Missing:
        """The whole file, links followed."""

    def names(self, path: str) -> tuple[str, ...] | Missing:
        """Sorted names in a directory."""

    def real(self, path: str) -> str | Missing:
        """The canonical path, every link followed as realpath(3) does; a link's target need not stand there."""

    def exists(self, path: str) -> bool | Missing:
        """Does something stand there, of whatever kind?"""

    def run(self, name: str) -> Output | Missing:
        """What a command printed, by its name in `gdsctl.source.commands.COMMANDS` or as a snapshot calls it."""

    def ask(self, name: str) -> Any | Missing:
        """A library's answer as plain JSON values: `nvml`, `udev` or `host`."""


def printable(name: str) -> str:
    r"""A file name as the system calls give it, bytes that are not UTF-8 as `\xNN`: JSON has no lone surrogates."""
    if name.isascii():
        return name
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def decode(raw: bytes) -> str:
    r"""Text of a file: UTF-8, other bytes as `\xNN`, so that it can always be printed and compared."""
    return raw.decode("utf-8", "backslashreplace")

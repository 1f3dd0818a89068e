"""The one exception family. Each class owns its exit code; its text is the one line a user sees."""

from __future__ import annotations


class GdsctlError(Exception):
    """An end that gdsctl can explain in one line."""

    exit_code = 70


class UsageError(GdsctlError):
    """The command line asks for something that does not exist or does not go together."""

    exit_code = 2


class UndecidedError(GdsctlError):
    """A fact that the answer rests on is unknown; the text names it and the command that settles it."""

    exit_code = 3


class InputError(GdsctlError):
    """An input (snapshot, intent, cufile.json, pasted output) is not valid: `FILE:LINE: reason`."""

    exit_code = 4

    def __init__(self, reason: str, *, line: int | None = None, path: str | None = None) -> None:
        """`reason` has no trailing stop; `line` counts from 1; `path` is what the user called the input."""
        super().__init__(reason)
        self.reason = reason
        self.line = line
        self.path = path

    def at(self, path: str) -> InputError:
        """The same error with the name of the input it came from, unless it already has one."""
        return self if self.path else type(self)(self.reason, line=self.line, path=path)

    def __str__(self) -> str:
        where = ":".join(str(part) for part in (self.path, self.line) if part is not None)
        return f"{where}: {self.reason}" if where else self.reason


class RefusedError(GdsctlError):
    """The operating system refused or ran out while doing what was asked."""

    exit_code = 5

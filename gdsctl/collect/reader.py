"""Readings as text, with what is missing written down as gaps."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

from gdsctl.errors import InputError
from gdsctl.model.unknown import Gap, GapReason
from gdsctl.source.base import Missing, Source, Status, decode

T = TypeVar("T")

_REASONS: dict[Status, GapReason] = {
    "absent": "absent",
    "denied": "denied",
    "error": "error",
    "timeout": "timeout",
    "not_captured": "absent",
    "no_tool": "absent",
}


_REMEMBERED_LENGTH = 1 << 19


@functools.lru_cache(maxsize=48)
def _remembered(parse: Callable[[str], T], text: str) -> T:
    return parse(text)


def record_of(parse: Callable[[str], T], text: str) -> T:
    """A text's record. Parsers are pure, several collectors ask for one text, and a fleet's nodes share most of theirs."""
    return _remembered(parse, text) if len(text) <= _REMEMBERED_LENGTH else parse(text)


def reason_of(missing: Missing) -> GapReason:
    """The document's word for why a reading is missing; what nobody captured counts as absent from the source."""
    return _REASONS[missing.status]


class Reader:
    """A Source plus the list of what it could not tell. One for each collection of a node."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.gaps: list[Gap] = []

    def text(self, path: str) -> str | Missing:
        """A file as text, its trailing newline kept."""
        reading = self.source.read(path)
        return reading if isinstance(reading, Missing) else decode(reading)

    def value(self, path: str) -> str | None:
        """The stripped text of a one-value file, or None; for attributes whose absence means "none".

        Sysfs and device tree values are C strings: what follows a NUL is padding.
        """
        reading = self.source.read(path)
        return None if isinstance(reading, Missing) else decode(reading.partition(b"\0")[0]).strip()

    def parsed(self, path: str, parse: Callable[[str], T]) -> T | Missing:
        """A file through a parser; text that the parser refuses is an error of that file, not of the run."""
        text = self.text(path)
        if isinstance(text, Missing):
            return text
        try:
            return record_of(parse, text)
        except InputError as error:
            return Missing(status="error", detail=f"{path}: {error}")

    def printed(self, command: str, parse: Callable[[str], T]) -> T | Missing:
        """A command's standard output through a parser; a failing command is an error with its first words."""
        output = self.source.run(command)
        if isinstance(output, Missing):
            return output
        if output.exit_code and not output.stdout.strip():
            words = output.stderr.strip().splitlines()
            return Missing(
                status="error", detail=f"{command} ended with {output.exit_code}: {words[0] if words else ''}"
            )
        try:
            return record_of(parse, output.stdout)
        except InputError as error:
            return Missing(status="error", detail=f"{command}: {error}")

    def gap(
        self,
        section: str,
        field: str,
        why: Missing | GapReason,
        *,
        key: str | None = None,
        detail: str = "",
        settle_with: str | None = None,
    ) -> None:
        """Write down that a field of the document is not known."""
        if isinstance(why, Missing):
            reason = reason_of(why)
            detail = ": ".join(part for part in (detail, _words(why)) if part)
        else:
            reason = why
        self.gaps.append(
            Gap(section=section, field=field, reason=reason, key=key, detail=detail, settle_with=settle_with)
        )


def _words(missing: Missing) -> str:
    prefix = "not captured" if missing.status == "not_captured" else ""
    return "; ".join(part for part in (prefix, missing.detail) if part)

"""dmesg and the kernel's part of the journal: the lines that explain a broken path."""

from __future__ import annotations

import functools
import re

from gdsctl.data.tables import load
from gdsctl.record import Record

_LONGEST = 2000


class KernelLogLine(Record, frozen=True, kw_only=True):
    """A row of data/kernel_log.toml. `pattern` may name groups `module`, `symbol` and `address` (PCI).

    `finding`: id of what explains it.
    """

    meaning: str
    contains: str
    pattern: str
    finding: str | None = None
    source: str


class KernelEvent(Record, frozen=True, kw_only=True):
    """`line` counts from 1; `text`: the line as it stands, at most 2000 characters around what was found."""

    meaning: str
    module: str | None = None
    symbol: str | None = None
    address: str | None = None
    text: str
    line: int


class KernelLog(Record, frozen=True, kw_only=True):
    """In order of the lines. No events is no proof of health: the ring buffer forgets."""

    events: tuple[KernelEvent, ...]


class _Table(Record, frozen=True, kw_only=True):
    line: tuple[KernelLogLine, ...]


@functools.cache
def known_lines() -> tuple[KernelLogLine, ...]:
    """The rows of data/kernel_log.toml."""
    return load("kernel_log.toml", _Table).line


@functools.cache
def _patterns() -> tuple[tuple[KernelLogLine, re.Pattern[str]], ...]:
    return tuple((row, re.compile(row.pattern, re.ASCII)) for row in known_lines())


def parse(text: str) -> KernelLog:
    """Any text is a log; lines that mean nothing here are passed over."""
    hits: list[tuple[int, KernelLogLine, re.Match[str], str]] = []
    for row, pattern in _patterns():
        at = text.find(row.contains)
        while at != -1:
            floor = max(0, at - _LONGEST // 2)
            start = text.rfind("\n", floor, at) + 1 or floor
            end = text.find("\n", at)
            end = len(text) if end == -1 else end
            shown = text[start : min(end, at + _LONGEST // 2)]
            match = pattern.search(shown)
            if match is not None:
                hits.append((at, row, match, shown.strip()))
            at = text.find(row.contains, end)
    hits.sort(key=lambda hit: hit[0])
    events = []
    line, counted = 1, 0
    for at, row, match, shown in hits:
        line += text.count("\n", counted, at)
        counted = at
        parts = match.groupdict()
        events.append(
            KernelEvent(
                meaning=row.meaning,
                module=parts.get("module"),
                symbol=parts.get("symbol"),
                address=parts.get("address"),
                text=shown,
                line=line,
            )
        )
    return KernelLog(events=tuple(events))

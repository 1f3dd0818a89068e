"""cufile.log: ` DD-MM-YYYY HH:MM:SS:ms [pid=N tid=N] LEVEL  file:line text`, as libcufile 1.11 to 1.20 writes it."""

from __future__ import annotations

import functools
import re
from collections import Counter, deque
from collections.abc import Iterator

from gdsctl.data.tables import load
from gdsctl.errors import InputError
from gdsctl.model.cufile_run import CufileRun
from gdsctl.parse import pasted
from gdsctl.record import Record, Warned

MOST_ENTRIES = 1000
_MOST_RUNS = 100
_MOST_WARNINGS = 100
_LONGEST_TEXT = 2000

_LINE = re.compile(
    r"[ \t]*(\d\d)-(\d\d)-(\d{4}) (\d\d):(\d\d):(\d\d):(\d{1,6}) \[pid=(\d{1,10}) tid=(\d{1,10})\]"
    r"[ \t]+(ERROR|WARN|NOTICE|INFO|DEBUG|TRACE)\b[ \t]*(.*)"
)
_WHERE = re.compile(r"([\w.\-]{1,80}:\d{1,7})(?:[ \t]+|$)")


class LogEntry(Record, frozen=True, kw_only=True):
    """A line. `time`: ISO 8601, the process's local time; `where`: source file and line; `text`: at most 2000 characters.

    `meaning`: id of a message that `cufile_log.toml` explains, or None.
    """

    time: str
    pid: int
    tid: int
    level: str
    where: str | None
    text: str
    meaning: str | None = None


class CufileLog(Record, frozen=True, kw_only=True):
    """`lines`: lines that hold something. `entries`: the last 1000; `omitted`: how many came before them.

    `levels` and `meanings` count over all lines, whatever is omitted. `runs`: the last 100 processes, in the order of
    their last lines: the library appends to a file for ever, so the state of the machine is the last run's, all else is
    what once was. `stale`: lines left out since they are of another process or older than asked for. `truncated`: the
    last line is cut.
    """

    lines: int
    entries: tuple[LogEntry, ...]
    omitted: int = 0
    levels: dict[str, int] = {}
    meanings: dict[str, int] = {}
    runs: tuple[CufileRun, ...] = ()
    stale: int = 0
    truncated: bool = False
    warnings: tuple[Warned, ...] = ()


class Message(Record, frozen=True, kw_only=True):
    """A message and what it means, in one sentence. `patterns`: parts of a line's text, any of which tells it.

    `findings`: ids of findings that it may come from.
    """

    meaning: str
    patterns: tuple[str, ...]
    text: str
    findings: tuple[str, ...] = ()
    source: str


@functools.lru_cache(maxsize=1)
def messages() -> tuple[Message, ...]:
    """Rows of `gdsctl/data/cufile_log.toml`."""
    return load("cufile_log.toml", dict[str, tuple[Message, ...]])["messages"]


@functools.lru_cache(maxsize=1)
def _patterns() -> tuple[tuple[str, str], ...]:
    return tuple((pattern, row.meaning) for row in messages() for pattern in row.patterns)


def meaning(text: str) -> str | None:
    """Id of the first message that fits a line's text, or None."""
    for pattern, name in _patterns():
        if pattern in text:
            return name
    return None


class _Run:
    """A process as its lines come in."""

    def __init__(self, pid: int, time: str) -> None:
        self.pid, self.first, self.last, self.lines = pid, time, time, 0
        self.levels: Counter[str] = Counter()
        self.meanings: Counter[str] = Counter()

    def record(self) -> CufileRun:
        rows = {row.meaning: row.findings for row in messages()}
        return CufileRun(
            pid=self.pid,
            first=self.first,
            last=self.last,
            lines=self.lines,
            levels=dict(self.levels),
            meanings=dict(self.meanings),
            findings=tuple(dict.fromkeys(id_ for name in self.meanings for id_ in rows[name])),
        )


def parse(text: str, *, pid: int | None = None, since: str | None = None) -> CufileLog:
    """A cufile.log, whole or pasted in parts. Raises InputError where no line is one of its own; an empty log is fine.

    `pid`: of this process only; `since`: nothing older than this time, ISO 8601 as in LogEntry, or the head of one.
    """
    runs: dict[int, _Run] = {}
    stale = 0
    recent: deque[re.Match[str]] = deque(maxlen=MOST_ENTRIES)
    levels: Counter[str] = Counter()
    meanings: Counter[str] = Counter()
    warnings: list[Warned] = []
    lines = unread = 0
    last_read = True
    first_unread: int | None = None
    for number, raw in enumerate(_lines(text), 1):
        if not raw or raw.isspace():
            continue
        lines += 1
        match = _LINE.match(raw) or _LINE.match(pasted.lines(raw[: 2 * _LONGEST_TEXT])[0])
        last_read = match is not None
        if match is None:
            first_unread = first_unread or number
            unread += 1
            if unread <= _MOST_WARNINGS:
                warnings.append(Warned(line=number, message="not a line of cufile.log"))
            continue
        process, time = int(match[8]), _time(match)
        if (pid is not None and process != pid) or (since is not None and time < since):
            stale += 1
            continue
        run = runs.pop(process, None) or _Run(process, time)
        runs[process] = run  # the last to write stands last
        if len(runs) > _MOST_RUNS:
            del runs[next(iter(runs))]
        run.last = time
        run.lines += 1
        levels[match[10]] += 1
        run.levels[match[10]] += 1
        name = meaning(match[11][:_LONGEST_TEXT])
        if name:
            meanings[name] += 1
            run.meanings[name] += 1
        recent.append(match)
    if lines and unread == lines:
        raise InputError("not a cufile.log", line=first_unread)
    return CufileLog(
        lines=lines,
        entries=tuple(_entry(match) for match in recent),
        omitted=lines - unread - stale - len(recent),
        levels=dict(levels),
        meanings=dict(meanings),
        runs=tuple(run.record() for run in runs.values()),
        stale=stale,
        truncated=not last_read and not text.endswith("\n"),
        warnings=tuple(warnings),
    )


def _lines(text: str) -> Iterator[str]:
    """One line at a time: a log may be large, and a list of its lines as large again."""
    start = 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        yield text[start:end]
        start = end + 1


def _time(match: re.Match[str]) -> str:
    day, month, year, hour, minute, second, milli = match.groups()[:7]
    return f"{year}-{month}-{day}T{hour}:{minute}:{second}.{int(milli):03d}"


def _entry(match: re.Match[str]) -> LogEntry:
    pid, tid, level, rest = match.groups()[7:]
    rest = rest[: _LONGEST_TEXT + 100].rstrip()
    where = _WHERE.match(rest)
    text = (rest[where.end() :] if where else rest)[:_LONGEST_TEXT]
    return LogEntry(
        time=_time(match),
        pid=int(pid),
        tid=int(tid),
        level=level,
        where=where[1] if where else None,
        text=text,
        meaning=meaning(text),
    )

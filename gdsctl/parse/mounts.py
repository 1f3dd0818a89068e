r"""/proc/mounts, /proc/self/mountinfo and the output of `mount`, told apart line by line.

The kernel writes blank, tab, newline, backslash (and `#`) in names as octal escapes (Linux, fs/proc_namespace.c,
mangle()); `mount` prints names as they are. Everything else in a name is data, other kinds of white space included.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from gdsctl.errors import InputError
from gdsctl.parse import pasted, terminal
from gdsctl.record import Record, Warned


class MountEntry(Record, frozen=True, kw_only=True):
    """One mount. `options`: of the mount and of its superblock together, as /proc/mounts and findmnt show them.

    From mountinfo alone: `major_minor`, `root` (what of the filesystem is mounted), `optional_fields` ("shared:1").
    """

    target: str
    source: str
    fstype: str
    options: tuple[str, ...] = ()
    major_minor: str | None = None
    root: str | None = None
    optional_fields: tuple[str, ...] = ()


class Mounts(Record, frozen=True, kw_only=True):
    """In the order listed: a later mount on the same target hides the earlier one."""

    mounts: tuple[MountEntry, ...]
    truncated: bool = False
    warnings: tuple[Warned, ...] = ()


_ESCAPE = re.compile(r"\\([01][0-7]{2})")
_TWO_IDS = re.compile(r"\d{1,10} \d{1,10} \d{1,10}:\d{1,10} ", re.ASCII)
_DUMP_PASS = re.compile(r"\d{1,4}", re.ASCII)
_FSTYPE = re.compile(r"[A-Za-z0-9_][\w.+-]*", re.ASCII)
_LABEL = re.compile(r" \[[^\]]*\]$")


def unescape(name: str) -> str:
    r"""`\040` and its like to the characters they stand for."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), name)


def split_options(text: str) -> tuple[str, ...]:
    """Options at the commas outside double quotes (SELinux contexts hold quoted commas), unescaped."""
    parts = [""]
    for index, piece in enumerate(text.split('"')):
        if index:
            parts[-1] += '"'
        if index % 2:
            parts[-1] += piece
        else:
            first, *others = piece.split(",")
            parts[-1] += first
            parts += others
    return tuple(unescape(part) for part in parts if part)


def _merged(mount: tuple[str, ...], superblock: tuple[str, ...]) -> tuple[str, ...]:
    access = "ro" if "ro" in mount or "ro" in superblock else "rw"
    return tuple(dict.fromkeys((access, *(option for option in mount + superblock if option not in ("ro", "rw")))))


def _mountinfo(line: str) -> MountEntry | None:
    if _TWO_IDS.match(line) is None:
        return None
    left, separator, right = line.partition(" - ")
    fields, tail = left.split(" "), right.split(" ")
    if not separator or len(fields) < 6 or len(tail) != 3 or not fields[4].startswith("/"):
        return None
    return MountEntry(
        target=unescape(fields[4]),
        source=unescape(tail[1]),
        fstype=unescape(tail[0]),
        options=_merged(split_options(fields[5]), split_options(tail[2])),
        major_minor=fields[2],
        root=unescape(fields[3]),
        optional_fields=tuple(field for field in fields[6:] if field),
    )


def _proc_mounts(line: str) -> MountEntry | None:
    fields = line.split(" ")
    if len(fields) != 6 or not all(_DUMP_PASS.fullmatch(field) for field in fields[4:]):
        return None
    source, target, fstype, options = fields[:4]
    if not target.startswith("/") or not fstype or not options:
        return None
    return MountEntry(
        target=unescape(target), source=unescape(source), fstype=unescape(fstype), options=split_options(options)
    )


def _mount_output(line: str) -> MountEntry | None:
    line = _LABEL.sub("", line) if line.endswith("]") else line
    if not line.endswith(")"):
        return None
    source, on, rest = line.partition(" on /")
    target, kind, tail = rest.rpartition(" type ")
    fstype, blank, options = tail.partition(" (")
    # " on /" or " type " inside a name leaves two readings.
    if not (on and kind and blank) or " on /" in rest or " type " in target or _FSTYPE.fullmatch(fstype) is None:
        return None
    return MountEntry(target="/" + target, source=source, fstype=fstype, options=split_options(options[:-1]))


_FORMS: tuple[Callable[[str], MountEntry | None], ...] = (_mountinfo, _proc_mounts, _mount_output)


def _read(line: str) -> MountEntry | None:
    return next((entry for form in _FORMS if (entry := form(line)) is not None), None)


def _read_pasted(cleaned: str) -> MountEntry | None:
    """A line without what a paste added; blanks squeezed where the line says nothing else."""
    return _read(cleaned) or _read(re.sub(r"[ \t]+", " ", cleaned))


def _rejoined(first: str, second: str) -> MountEntry | None:
    """A line that was wrapped: with or without a blank at the break, but only one of them may make sense."""
    readings = [entry for entry in (_read(first + second), _read(f"{first} {second}")) if entry is not None]
    if len(readings) != 1 or any(" " in option for option in readings[0].options) or " " in readings[0].target:
        return None
    return readings[0]


def parse(text: str) -> Mounts:
    """All mounts, in order. Raises InputError where no line is a mount."""
    mounts: list[MountEntry] = []
    warnings: list[Warned] = []
    held: tuple[int, str] | None = None

    def unread(number: int) -> None:
        warnings.append(Warned(line=number, message="not a mount in any of the three forms"))

    for number, raw in enumerate(text.split("\n"), 1):
        entry, cleaned = _read(raw.removesuffix("\r")), ""
        if entry is None:  # cleaning first would change names that look like a paste's marks
            cleaned = pasted.lines(raw)[0].strip(" \t\r")
            if not cleaned or terminal.is_chrome(cleaned):
                continue
            entry = _read_pasted(cleaned)
        if entry is not None:
            if held is not None:
                unread(held[0])
            held = None
        elif held is not None and (entry := _rejoined(held[1], cleaned)) is not None:
            held = None
        else:
            if held is not None:
                unread(held[0])
            held = (number, cleaned)
        if entry is not None:
            mounts.append(entry)
    if held is not None:
        unread(held[0])
    if not mounts:
        raise InputError("no mounts: neither /proc/mounts, mountinfo nor the output of mount", line=1)
    return Mounts(mounts=tuple(mounts), truncated=held is not None, warnings=tuple(warnings))

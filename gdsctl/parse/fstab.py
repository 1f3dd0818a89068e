"""/etc/fstab (fstab(5)): what is mounted at boot, with the line that says so."""

from __future__ import annotations

import re

from gdsctl.model.devices import FstabEntry
from gdsctl.parse.mounts import split_options, unescape
from gdsctl.record import Record, Warned


class Fstab(Record, frozen=True, kw_only=True):
    """In the order of the file."""

    entries: tuple[FstabEntry, ...] = ()
    warnings: tuple[Warned, ...] = ()


_BLANKS = re.compile(r"[ \t]+")
_NUMBER = re.compile(r"\d{1,4}", re.ASCII)


def parse(text: str) -> Fstab:
    """Any text is an fstab: lines that name no mount are told in `warnings`. Options, dump and pass may be left out."""
    entries: list[FstabEntry] = []
    warnings: list[Warned] = []
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip(" \t\r")
        if not line or line.startswith("#"):
            continue
        fields = _BLANKS.split(line, maxsplit=6)
        fields = fields[: next((at for at, field in enumerate(fields) if field.startswith("#") and at > 2), 6)]
        numbers = fields[4:6]
        if len(fields) < 3 or not all(_NUMBER.fullmatch(field) for field in numbers):
            warnings.append(Warned(line=number, message="not a line of fstab"))
            continue
        dump, passno = (*map(int, numbers), 0, 0)[:2]
        entries.append(
            FstabEntry(
                line=number,
                source=unescape(fields[0]),
                target=_target(unescape(fields[1])),
                fstype=unescape(fields[2]),
                options=split_options(fields[3]) if len(fields) > 3 else (),
                dump=dump,
                passno=passno,
            )
        )
    return Fstab(entries=tuple(entries), warnings=tuple(warnings))


def _target(path: str) -> str:
    """Without the slash at the end that a mount table never shows."""
    return path.rstrip("/") or path

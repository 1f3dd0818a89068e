"""/etc/fstab. Grammar: fstab(5) and libmount (util-linux, libmount/src/tab_parse.c)."""

from __future__ import annotations

from gdsctl.parse.mounts import split_options, unescape
from gdsctl.record import Record, Warned


class FstabEntry(Record, frozen=True, kw_only=True):
    """One line. `options` as they stand, commas in double quotes kept; `dump` and `pass_` 0 where left out."""

    source: str
    target: str
    fstype: str
    options: tuple[str, ...] = ()
    dump: int = 0
    pass_: int = 0
    line: int


class Fstab(Record, frozen=True, kw_only=True):
    entries: tuple[FstabEntry, ...] = ()
    warnings: tuple[Warned, ...] = ()


def parse(text: str) -> Fstab:
    """Lines of two to six fields; `none` and `swap` targets are entries as well."""
    entries: list[FstabEntry] = []
    warnings: list[Warned] = []
    for number, line in enumerate(text.split("\n"), 1):
        fields = line.strip(" \t\r\0").split()
        if not fields or fields[0].startswith("#"):
            continue
        numbers = fields[4:6]
        if len(fields) < 3 or not all(part.isascii() and part.isdecimal() and len(part) < 5 for part in numbers):
            warnings.append(Warned(line=number, message="not a line of fstab"))
            continue
        entries.append(
            FstabEntry(
                source=unescape(fields[0]),
                target=unescape(fields[1]),
                fstype=fields[2],
                options=split_options(fields[3]) if len(fields) > 3 else (),
                dump=int(numbers[0]) if numbers else 0,
                pass_=int(numbers[1]) if len(numbers) > 1 else 0,
                line=number,
            )
        )
    return Fstab(entries=tuple(entries), warnings=tuple(warnings))

"""Options of programs: rows of `app_options.toml`."""

from __future__ import annotations

import difflib
import functools

from gdsctl.data.tables import load
from gdsctl.record import Record

_ALIKE = 0.9  # of an option of a list that is not complete: above what two options of one program have in common


class ProgramRow(Record, frozen=True, kw_only=True):
    """`options`: of the versions `first` to `last` of `software`, all together; both empty: the list is not complete."""

    name: str
    software: str
    first: str = ""
    last: str = ""
    options: tuple[str, ...]
    source: str


@functools.cache
def program(name: str) -> ProgramRow:
    return next(
        row for row in load("app_options.toml", dict[str, tuple[ProgramRow, ...]])["program"] if row.name == name
    )


def nearest(row: ProgramRow, option: str) -> str | None:
    """The option that is spelt most like this one."""
    alike = difflib.get_close_matches(option, row.options, 1, 0.75 if row.last else _ALIKE)
    return alike[0] if alike else None


def knows(row: ProgramRow, option: str) -> bool:
    """Python's argparse takes the beginning of an option for it."""
    return option in row.options or (bool(row.last) and any(known.startswith(option) for known in row.options))

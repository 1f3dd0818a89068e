"""cuFile's error codes, what leads to them and how to tell causes apart: rows of `cufile_errors.toml`."""

from __future__ import annotations

import functools

from gdsctl.data.tables import load
from gdsctl.record import Record


class Cause(Record, frozen=True, kw_only=True):
    """`tell`: how this cause shows; `finding`: id that tells more."""

    cause: str
    tell: str
    finding: str | None = None


class CufileError(Record, frozen=True, kw_only=True):
    """`causes`: those that are known; none is no proof that there is none."""

    code: int
    name: str
    meaning: str
    causes: tuple[Cause, ...] = ()
    source: str


class _Table(Record, frozen=True, kw_only=True):
    error: tuple[CufileError, ...]


@functools.cache
def errors() -> tuple[CufileError, ...]:
    return load("cufile_errors.toml", _Table).error


def error(word: str) -> CufileError | None:
    """By number (5030, -5030) or name (INTERNAL_ERROR, CU_FILE_INTERNAL_ERROR)."""
    name = word.upper().removeprefix("CU_FILE_")
    return next((row for row in errors() if str(row.code) == word.removeprefix("-") or row.name == name), None)

"""Versions below or above which something does not work: rows of `limits.toml`."""

from __future__ import annotations

import functools
import re

from gdsctl.data.tables import load
from gdsctl.record import Record

_VERSION = re.compile(r"\s*v?([0-9]{1,9}(?:\.[0-9]{1,9}){0,7})(?!\.?[0-9])")


class Limit(Record, frozen=True, kw_only=True):
    value: str
    source: str


@functools.cache
def _table() -> dict[str, Limit]:
    return load("limits.toml", dict[str, Limit])


def limit(name: str) -> Limit:
    """A row; raises KeyError."""
    return _table()[name]


def numbers(version: str) -> tuple[int, ...]:
    """The leading dotted number of a version: "570.124.06" -> (570, 124, 6), "6.8.0-31-generic" -> (6, 8, 0).

    Empty for what is no version: no number, more than nine digits in one, more than eight of them.
    """
    match = _VERSION.match(version)
    return tuple(int(part) for part in match[1].split(".")) if match else ()


def below(version: str, name: str) -> bool | None:
    """Is a version older than a limit? None where the version is not one."""
    return older(version, limit(name).value)


def older(version: str, than: str) -> bool | None:
    """Is a version older than another? None where one of them is not one."""
    found, wanted = numbers(version), numbers(than)
    if not found or not wanted:
        return None
    length = max(len(found), len(wanted))
    return found + (0,) * (length - len(found)) < wanted + (0,) * (length - len(wanted))

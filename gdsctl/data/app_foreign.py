"""Files that people hand to `gdsctl app` and that are something else: rows of `app_foreign.toml`."""

from __future__ import annotations

import functools

from gdsctl.data.tables import load
from gdsctl.record import Record


class ForeignRow(Record, frozen=True, kw_only=True):
    """`what`: what it is called; `pattern`: searched in its first characters, `^` at each line; `use`: the command, or words.

    `{file}` in `use` is the file's own name. `source`: whose format it is.
    """

    what: str
    pattern: str
    use: str
    source: str


class BinaryRow(Record, frozen=True, kw_only=True):
    """`magic`: first bytes in hexadecimal, any of them."""

    what: str
    magic: tuple[str, ...]
    use: str
    source: str


class _Table(Record, frozen=True, kw_only=True):
    input: tuple[ForeignRow, ...]
    binary: tuple[BinaryRow, ...]


@functools.cache
def _table() -> _Table:
    return load("app_foreign.toml", _Table)


def rows() -> tuple[ForeignRow, ...]:
    return _table().input


def binaries() -> tuple[BinaryRow, ...]:
    return _table().binary

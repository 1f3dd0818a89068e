"""Names that came with a version or went with one: rows of `app_versions.toml`."""

from __future__ import annotations

import functools

from gdsctl.data.limits import older
from gdsctl.data.tables import load
from gdsctl.record import Record


class VersionRow(Record, frozen=True, kw_only=True):
    """`since`: first version of `of` that knows the name; `until`: first that does not any more; empty: no such version."""

    of: str
    name: str
    since: str = ""
    until: str = ""
    source: str


@functools.cache
def rows() -> tuple[VersionRow, ...]:
    return load("app_versions.toml", dict[str, tuple[VersionRow, ...]])["name"]


@functools.cache
def _table() -> dict[tuple[str, str], VersionRow]:
    return {(row.of, row.name): row for row in rows()}


def unknown_to(of: str, version: str, name: str) -> VersionRow | None:
    """The row of a name that this version does not know."""
    row = _table().get((of, name))
    if row is None:
        return None
    early = bool(row.since) and older(version, row.since)
    late = bool(row.until) and older(version, row.until) is False
    return row if early or late else None

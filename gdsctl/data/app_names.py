"""Deprecated names: rows of `app_names.toml`."""

from __future__ import annotations

import functools
from typing import Literal

from gdsctl.data.tables import load
from gdsctl.record import Record


class NameRow(Record, frozen=True, kw_only=True):
    """`kind`: where the name stands (nixl-backend, connector, lmcache-key); `said`: what its project says of it."""

    kind: str
    name: str
    said: str
    instead: str
    severity: Literal["warning", "info"]
    source: str


@functools.cache
def _table() -> dict[tuple[str, str], NameRow]:
    return {(row.kind, row.name): row for row in load("app_names.toml", dict[str, tuple[NameRow, ...]])["name"]}


def deprecated(kind: str, name: str) -> NameRow | None:
    return _table().get((kind, name))

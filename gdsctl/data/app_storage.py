"""Storage drivers of Kubernetes: rows of `app_storage.toml`."""

from __future__ import annotations

import functools

from gdsctl.data.tables import load
from gdsctl.record import Record


class DriverRow(Record, frozen=True, kw_only=True):
    """`name`: as a StorageClass's provisioner and a volume's csi.driver have it; `filesystem`: a row of filesystems.toml."""

    name: str
    filesystem: str
    source: str


@functools.cache
def _table() -> dict[str, DriverRow]:
    return {row.name: row for row in load("app_storage.toml", dict[str, tuple[DriverRow, ...]])["driver"]}


def driver(name: str) -> DriverRow | None:
    return _table().get(name)

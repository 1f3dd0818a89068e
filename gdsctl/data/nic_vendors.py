"""Makers of network adapters: rows of `nic_vendors.toml`."""

from __future__ import annotations

import functools

from gdsctl.data.tables import load
from gdsctl.record import Record


class NicVendor(Record, frozen=True, kw_only=True):
    """`id`: PCI vendor id, 4 lower-case hex digits; `name`: short, as people say it."""

    id: str
    name: str
    source: str


class _Table(Record, frozen=True, kw_only=True):
    vendor: tuple[NicVendor, ...]


@functools.cache
def _names() -> dict[str, str]:
    return {row.id: row.name for row in load("nic_vendors.toml", _Table).vendor}


def vendor(vendor_id: str | None) -> str | None:
    """The maker's name; the digits themselves for one that is not in the table."""
    return None if vendor_id is None else _names().get(vendor_id, vendor_id)

"""Names of the PCI devices that matter to GPUDirect Storage: rows of `pci_names.toml`."""

from __future__ import annotations

import functools

from gdsctl.data.tables import load
from gdsctl.record import Record


class PciName(Record, frozen=True, kw_only=True):
    """Ids in 4 lower-case hex digits."""

    vendor_id: str
    device_id: str
    name: str
    source: str


class _Table(Record, frozen=True, kw_only=True):
    device: tuple[PciName, ...]


@functools.cache
def _by_ids() -> dict[tuple[str, str], PciName]:
    return {(row.vendor_id, row.device_id): row for row in load("pci_names.toml", _Table).device}


def name(vendor_id: str | None, device_id: str | None) -> str | None:
    """A device's name; None for one that is not in the table."""
    row = _by_ids().get((vendor_id or "", device_id or ""))
    return row.name if row else None

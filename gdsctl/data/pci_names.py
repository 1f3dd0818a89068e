"""Names of the PCI vendors and devices that matter to GPUDirect Storage: rows of `pci_names.toml`."""

from __future__ import annotations

import functools
import re

from gdsctl.data.tables import load
from gdsctl.record import Record

_NAMELESS = re.compile(r"Device ([0-9a-f]{4})$")  # what lspci prints for a device that its pci.ids lacks


class PciName(Record, frozen=True, kw_only=True):
    """Ids in 4 lower-case hex digits."""

    vendor_id: str
    device_id: str
    name: str
    source: str


class PciVendor(Record, frozen=True, kw_only=True):
    id: str
    name: str
    source: str


class _Tables(Record, frozen=True, kw_only=True):
    device: tuple[PciName, ...]
    vendor: tuple[PciVendor, ...]


@functools.cache
def _tables() -> _Tables:
    return load("pci_names.toml", _Tables)


@functools.cache
def _by_ids() -> dict[tuple[str, str], PciName]:
    return {(row.vendor_id, row.device_id): row for row in _tables().device}


@functools.cache
def _by_name() -> dict[tuple[str, str], PciName]:
    return {(row.vendor_id, row.name): row for row in _tables().device}


def name(vendor_id: str | None, device_id: str | None) -> str | None:
    """A device's name; None for one that is not in the table."""
    row = _by_ids().get((vendor_id or "", device_id or ""))
    return row.name if row else None


def ids(text: str) -> tuple[str | None, str | None]:
    """Vendor and device id of a name as lspci prints it without -n, `Vendor Device`; None for what no row knows."""
    vendor = next((row for row in _tables().vendor if text.startswith(row.name + " ")), None)
    if vendor is None:
        return None, None
    told = text[len(vendor.name) + 1 :]
    device = _by_name().get((vendor.id, told))
    nameless = _NAMELESS.match(told)
    return vendor.id, device.device_id if device else nameless[1] if nameless else None


def nameless(text: str) -> bool:
    """Is it the name of a device that lspci's own table lacks: `Vendor Device 2330`?"""
    return _NAMELESS.search(text) is not None

"""Host bridges and processors across which Linux allows peer-to-peer DMA: rows of `host_bridges.toml`."""

from __future__ import annotations

import functools

from gdsctl.data.tables import load
from gdsctl.record import Record


class HostBridge(Record, frozen=True, kw_only=True):
    """One entry of the kernel's list.

    `device_id` None: any of the vendor; `same_bridge_only`: not between two host bridges; `since`: first mainline
    release (major, minor) that has the entry, None where that is not known.
    """

    vendor_id: str
    device_id: str | None = None
    name: str
    same_bridge_only: bool = False
    since: tuple[int, int] | None = None
    source: str


class TrustedCpu(Record, frozen=True, kw_only=True):
    """Processors of a vendor (CPUID vendor string) from a family on."""

    vendor: str
    family_from: int
    name: str
    since: tuple[int, int]
    source: str


class RdmaChipset(Record, frozen=True, kw_only=True):
    """A root complex that NVIDIA's driver takes for unable to carry peer-to-peer traffic; ids of ports and host bridges."""

    vendor_id: str
    device_ids: tuple[str, ...]
    name: str
    source: str


class _Tables(Record, frozen=True, kw_only=True):
    bridge: tuple[HostBridge, ...]
    cpu: tuple[TrustedCpu, ...]
    rdma_chipset: tuple[RdmaChipset, ...]


@functools.cache
def _tables() -> _Tables:
    return load("host_bridges.toml", _Tables)


@functools.cache
def host_bridge(vendor_id: str, device_id: str) -> HostBridge | None:
    """The kernel's entry for the first function of a root bus; None where it has none."""
    return next(
        (row for row in _tables().bridge if row.vendor_id == vendor_id and row.device_id in (device_id, None)), None
    )


def trusted_cpu(vendor: str, family: int) -> TrustedCpu | None:
    """The row of a processor with which any host bridge will do."""
    return next((row for row in _tables().cpu if row.vendor == vendor and family >= row.family_from), None)


def rdma_chipset(vendor_id: str | None, device_id: str | None) -> RdmaChipset | None:
    """The chipset that a port or host bridge belongs to, where the driver refuses dma-buf across it."""
    rows = _tables().rdma_chipset
    return next((row for row in rows if row.vendor_id == vendor_id and device_id in row.device_ids), None)


def trusting_vendors() -> frozenset[str]:
    """CPU vendors of which some families are trusted."""
    return frozenset(row.vendor for row in _tables().cpu)

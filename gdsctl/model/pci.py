"""PCI functions as sysfs, lspci or a topology file show them."""

from __future__ import annotations

import re
from typing import Literal

from gdsctl.record import Record

PortKind = Literal[
    "root_port",
    "upstream_port",
    "downstream_port",
    "pci_bridge",
    "pcie_to_pci_bridge",
    "endpoint",
    "root_complex_endpoint",
    "unknown",
]
AcsState = Literal["enabled", "disabled", "absent", "unreadable"]

CONVENTIONAL_CONFIG_BYTES = 256
"""Where configuration space ends for a function without extended capabilities (PCI Local Bus Specification 3.0, 6.1)."""

# ACS capability and control bits, in bit order; PCI Express Base Specification 6.0, 7.7.12; names as lspci prints them.
ACS_BITS: tuple[str, ...] = (
    "SrcValid",
    "TransBlk",
    "ReqRedir",
    "CmpltRedir",
    "UpstreamFwd",
    "EgressCtrl",
    "DirectTrans",
)
# What makes the kernel send peer traffic up to the host bridge; Linux drivers/pci/p2pdma.c, pci_bridge_has_acs_redir().
ACS_REDIRECTING: frozenset[str] = frozenset({"ReqRedir", "CmpltRedir", "EgressCtrl"})

_ADDRESS = re.compile(r"^(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])$", re.IGNORECASE)


def canonical_address(text: str) -> str | None:
    """`dddd:bb:dd.f` in lower case, or None; a missing domain is 0000, NVML's 8-digit domains are shortened."""
    match = _ADDRESS.match(text.strip())
    if not match:
        return None
    domain, bus, device, function = match.groups()
    if int(device, 16) > 0x1F:
        return None
    return f"{int(domain or '0', 16):04x}:{bus.lower()}:{device.lower()}.{function}"


def address_key(address: str) -> tuple[int, int, int, int]:
    """Sort key: domains are numbers (10000 comes after 2000); raises ValueError for what is not an address."""
    match = _ADDRESS.match(address)
    if not match:
        raise ValueError(address)
    domain, bus, device, function = match.groups()
    return int(domain or "0", 16), int(bus, 16), int(device, 16), int(function)


class Link(Record, frozen=True, kw_only=True):
    """PCIe link of a function to the port above it. None: not known or no link."""

    speed_gts: float | None = None
    width: int | None = None
    max_speed_gts: float | None = None
    max_width: int | None = None


class Acs(Record, frozen=True, kw_only=True):
    """Access Control Services of one function. `redirects`: None where the control register could not be read."""

    state: AcsState = "unreadable"
    capabilities: tuple[str, ...] = ()
    enabled: tuple[str, ...] = ()
    redirects: bool | None = None


class Bar(Record, frozen=True, kw_only=True):
    index: int
    size_bytes: int
    prefetchable: bool


class Sriov(Record, frozen=True, kw_only=True):
    is_vf: bool = False
    physfn: str | None = None


class PciDevice(Record, frozen=True, kw_only=True, rename={"class_": "class"}):
    """One PCI function. `parent`: the bridge above, None on a root bus or where it is not known.

    `kind_inferred` is true where the PCIe capability could not be read and the kind follows from the tree's shape.
    `root_bus`: `dddd:bb` of the root bus it hangs under. `secondary_bus`: for bridges.
    """

    address: str
    parent: str | None = None
    kind: PortKind = "unknown"
    kind_inferred: bool = False
    vendor_id: str | None = None
    device_id: str | None = None
    subsystem_vendor_id: str | None = None
    subsystem_device_id: str | None = None
    class_: str | None = None
    name: str | None = None
    driver: str | None = None
    numa_node: int | None = None
    link: Link = Link()
    acs: Acs = Acs()
    iommu_group: str | None = None
    bars: tuple[Bar, ...] = ()
    sriov: Sriov = Sriov()
    root_bus: str | None = None
    secondary_bus: int | None = None
    subordinate_bus: int | None = None
    config_bytes: int | None = None

"""PCI configuration space: identity, port kind, link and ACS.

Layout: PCI Express Base Specification 6.0, chapter 7 (7.5.1 headers, 7.5.3 PCI Express capability, 7.6.3 extended
capabilities, 7.7.12 ACS, 9.3.3 SR-IOV). Linux hands 64 bytes (128 of a CardBus bridge) to a reader that lacks
CAP_SYS_ADMIN in the initial user namespace; those hold the header and no capability.
"""

from __future__ import annotations

import functools
import struct

import msgspec

from gdsctl.model.pci import ACS_BITS, ACS_REDIRECTING, Acs, Link, PortKind
from gdsctl.record import Record

_HEADER = 0x40
_CONVENTIONAL = 0x100

_BRIDGE, _CARDBUS = 1, 2  # header types; 0 is an ordinary function
_CAPABILITY_LIST = 0x10  # in the status register

_CAP_SUBSYSTEM = 0x0D
_CAP_EXPRESS = 0x10
_EXT_ACS = 0x000D
_EXT_SRIOV = 0x0010

# Device/Port Type of the PCI Express Capabilities register, table 7-19.
_KINDS: dict[int, PortKind] = {
    0: "endpoint",
    1: "endpoint",  # legacy endpoint
    4: "root_port",
    5: "upstream_port",
    6: "downstream_port",
    7: "pcie_to_pci_bridge",
    8: "pci_bridge",  # PCI to PCIe: its upper side is conventional
    9: "root_complex_endpoint",
    10: "root_complex_endpoint",  # event collector
}
_LINKLESS = frozenset({9, 10})  # inside the root complex: the link registers are reserved
_SPEEDS_GTS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}


class VirtualFunctions(Record, frozen=True, kw_only=True):
    """SR-IOV: the first virtual function's routing id is the physical one's + `offset`, the next ones `stride` apart."""

    count: int
    offset: int
    stride: int


class PciConfig(Record, frozen=True, kw_only=True, rename={"class_": "class"}):
    """One function's configuration space. Ids are lower-case hex; None: not in the bytes, or reserved.

    `header_type`: 0 ordinary, 1 bridge, 2 CardBus. `port_type`: the PCI Express capability's number, None for a
    conventional function and where it could not be read; `kind` is "unknown" only in the latter case.
    """

    size_bytes: int
    header_type: int | None = None
    vendor_id: str | None = None
    device_id: str | None = None
    subsystem_vendor_id: str | None = None
    subsystem_device_id: str | None = None
    class_: str | None = None
    primary_bus: int | None = None
    secondary_bus: int | None = None
    subordinate_bus: int | None = None
    port_type: int | None = None
    kind: PortKind = "unknown"
    link: Link = Link()
    max_payload_bytes: int | None = None
    max_payload_supported_bytes: int | None = None
    max_read_request_bytes: int | None = None
    acs: Acs = Acs()
    virtual_functions: VirtualFunctions | None = None


def acs_from_bits(capability: int, control: int) -> Acs:
    """The ACS capability and control words as a record; bits above DirectTrans route no peer requests and are left out."""
    enabled = _bit_names(control)
    return Acs(
        state="enabled" if enabled else "disabled",
        capabilities=_bit_names(capability),
        enabled=enabled,
        redirects=not ACS_REDIRECTING.isdisjoint(enabled),
    )


@functools.lru_cache(maxsize=1024)  # the functions of a fleet's nodes are alike; 4 KiB each at most
def parse_config(data: bytes) -> PciConfig:
    """What the bytes of `/sys/bus/pci/devices/*/config`, or of a hex dump, say. Never raises; `data` may be cut anywhere.

    A function that answers all ones has left the bus (or sleeps in D3cold): nothing is known of it.
    """
    if len(data) < _HEADER or not data.strip(b"\xff"):
        return PciConfig(size_bytes=len(data))
    header_type = data[0x0E] & 0x7F
    bridge = header_type == _BRIDGE
    capabilities = _capabilities(data, header_type)
    subsystem_vendor, subsystem_device = _subsystem(data, header_type, capabilities)
    config = PciConfig(
        size_bytes=len(data),
        header_type=header_type,
        vendor_id=_id(_u16(data, 0x00)),
        device_id=_id(_u16(data, 0x02)),
        class_=f"{_u32(data, 0x08) >> 8:06x}",
        subsystem_vendor_id=subsystem_vendor,
        subsystem_device_id=subsystem_device,
        primary_bus=data[0x18] if bridge else None,
        secondary_bus=data[0x19] if bridge else None,
        subordinate_bus=data[0x1A] if bridge else None,
    )
    express = capabilities.get(_CAP_EXPRESS)
    if express is not None and express + 0x14 <= len(data):
        return _with_express(config, data, express)
    if len(data) < _CONVENTIONAL:
        return config
    return msgspec.structs.replace(config, kind="pci_bridge" if bridge else "endpoint", acs=Acs(state="absent"))


def _with_express(config: PciConfig, data: bytes, at: int) -> PciConfig:
    port_type = _u16(data, at + 2) >> 4 & 0xF
    control = _u16(data, at + 8)
    extended, whole = _extended_capabilities(data)
    acs_at, sriov_at = extended.get(_EXT_ACS), extended.get(_EXT_SRIOV)
    acs = Acs(state="absent" if whole else "unreadable")
    if acs_at is not None:
        acs = acs_from_bits(_u16(data, acs_at + 4), _u16(data, acs_at + 6)) if acs_at + 8 <= len(data) else Acs()
    return msgspec.structs.replace(
        config,
        port_type=port_type,
        kind=_KINDS.get(port_type, "unknown"),
        link=Link() if port_type in _LINKLESS else _link(_u32(data, at + 0x0C), _u16(data, at + 0x12)),
        max_payload_supported_bytes=_power(_u16(data, at + 4) & 7),
        max_payload_bytes=_power(control >> 5 & 7),
        max_read_request_bytes=_power(control >> 12 & 7),
        acs=acs,
        virtual_functions=_virtual_functions(data, sriov_at),
    )


def _link(capabilities: int, status: int) -> Link:
    return Link(
        speed_gts=_SPEEDS_GTS.get(status & 0xF),
        width=status >> 4 & 0x3F or None,
        max_speed_gts=_SPEEDS_GTS.get(capabilities & 0xF),
        max_width=capabilities >> 4 & 0x3F or None,
    )


def _virtual_functions(data: bytes, at: int | None) -> VirtualFunctions | None:
    if at is None or at + 0x18 > len(data) or not _u16(data, at + 0x08) & 1:  # VF Enable
        return None
    return VirtualFunctions(count=_u16(data, at + 0x10), offset=_u16(data, at + 0x14), stride=_u16(data, at + 0x16))


def _capabilities(data: bytes, header_type: int) -> dict[int, int]:
    """Capability id -> offset of its first instance, as far as the bytes go."""
    found: dict[int, int] = {}
    if not _u16(data, 0x06) & _CAPABILITY_LIST:
        return found
    seen: set[int] = set()
    at = data[0x14 if header_type == _CARDBUS else 0x34] & 0xFC
    while _HEADER <= at < len(data) - 1 and at not in seen:
        seen.add(at)
        found.setdefault(data[at], at)
        at = data[at + 1] & 0xFC
    return found


def _extended_capabilities(data: bytes) -> tuple[dict[int, int], bool]:
    """Extended capability id -> offset of its first instance, and whether the whole list could be read.

    The list need not ascend. A loop ends it, as does a pointer below 0x100, where Linux stops too. All ones are a
    failed read: no extended space, or a function that fell asleep half-way.
    """
    found: dict[int, int] = {}
    seen: set[int] = set()
    at = _CONVENTIONAL
    while at >= _CONVENTIONAL and at not in seen:
        if at + 4 > len(data):
            return found, False
        header = _u32(data, at)
        if header == 0xFFFFFFFF:
            return found, False
        if header == 0:
            break
        seen.add(at)
        found.setdefault(header & 0xFFFF, at)
        at = header >> 20 & 0xFFC
    return found, True


def _subsystem(data: bytes, header_type: int, capabilities: dict[int, int]) -> tuple[str | None, str | None]:
    at = {0: 0x2C, _CARDBUS: 0x40}.get(header_type)
    if header_type == _BRIDGE and _CAP_SUBSYSTEM in capabilities:
        at = capabilities[_CAP_SUBSYSTEM] + 4
    if at is None or at + 4 > len(data):
        return None, None
    vendor, device = _id(_u16(data, at)), _id(_u16(data, at + 2))
    return (None, None) if vendor == "0000" else (vendor, device)


def _bit_names(word: int) -> tuple[str, ...]:
    return tuple(name for bit, name in enumerate(ACS_BITS) if word >> bit & 1)


def _id(word: int) -> str | None:
    # A virtual function answers ffff: its ids are the physical function's (9.3.4.1.1).
    return None if word == 0xFFFF else f"{word:04x}"


def _power(exponent: int) -> int | None:
    return 128 << exponent if exponent <= 5 else None


def _u16(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<H", data, at)[0])


def _u32(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<I", data, at)[0])

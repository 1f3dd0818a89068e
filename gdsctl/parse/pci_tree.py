"""Where functions hang: parents from bus numbers, kinds from the tree's shape, virtual functions from SR-IOV."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from gdsctl.model.pci import PciDevice, PortKind, Sriov, address_key
from gdsctl.parse.pci_config import VirtualFunctions

_FUNCTIONS = 0x10000  # a domain has 256 buses of 256 functions


def is_bridge(device: PciDevice) -> bool:
    return device.secondary_bus is not None or (device.class_ or "").startswith("0604")


def place(
    devices: Iterable[PciDevice], virtual_functions: Mapping[str, VirtualFunctions] | None = None
) -> tuple[tuple[PciDevice, ...], tuple[str, ...]]:
    """The devices sorted by address with `parent` and `root_bus` set, unknown kinds inferred; and what was odd.

    Addresses are canonical and unique. A bus that no bridge claims is a root bus where it is bus 0, or where host bridges
    or the like stand on it and every bridge has its bus numbers; else its parent is not known (`root_bus` None). `virtual_functions`: of physical functions, by address.
    """
    domains: dict[int, list[_Function]] = defaultdict(list)
    for device in devices:
        domain, bus, slot, function = address_key(device.address)
        domains[domain].append(_Function(bus, slot << 3 | function, device))
    placed: list[PciDevice] = []
    notes: list[str] = []
    for domain, functions in sorted(domains.items()):
        functions.sort(key=lambda item: (item.bus, item.slot_function))
        physical = _physical_functions(functions, virtual_functions or {})
        placed += _place_domain(domain, functions, physical, notes)
    return tuple(placed), tuple(notes)


class _Function(NamedTuple):
    bus: int
    slot_function: int
    device: PciDevice


def _place_domain(
    domain: int, functions: list[_Function], physical: dict[int, str], notes: list[str]
) -> list[PciDevice]:
    bridges = [item for item in functions if is_bridge(item.device)]
    # A bridge that firmware left alone has secondary 0: it leads nowhere. Buses below a bridge have higher numbers.
    leading = [item for item in bridges if (item.device.secondary_bus or 0) > item.bus]
    buses_known = all(item.device.secondary_bus is not None for item in bridges)
    bridges_on = {item.bus for item in bridges}
    occupied = {item.bus for item in functions}
    rooted = {0} | {item.bus for item in functions if _stands_on_root_bus(item.device)}

    above: dict[int, _Function | None] = {}
    for item in leading:
        bus = item.device.secondary_bus or 0
        if bus in above:
            notes.append(f"two bridges lead to bus {domain:04x}:{bus:02x}: what is on it has no known parent")
        above[bus] = None if bus in above else item
    around = _innermost(leading)

    def parent_of(bus: int) -> _Function | None:
        if bus in above or bus not in around:
            return above.get(bus)
        # Virtual functions overflow to bus numbers that no bridge has as secondary (9.2.1.2); below a switch's
        # upstream port such a bus means that a downstream port is missing from the list instead.
        port = around[bus]
        secondary = port.device.secondary_bus or 0
        return port if secondary in occupied and secondary not in bridges_on else None

    roots: dict[int, str | None] = {}
    for bus in sorted(occupied):
        if bus in around:
            roots[bus] = roots[around[bus].bus]
        else:
            roots[bus] = f"{domain:04x}:{bus:02x}" if bus == 0 or (buses_known and bus in rooted) else None

    kinds: dict[str, PortKind] = {}
    placed = []
    for item in functions:  # by bus: parents come first
        parent = parent_of(item.bus)
        device = item.device
        kind = device.kind
        if kind == "unknown":
            on_root = item.bus not in around and roots[item.bus] is not None
            kind = _kind_by_shape(device, kinds[parent.device.address] if parent else None, on_root, bridges_on)
        kinds[device.address] = kind
        physfn = physical.get(item.bus << 8 | item.slot_function)
        placed.append(
            msgspec.structs.replace(
                device,
                parent=parent.device.address if parent else None,
                root_bus=roots[item.bus],
                kind=kind,
                kind_inferred=device.kind == "unknown" and kind != "unknown",
                sriov=Sriov(is_vf=True, physfn=physfn) if physfn else device.sriov,
            )
        )
    return placed


def _stands_on_root_bus(device: PciDevice) -> bool:
    """Host bridges and root complex functions tell a root bus; mere endpoints may have lost the bridge above them."""
    if device.kind in ("root_port", "root_complex_endpoint"):
        return True
    return device.kind == "unknown" and (device.class_ or "").startswith(("0600", "0604", "08"))


def _innermost(bridges: list[_Function]) -> dict[int, _Function]:
    """Bus -> the bridge with the narrowest range of buses around it."""
    ranges = {(item.device.secondary_bus or 0, item.device.subordinate_bus or 0): item for item in bridges}
    around: dict[int, _Function] = {}
    for (first, last), item in sorted(ranges.items(), key=lambda entry: entry[0][0] - entry[0][1]):
        for bus in range(first, max(first, min(last, 0xFF)) + 1):
            around[bus] = item
    return around


def _kind_by_shape(device: PciDevice, above: PortKind | None, on_root_bus: bool, bridges_on: set[int]) -> PortKind:
    if not is_bridge(device):
        return "endpoint" if device.class_ else "unknown"
    if (device.class_ or "")[4:] == "01":  # subtractive decode: conventional PCI only
        return "pci_bridge"
    if on_root_bus:
        return "root_port"
    if above == "upstream_port":
        return "downstream_port"
    if above in ("root_port", "downstream_port") and device.secondary_bus in bridges_on:
        return "upstream_port"
    return "unknown"


def _physical_functions(
    functions: list[_Function], virtual_functions: Mapping[str, VirtualFunctions]
) -> dict[int, str]:
    """Routing id of a virtual function -> address of its physical function."""
    physical: dict[int, str] = {}
    left = _FUNCTIONS
    for item in functions:
        vfs = virtual_functions.get(item.device.address)
        if not vfs or not vfs.offset:
            continue
        count = min(vfs.count, left)
        left -= count
        first = (item.bus << 8 | item.slot_function) + vfs.offset
        for number in range(count):
            physical.setdefault(first + number * vfs.stride, item.device.address)
    return physical

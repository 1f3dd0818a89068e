"""`lspci` in any verbosity, and its hex dumps: names, tree, links, BARs and ACS.

Written by pciutils; the fields lie in its lspci.c, ls-caps.c and ls-ecaps.c. A hex dump (`-x`, `-xxx`, `-xxxx`) is
stronger than the text beside it. Without root the capabilities read `<access denied>`, and ACS, port kind and link
stay unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from gdsctl.data import pci_classes
from gdsctl.errors import InputError
from gdsctl.model.pci import ACS_BITS, Acs, Bar, Link, PciDevice, PortKind, canonical_address
from gdsctl.parse import pasted
from gdsctl.parse.pci_config import PciConfig, VirtualFunctions, acs_from_bits, parse_config
from gdsctl.parse.pci_tree import place
from gdsctl.record import Record, Warned

_HEADER = re.compile(r"\s*((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\s+(\S.*)")
_HEX = re.compile(r"\s*([0-9a-f]{2,3}): ((?:(?:[0-9a-f]{2}|\?\?)(?: |$)){1,16})\s*$")
_CLASS_CODE = re.compile(r"(?:^|.*\[|Class )([0-9a-f]{4})\]?$")
_TAIL = re.compile(r" \((?:rev [0-9a-f]{2}|prog-if [0-9a-f]{2})\b")
_INTERFACE = re.compile(r"\(prog-if ([0-9a-f]{2})")
_IDS = re.compile(r"(?: \[|^(?:Device )?)([0-9a-f]{4}):([0-9a-f]{4})\]?$")
_UNKNOWN_DEVICE = re.compile(r"(?:^|\s)Device ([0-9a-f]{4})$")
_BUS = re.compile(r"primary=([0-9a-f]{2}), secondary=([0-9a-f]{2}), subordinate=([0-9a-f]{2})\b")
_SIZE = re.compile(r"\[size=([0-9]{1,6})([KMGT]?)\]")
_SPEED = re.compile(r"Speed ([0-9]{1,3}(?:\.[0-9])?)G[Tb]/s")
_WIDTH = re.compile(r"Width x([0-9]{1,2})\b")
_FLAG = re.compile(r"\b(\w+)([+-])(?=\s|$)")
_ONLY_FLAGS = re.compile(r"(?:\w+[+-](?:\s+|$))+")
_EXTENDED = re.compile(r"\[[0-9a-f]{3}(?: v[0-9]+)?\]")
_EXPRESS = re.compile(r"\[[0-9a-f]{2}\] Express (?:\(v[0-9]+\) )?(.*)")
_FLAGS_NUMA = re.compile(r"\bNUMA node ([0-9]{1,6})\b")
_FLAGS_GROUP = re.compile(r"\bIOMMU group (\S+?)(?:,|$)")
_CUT = re.compile(r"\s*(?:\.{3,}|…|[\[<(]?(?:truncated|snip)[\]>)]?|--More--.*)\s*$", re.IGNORECASE)

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_DUMP_SIZES = (64, 128, 256, 4096)  # what lspci prints: header, CardBus header, -xxx, -xxxx
_MOST_WARNINGS = 1000

# Device/port types as pciutils words them (ls-caps.c, cap_express); the first that the text starts with counts.
_KINDS: tuple[tuple[str, PortKind], ...] = (
    ("Endpoint", "endpoint"),
    ("Legacy Endpoint", "endpoint"),
    ("Root Port", "root_port"),
    ("Upstream Port", "upstream_port"),
    ("Downstream Port", "downstream_port"),
    ("PCI-Express to PCI/PCI-X Bridge", "pcie_to_pci_bridge"),
    ("PCI/PCI-X to PCI-Express Bridge", "pci_bridge"),
    ("Root Complex Integrated Endpoint", "root_complex_endpoint"),
    ("Root Complex Event Collector", "root_complex_endpoint"),
)


class LspciText(Record, frozen=True, kw_only=True):
    """Devices by address. `class_` has 6 digits where the programming interface is known, 4 where it is not.

    `truncated`: the end is missing; the last device may then lack facts, and its ACS is not called absent.
    """

    devices: tuple[PciDevice, ...]
    truncated: bool = False
    warnings: tuple[Warned, ...] = ()


class _Block:
    """The lines of one function, as far as they were understood."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.name: str | None = None
        self.ids: tuple[str | None, str | None] = (None, None)
        self.subsystem: tuple[str | None, str | None] = (None, None)
        self.class_code: str | None = None
        self.interface: str | None = None
        self.verbose = False
        self.closed = False
        self.config = bytearray()
        self.config_whole = True
        self.bus: tuple[int, int] | None = None
        self.numa_node: int | None = None
        self.iommu_group: str | None = None
        self.driver: str | None = None
        self.bars: dict[int, Bar] = {}
        self.no_capabilities = False
        self.capabilities = False
        self.denied = False
        self.extended = False
        self.express: str | None = None
        self.link: dict[str, tuple[float | None, int | None]] = {}
        self.acs_listed = False
        self.acs: dict[str, dict[str, str]] = {}
        self.acs_open: str | None = None
        self.sriov: dict[str, int] = {}


def parse(text: str) -> LspciText:
    """Raises InputError where not one line is a device as lspci prints it."""
    blocks: dict[str, _Block] = {}
    warnings: list[Warned] = []
    block: _Block | None = None
    last = ""
    broken_header = False

    def warn(number: int, message: str) -> None:
        if len(warnings) < _MOST_WARNINGS:
            warnings.append(Warned(line=number, message=message))

    lines = pasted.lines(text)
    for number, line in enumerate(lines, start=1):
        stripped = line.strip()
        if not stripped:
            if block is not None and block.verbose and number < len(lines):  # a blank line ends every block
                block.closed = True
            continue
        last = line
        broken_header = False
        if match := _HEADER.match(line):
            address = canonical_address(match[1])
            if address is None or not _header_complete(match[2]):
                warn(number, "an address without class and name")
                broken_header = True
                continue
            if block is not None:
                block.closed = True
            block = blocks.setdefault(address, _Block(number))
            block.closed = False
            _read_header(block, match[2])
        elif block is None:
            continue
        elif match := _HEX.match(line):
            block.closed = True
            _read_hex(block, int(match[1], 16), match[2], number, warn)
        else:
            block.verbose = True
            if block.acs_open and _ONLY_FLAGS.fullmatch(stripped):
                block.acs[block.acs_open].update(_FLAG.findall(stripped))
                continue
            block.acs_open = None
            key, colon, value = stripped.partition(":")
            field = _FIELDS.get(key) or (_read_region if key.startswith("Region ") else None)
            if number == len(lines) and not key.startswith("ACS"):
                continue  # no newline after it, so a width "x1" may have been "x16"; ACS lines show their end themselves
            if colon and field and not field(block, key, value.strip()):
                warn(number, f"can't read {key[:40]}")

    if not blocks:
        raise InputError("not the output of lspci: no line starts with a PCI address, a class and a name")
    truncated = broken_header or _is_cut(text, last, block)
    return _assemble(blocks, block, truncated, warnings)


def _header_complete(rest: str) -> bool:
    head, colon, name = rest.partition(": ")
    return bool(colon and head and name.strip())


def _read_header(block: _Block, rest: str) -> None:
    head, _, tail = rest.partition(": ")
    if code := _CLASS_CODE.match(head):
        block.class_code = code[1]
    else:
        block.class_code = pci_classes.code(head) or block.class_code
    if interface := _INTERFACE.search(tail):
        block.interface = interface[1]
    end = _TAIL.search(tail)
    name, ids = _split_ids((tail[: end.start()] if end else tail).strip())
    block.name = name or block.name
    block.ids = (ids[0] or block.ids[0], ids[1] or block.ids[1])


def _split_ids(name: str) -> tuple[str | None, tuple[str | None, str | None]]:
    """`Vendor Name [10de:20b2]`, `Device 10b5:9716`, `10de:20b2`, `Vendor Device 09a2` -> name, (vendor, device)."""
    if ids := _IDS.search(name):
        return name[: ids.start()].strip() or None, (ids[1], ids[2])
    if unknown := _UNKNOWN_DEVICE.search(name):
        return name, (None, unknown[1])
    return name, (None, None)


def _read_hex(block: _Block, offset: int, digits: str, number: int, warn: Callable[[int, str], None]) -> None:
    if offset == 0 and block.config:  # the same device again
        return
    if not block.config_whole or offset < len(block.config):
        return
    known, unread, _ = digits.partition("??")
    if offset == len(block.config):
        block.config += bytes.fromhex(known)
    else:
        warn(number, "a line of the hex dump is missing: what comes after it is left out")
        unread = "??"
    block.config_whole = not unread


def _read_subsystem(block: _Block, _: str, value: str) -> bool:
    ids = _split_ids(value)[1]
    block.subsystem = (None, None) if ids[0] == "0000" else ids  # a zero vendor: not filled in
    return True


def _read_flags(block: _Block, _: str, value: str) -> bool:
    if numa := _FLAGS_NUMA.search(value):
        block.numa_node = int(numa[1])
    if group := _FLAGS_GROUP.search(value):
        block.iommu_group = group[1]
    return True


def _read_status(block: _Block, _: str, value: str) -> bool:
    # The power management capability has a Status line too, which does not start with Cap.
    block.no_capabilities = block.no_capabilities or value.startswith("Cap- ")
    return True


def _read_numa(block: _Block, _: str, value: str) -> bool:
    if not re.fullmatch(r"[0-9]{1,6}", value):
        return value == "-1"
    block.numa_node = int(value)
    return True


def _read_group(block: _Block, _: str, value: str) -> bool:
    block.iommu_group = value or None
    return bool(value)


def _read_driver(block: _Block, _: str, value: str) -> bool:
    block.driver = value or None
    return bool(value)


def _read_modules(block: _Block, _: str, value: str) -> bool:
    # lspci prints the kernel's view after the capabilities: the list above it is whole.
    block.closed = True
    return bool(value)


def _read_bus(block: _Block, _: str, value: str) -> bool:
    buses = _BUS.match(value)
    if buses:
        block.bus = int(buses[2], 16), int(buses[3], 16)
    return bool(buses)


def _read_region(block: _Block, key: str, value: str) -> bool:
    if block.capabilities:  # SR-IOV lists the virtual functions' regions below its own capability
        return True
    index, size = key.removeprefix("Region "), _SIZE.search(value)
    if not re.fullmatch(r"[0-9]", index):
        return False
    if size:  # [virtual], [disabled] and <unassigned> concern the address; the size stands
        size_bytes = int(size[1]) * _UNITS[size[2]]
        prefetchable = ", prefetchable)" in value
        block.bars.setdefault(int(index), Bar(index=int(index), size_bytes=size_bytes, prefetchable=prefetchable))
    return True


def _read_capability(block: _Block, _: str, value: str) -> bool:
    if value.startswith("<access denied"):
        block.denied = True
        return True
    block.capabilities = True
    block.extended = block.extended or bool(_EXTENDED.match(value))
    if express := _EXPRESS.match(value):
        block.express = block.express or express[1]
    name = value.partition("] ")[2]
    block.acs_listed = block.acs_listed or name.startswith("Access Control Services")
    if name.startswith("Subsystem: "):
        return _read_subsystem(block, "Subsystem", name.removeprefix("Subsystem: "))
    return True


def _read_link(block: _Block, key: str, value: str) -> bool:
    speed, width = _SPEED.search(value), _WIDTH.search(value)
    block.link.setdefault(key, (float(speed[1]) if speed else None, (int(width[1]) or None) if width else None))
    return bool(speed or "Speed unknown" in value) and bool(width)


def _read_acs(block: _Block, key: str, value: str) -> bool:
    block.acs[key] = dict(_FLAG.findall(value))
    block.acs_open = key if len(block.acs[key]) < len(ACS_BITS) else None
    return True


def _read_vf_control(block: _Block, _: str, value: str) -> bool:
    block.sriov["enabled"] = int(value.startswith("Enable+"))
    return True


def _read_vf_numbers(block: _Block, key: str, value: str) -> bool:
    pattern = r"Number of VFs: ([0-9]{1,5})\b" if key == "Initial VFs" else r"([0-9]{1,5}), stride: ([0-9]{1,5})\b"
    match = re.search(pattern, value)
    if match and key == "Initial VFs":
        block.sriov["count"] = int(match[1])
    elif match:
        block.sriov["offset"], block.sriov["stride"] = int(match[1]), int(match[2])
    return bool(match)


_FIELDS: dict[str, Callable[[_Block, str, str], bool]] = {
    "Subsystem": _read_subsystem,
    "Flags": _read_flags,
    "Status": _read_status,
    "NUMA node": _read_numa,
    "IOMMU group": _read_group,
    "Kernel driver in use": _read_driver,
    "Kernel modules": _read_modules,
    "Bus": _read_bus,
    "Capabilities": _read_capability,
    "LnkCap": _read_link,
    "LnkSta": _read_link,
    "ACSCap": _read_acs,
    "ACSCtl": _read_acs,
    "IOVCtl": _read_vf_control,
    "Initial VFs": _read_vf_numbers,
    "VF offset": _read_vf_numbers,
}


def _is_cut(text: str, last: str, block: _Block | None) -> bool:
    if _CUT.fullmatch(last):
        return True
    if block is None:
        return False
    if block.config:
        return len(block.config) not in _DUMP_SIZES or bool(block.verbose and not block.closed)
    if block.acs_open:
        return True
    unfinished = last.count("[") > last.count("]") or last.count("(") > last.count(")")
    return not text.endswith("\n") and (unfinished or last.rstrip().endswith((":", ",")))


def _assemble(blocks: dict[str, _Block], final: _Block | None, truncated: bool, warnings: list[Warned]) -> LspciText:
    extended = any(block.extended for block in blocks.values())
    devices = []
    virtual_functions: dict[str, VirtualFunctions] = {}
    for address, block in blocks.items():
        config = parse_config(bytes(block.config)) if block.config else None
        complete = block.closed and not (truncated and block is final)
        devices.append(_device(address, block, config, complete, extended))
        vfs = (config and config.virtual_functions) or _virtual_functions(block)
        if vfs:
            virtual_functions[address] = vfs
        for key, flags in block.acs.items():
            if not all(name in flags for name in ACS_BITS):
                warnings.append(Warned(line=block.line, message=f"{key} of {address} is cut"))
    placed, notes = place(devices, virtual_functions)
    warnings += [Warned(line=1, message=note) for note in notes]
    return LspciText(devices=placed, truncated=truncated, warnings=tuple(warnings))


def _device(address: str, block: _Block, config: PciConfig | None, complete: bool, extended: bool) -> PciDevice:
    # Without header bytes a dump says nothing; virtual functions leave their ids out of it.
    config = config or PciConfig(size_bytes=0)
    secondary, subordinate = block.bus or (None, None)
    if config.secondary_bus is not None:
        secondary, subordinate = config.secondary_bus, config.subordinate_bus
    return PciDevice(
        address=address,
        kind=config.kind if config.kind != "unknown" else _kind(block, complete),
        vendor_id=config.vendor_id or block.ids[0],
        device_id=config.device_id or block.ids[1],
        subsystem_vendor_id=config.subsystem_vendor_id or block.subsystem[0],
        subsystem_device_id=config.subsystem_device_id or block.subsystem[1],
        class_=config.class_ or _class(block),
        name=block.name,
        driver=block.driver,
        numa_node=block.numa_node,
        link=config.link if config.port_type is not None else _link(block),
        acs=config.acs if config.acs.state != "unreadable" else _acs(block, complete, extended),
        iommu_group=block.iommu_group,
        bars=tuple(bar for _, bar in sorted(block.bars.items())),
        secondary_bus=secondary,
        subordinate_bus=subordinate,
        config_bytes=config.size_bytes or None,
    )


def _class(block: _Block) -> str | None:
    if block.class_code is None or block.interface == "ff":  # ff: the function is gone
        return None if block.class_code == "ffff" else block.class_code
    if block.interface is not None:
        return block.class_code + block.interface
    # In verbose text pciutils leaves out an interface of 00 that has no name.
    return block.class_code + "00" if block.verbose else pci_classes.with_interface(block.class_code)


def _conventional(block: _Block, complete: bool) -> bool:
    """The text shows that there is no PCI Express capability."""
    listed = block.capabilities and complete and not block.denied and block.express is None
    return block.no_capabilities or listed


def _kind(block: _Block, complete: bool) -> PortKind:
    if block.express is not None:
        return next((kind for words, kind in _KINDS if block.express.startswith(words)), "unknown")
    if _conventional(block, complete):
        return "pci_bridge" if block.bus or (block.class_code or "") == "0604" else "endpoint"
    return "unknown"


def _link(block: _Block) -> Link:
    speed, width = block.link.get("LnkSta", (None, None))
    max_speed, max_width = block.link.get("LnkCap", (None, None))
    return Link(speed_gts=speed, width=width, max_speed_gts=max_speed, max_width=max_width)


def _acs(block: _Block, complete: bool, extended: bool) -> Acs:
    control, capability = block.acs.get("ACSCtl", {}), block.acs.get("ACSCap", {})
    if all(name in control for name in ACS_BITS):
        return acs_from_bits(_word(capability), _word(control))
    if block.acs_listed or block.acs or block.denied:
        return Acs()
    if _conventional(block, complete):
        return Acs(state="absent")
    # lspci says nothing where it could not read the extended space. One capability from there shows that it could.
    # Integrated functions often have none: for them another function's must do.
    integrated = _kind(block, complete) == "root_complex_endpoint"
    readable = block.extended or (integrated and extended)
    return Acs(state="absent" if block.express is not None and complete and readable else "unreadable")


def _word(flags: dict[str, str]) -> int:
    return sum(1 << bit for bit, name in enumerate(ACS_BITS) if flags.get(name) == "+")


def _virtual_functions(block: _Block) -> VirtualFunctions | None:
    if not block.sriov.get("enabled") or not {"count", "offset", "stride"} <= block.sriov.keys():
        return None
    return VirtualFunctions(count=block.sriov["count"], offset=block.sriov["offset"], stride=block.sriov["stride"])

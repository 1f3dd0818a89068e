"""What `pci=disable_acs_redir=` and `pci=config_acs=` ask of a function, as the kernel reads them.

Linux drivers/pci/pci.c, pci_setup(), __pci_config_acs() and pci_dev_str_match(): of a parameter given twice the last
counts; its entries are tried in order, and the first that names the function decides. An entry that cannot be read ends
the search. config_acs comes after disable_acs_redir, and what it leaves at `x` is as firmware left it, not as
disable_acs_redir made it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gdsctl.errors import InputError
from gdsctl.model.pci import ACS_BITS, ACS_REDIRECTING, PciDevice
from gdsctl.model.topology import Topology
from gdsctl.parse import kernel_cmdline

_DISABLE, _CONFIGURE = "disable_acs_redir", "config_acs"
_FLAGS = re.compile(r"[01xX]*\Z")
_IDS = re.compile(r"pci((?::[0-9a-f]{1,4}){2}|(?::[0-9a-f]{1,4}){4})\Z", re.IGNORECASE)
_START = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2}\.[0-7])\Z", re.IGNORECASE)
_STEP = re.compile(r"[0-9a-f]{1,2}\.[0-7]\Z", re.IGNORECASE)


class Entry(NamedTuple):
    """One entry. `text`: as written; `off`: ACS bits to clear; `void`: why the kernel takes no notice of it, or empty."""

    parameter: str
    text: str
    where: str
    off: frozenset[str] = frozenset()
    void: str = ""


def entries(cmdline: str) -> tuple[Entry, ...]:
    """All entries in the order in which they stand; () for what is no command line."""
    try:
        options = kernel_cmdline.parse(cmdline).pci.options
    except InputError:
        return ()
    given = [option.partition("=") for option in options]
    found: list[Entry] = []
    for name in (_DISABLE, _CONFIGURE):
        values = [value for option, _, value in given if option == name]
        for number, value in enumerate(values):
            void = "" if number == len(values) - 1 else f"a later {name}= replaces it"
            for text in filter(None, value.split(";")):
                entry = _entry(name, text)
                found.append(entry._replace(void=void))
                if not void and not readable(entry):
                    void = f"the kernel stops at {text!r}, which it cannot read"
    return tuple(found)


def readable(entry: Entry) -> bool:
    """Can the kernel make sense of it?"""
    return _place(entry.where) is not None


def _entry(parameter: str, text: str) -> Entry:
    if parameter == _DISABLE:
        return Entry(parameter, text, text, ACS_REDIRECTING)
    flags, _, where = text.partition("@")
    if not _FLAGS.match(flags) or not set(flags[: -len(ACS_BITS)]).isdisjoint("01"):
        return Entry(parameter, text, "")
    bits = zip(reversed(flags), ACS_BITS, strict=False)  # the last digit is bit 0
    return Entry(parameter, text, where, frozenset(bit for flag, bit in bits if flag == "0"))


class _Ids(NamedTuple):
    """Vendor, device and, where given, those of the subsystem; 0 stands for any."""

    wanted: tuple[int, ...]


class _Way(NamedTuple):
    """A function by its address, then `device.function` from bridge to bridge."""

    start: str
    steps: tuple[str, ...]


def _place(where: str) -> _Ids | _Way | None:
    match = _IDS.match(where)
    if match:
        return _Ids(tuple(int(part, 16) for part in match[1].split(":")[1:]))
    first, *steps = where.split("/")
    start = _START.match(first)
    if not start or not all(map(_STEP.match, steps)):
        return None
    domain, bus, function = start.groups()
    return _Way(f"{int(domain or '0', 16):04x}:{int(bus, 16):02x}:{_step(function)}", tuple(map(_step, steps)))


def _step(text: str) -> str:
    device, _, function = text.partition(".")
    return f"{int(device, 16):02x}.{function}"


def names(entry: Entry, device: PciDevice, topology: Topology) -> bool:
    """Does the entry name the function?"""
    place = _place(entry.where)
    if isinstance(place, _Ids):
        own = (device.vendor_id, device.device_id, device.subsystem_vendor_id, device.subsystem_device_id)
        return all(
            want == 0 or (ident is not None and want == int(ident, 16))
            for want, ident in zip(place.wanted, own, strict=False)
        )
    if place is None:
        return False
    way = (device.address, *topology.chain(device.address))
    depth = len(place.steps)
    lower = tuple(address.rpartition(":")[2] for address in way[:depth])
    return way[depth : depth + 1] == (place.start,) and lower == place.steps[::-1]


def asked(found: tuple[Entry, ...], device: PciDevice, topology: Topology) -> tuple[Entry, ...]:
    """The entries that name the function. At most one is not void: the one that the kernel follows."""
    naming = [entry for entry in found if names(entry, device, topology)]
    live = (e for parameter in (_CONFIGURE, _DISABLE) for e in naming if e.parameter == parameter and not e.void)
    followed = next(live, None)
    if followed is None:
        return tuple(naming)
    other = f"{followed.parameter}={followed.text} decides"
    return tuple(e if e is followed or e.void else e._replace(void=other) for e in naming)

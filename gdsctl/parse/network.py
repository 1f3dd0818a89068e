"""IPv4 addresses and their interfaces: `ip -j addr`, /proc/net/route, /proc/net/fib_trie."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

import msgspec

from gdsctl.errors import InputError
from gdsctl.record import Record


class Route(Record, frozen=True, kw_only=True):
    """`network`: CIDR; `gateway` None: on link."""

    interface: str
    network: str
    gateway: str | None = None


class _AddrInfo(msgspec.Struct):
    family: str = ""
    local: str = ""


class _Link(msgspec.Struct):
    ifname: str = ""
    addr_info: tuple[_AddrInfo, ...] = ()


_HEX = re.compile(r"[0-9A-F]{8}", re.IGNORECASE)
_LEAF = re.compile(r"\s*\|-- ([0-9.]{7,15})\s*")
_LOCAL = re.compile(r"\s*/32 host LOCAL\s*")


def parse_ip_addr(text: str) -> dict[str, tuple[str, ...]]:
    """`ip -j addr`: interface -> IPv4 addresses, in order; raises InputError where it is not that JSON."""
    try:
        links = msgspec.json.decode(text.encode("utf-8", "replace"), type=tuple[_Link, ...])
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"not the output of ip -j addr: {error}", line=1) from error
    return {link.ifname: tuple(a.local for a in link.addr_info if a.family == "inet") for link in links if link.ifname}


def _ipv4(cell: str) -> ipaddress.IPv4Address:
    """The kernel prints the four bytes as one number of the host: little-endian on every GDS platform."""
    return ipaddress.IPv4Address(bytes.fromhex(cell)[::-1])


def parse_route(text: str) -> tuple[Route, ...]:
    """/proc/net/route; raises InputError without its header."""
    lines = text.split("\n")
    if not lines[0].startswith("Iface"):
        raise InputError("not the text of /proc/net/route", line=1)
    routes = []
    for line in lines[1:]:
        cells = line.split()
        if len(cells) < 8 or not all(_HEX.fullmatch(cells[index]) for index in (1, 2, 7)):
            continue
        prefix = int(_ipv4(cells[7])).bit_count()
        gateway = _ipv4(cells[2])
        network = ipaddress.IPv4Network((_ipv4(cells[1]), prefix), strict=False)
        routes.append(Route(interface=cells[0], network=str(network), gateway=str(gateway) if int(gateway) else None))
    return tuple(routes)


def parse_fib_trie(text: str) -> tuple[str, ...]:
    """/proc/net/fib_trie: the host's own IPv4 addresses, loopback included, each once, in order."""
    addresses: dict[str, None] = {}
    leaf = ""
    for line in text.split("\n"):
        if match := _LEAF.fullmatch(line):
            leaf = match[1]
        elif leaf and _LOCAL.fullmatch(line):
            addresses[leaf] = None
    return tuple(addresses)


def interface_addresses(addresses: Iterable[str], routes: Iterable[Route]) -> dict[str, str | None]:
    """Address -> interface by the longest on-link route; None where none or more than one interface fits."""
    links = [(ipaddress.IPv4Network(route.network), route.interface) for route in routes if route.gateway is None]
    found: dict[str, str | None] = {}
    for text in addresses:
        try:
            address = ipaddress.IPv4Address(text)
        except ValueError:
            continue
        fits = [(network.prefixlen, name) for network, name in links if network.prefixlen and address in network]
        longest = max((length for length, _ in fits), default=0)
        names = {name for length, name in fits if length == longest}
        found[text] = "lo" if address.is_loopback else names.pop() if len(names) == 1 else None
    return found

"""IPv4 addresses and routes of the machine: `ip -json addr`, `/proc/net/fib_trie`, `/proc/net/route`.

Sources: iproute2 ip/ipaddress.c; Linux net/ipv4/fib_trie.c, fib_trie_seq_show() and fib_route_seq_show().
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any

import msgspec

from gdsctl.errors import InputError
from gdsctl.record import Record

_LEAF = re.compile(r"\s*\|-- (\S+)")
_LOCAL = re.compile(r"\s*/32 host LOCAL\s*$")


class Ipv4(Record, frozen=True, kw_only=True):
    """An address and the length of its network's prefix, None where the source does not say."""

    address: str
    prefix: int | None = None


class Route(Record, frozen=True, kw_only=True):
    """`network`: `10.9.0.0/24`; `gateway`: None on a network the interface itself is in."""

    interface: str
    network: str
    gateway: str | None = None
    metric: int = 0


def parse(text: str) -> dict[str, tuple[Ipv4, ...]]:
    """`ip -json addr` -> interface -> its addresses. Raises InputError for what is not its JSON."""
    try:
        rows = msgspec.json.decode(text.encode("utf-8", "surrogatepass"))
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise InputError(f"not the JSON of ip addr: {error}") from error
    if not isinstance(rows, list):
        raise InputError("not the JSON of ip addr: no list")
    return {
        row["ifname"]: _addresses(row) for row in rows if isinstance(row, dict) and isinstance(row.get("ifname"), str)
    }


def _addresses(row: dict[str, Any]) -> tuple[Ipv4, ...]:
    found = []
    infos = row.get("addr_info")
    for info in infos if isinstance(infos, list) else ():
        if isinstance(info, dict) and info.get("family") == "inet" and _is_ipv4(info.get("local")):
            prefix = info.get("prefixlen")
            found.append(
                Ipv4(address=info["local"], prefix=prefix if isinstance(prefix, int) and 0 <= prefix <= 32 else None)
            )
    return tuple(found)


def parse_fib_trie(text: str) -> tuple[str, ...]:
    """The machine's own addresses, without their interfaces. Raises InputError for another text."""
    found: dict[str, None] = {}
    leaf = None
    leaves = 0
    for line in text.split("\n"):
        match = _LEAF.match(line)
        if match:
            leaf = match[1]
            leaves += 1
        elif leaf and _LOCAL.match(line) and _is_ipv4(leaf):
            found[leaf] = None
    if not leaves:
        raise InputError("not /proc/net/fib_trie: no leaf", line=1)
    return tuple(found)


def parse_route(text: str) -> tuple[Route, ...]:
    """Routes that are up. Addresses stand in the byte order of the CPU, which is little-endian on x86-64 and arm64."""
    lines = text.split("\n")
    if not lines[0].startswith("Iface"):
        raise InputError("not /proc/net/route: no heading", line=1)
    routes = []
    for line in lines[1:]:
        fields = line.split()
        if len(fields) < 8:
            continue
        try:
            destination, gateway, flags, mask = (int(fields[column], 16) for column in (1, 2, 3, 7))
            network = ipaddress.IPv4Network((_swapped(destination), str(ipaddress.IPv4Address(_swapped(mask)))))
            metric = int(fields[6])
        except (ValueError, OverflowError):
            continue
        if flags & 1:
            hop = str(ipaddress.IPv4Address(_swapped(gateway))) if gateway else None
            routes.append(Route(interface=fields[0], network=str(network), gateway=hop, metric=metric))
    return tuple(routes)


def _swapped(number: int) -> int:
    return int.from_bytes(number.to_bytes(4, "little"), "big")


def _is_ipv4(text: Any) -> bool:
    try:
        ipaddress.IPv4Address(text if isinstance(text, str) else "")
    except ValueError:
        return False
    return True

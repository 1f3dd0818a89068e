"""IPv4 addresses of the machine and the networks its interfaces reach."""

from __future__ import annotations

import ipaddress

from gdsctl.collect.reader import Reader
from gdsctl.parse import network
from gdsctl.record import Record
from gdsctl.source.base import Missing


class Addresses(Record, frozen=True, kw_only=True):
    """`by_interface`: netdev -> addresses; `unplaced`: own addresses that no one interface can be told for.

    None where the source does not say.
    """

    by_interface: dict[str, tuple[str, ...]] | None = None
    unplaced: tuple[str, ...] = ()
    routes: tuple[network.Route, ...] | None = None
    why: Missing | None = None

    def towards(self, server: str) -> tuple[str, ...] | None:
        """Interfaces whose own address the server is, else those of the longest routes to it; None: not known."""
        try:
            address = ipaddress.IPv4Address(server)
        except ValueError:
            return None
        own = tuple(name for name, held in (self.by_interface or {}).items() if server in held)
        if own or self.routes is None:
            return own or None
        fits = [
            (ipaddress.IPv4Network(route.network).prefixlen, route.interface)
            for route in self.routes
            if address in ipaddress.IPv4Network(route.network)
        ]
        longest = max((length for length, _ in fits), default=-1)
        return tuple(dict.fromkeys(name for length, name in fits if length == longest)) or None


def collect(reader: Reader) -> Addresses:
    """From `ip addr` if it ran, else from /proc/net/fib_trie laid over /proc/net/route."""
    routes = reader.parsed("/proc/net/route", network.parse_route)
    known = None if isinstance(routes, Missing) else routes
    printed = reader.printed("ip-addr", network.parse_ip_addr)
    if not isinstance(printed, Missing):
        return Addresses(by_interface=printed, routes=known)
    own = reader.parsed("/proc/net/fib_trie", network.parse_fib_trie)
    if isinstance(own, Missing) or known is None:
        return Addresses(routes=known, why=own if isinstance(own, Missing) else printed)
    by_interface: dict[str, tuple[str, ...]] = {}
    unplaced = []
    for address, interface in network.interface_addresses(own, known).items():
        if interface is None:
            unplaced.append(address)
        else:
            by_interface[interface] = (*by_interface.get(interface, ()), address)
    return Addresses(by_interface=by_interface, unplaced=tuple(unplaced), routes=known)

"""Pseudonyms of network addresses: who shares a subnet before shares it afterwards, and nothing else is told."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable

_KEPT4 = tuple(
    (ipaddress.IPv4Network(network), keep)
    for network, keep in (
        ("0.0.0.0/8", 32),  # "this host": 0.0.0.0 and default routes
        ("127.0.0.0/8", 32),
        ("169.254.0.0/16", 16),
        ("224.0.0.0/3", 32),  # multicast, netmasks, broadcast
        ("10.0.0.0/8", 8),  # RFC 1918 stays RFC 1918
        ("172.16.0.0/12", 12),
        ("192.168.0.0/16", 16),
        ("100.64.0.0/10", 10),  # RFC 6598
    )
)
_MIXED = (100, 169, 172, 192, 198, 203)  # first octets with a reserved block in them: there the second octet stays too
_MAPPED_BITS = (
    24  # the last octet stays: so do ranges (remoteports=A-B), their lengths, and what is a broadcast address
)


class Mapping4:
    """A keyed bijection of IPv4 addresses (Xu et al., "Prefix-preserving IP address anonymization", 2002).

    Addresses that share their first k bits still do. Loopback, multicast, masks and 0.0.0.0 stay, private addresses stay
    private. The last octet stays. In the told networks the all-zeros and all-ones host parts stay, so a network's
    address and its broadcast address remain just these.
    """

    def __init__(self, key: bytes, networks: Iterable[ipaddress.IPv4Network] = ()) -> None:
        self._key = key
        self._networks = {
            (int(net.network_address) >> (32 - net.prefixlen), net.prefixlen) for net in networks if net.prefixlen
        }
        self._lengths = sorted({length for _, length in self._networks})
        self._known: dict[int, int] = {}

    def __call__(self, address: int) -> int:
        known = self._known.get(address)
        if known is None:
            known = self._known[address] = self._mapped(address)
        return known

    def _mapped(self, address: int) -> int:
        kept = kept_bits(address)
        mapped = address
        for depth in range(kept, _MAPPED_BITS):
            if self._flips(address >> (32 - depth), depth, kept):
                mapped ^= 1 << (31 - depth)
        return mapped

    def _flips(self, prefix: int, depth: int, kept: int) -> bool:
        if depth == kept:
            return True  # so that no address is its own pseudonym
        for length in self._lengths:
            if kept < length <= depth and (prefix >> (depth - length), length) in self._networks:
                host = prefix & ((1 << (depth - length)) - 1)
                if host in (0, (1 << (depth - length)) - 1):
                    return False
        return _bit(self._key, prefix, depth)


class Mapping6:
    """The same for IPv6 network parts; the interface's 64 bits are somebody else's to map (they hold GUIDs and MACs)."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def network(self, upper: int) -> int:
        """The upper 64 bits: of unique local and global unicast all but the first 16; link-local and others stay."""
        first = upper >> 48
        if not (0x2000 <= first <= 0x3FFF or first & 0xFE00 == 0xFC00) or not upper & 0xFFFFFFFFFFFF:
            return upper
        mapped = upper
        for depth in range(16, 64):
            if depth == 16 or _bit(self._key, upper >> (64 - depth), depth):
                mapped ^= 1 << (63 - depth)
        return mapped


def kept_bits(address: int) -> int:
    """How many leading bits of an IPv4 address stay: 32 where it tells nothing about a site."""
    ip = ipaddress.IPv4Address(address)
    for network, keep in _KEPT4:
        if ip in network:
            return keep
    return 16 if address >> 24 in _MIXED else 8


def _bit(key: bytes, prefix: int, depth: int) -> bool:
    return bool(hashlib.blake2b(b"%d/%d" % (prefix, depth), key=key, digest_size=1).digest()[0] & 1)

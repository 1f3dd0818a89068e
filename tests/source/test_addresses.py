"""The mapping of addresses: subnets before are subnets after, and nothing changes its class."""

# mypy: disable-error-code="union-attr,no-untyped-call,index"
# An answer of another kind than the expected one fails the test by itself.

from __future__ import annotations

import ipaddress

from hypothesis import given, settings
from hypothesis import strategies as st

from gdsctl.source.addresses import Mapping4, Mapping6

ADDRESS = st.integers(0, 2**32 - 1)
SITE = st.sampled_from(["10.0.0.0", "172.16.0.0", "192.168.0.0", "8.0.0.0", "203.0.113.0", "100.64.0.0"]).flatmap(
    lambda base: st.integers(0, 2**16 - 1).map(lambda rest: int(ipaddress.IPv4Address(base)) + rest)
)


def shared_bits(a: int, b: int) -> int:
    return 32 - (a ^ b).bit_length()


@settings(max_examples=200, deadline=None)
@given(ADDRESS | SITE, ADDRESS | SITE, st.binary(min_size=1, max_size=32))
def test_shares_as_many_bits_as_before(a, b, key):
    mapping = Mapping4(key, [ipaddress.IPv4Network("10.0.0.0/20"), ipaddress.IPv4Network("172.16.0.0/16")])
    if mapping(a) != a and mapping(b) != b:
        assert shared_bits(mapping(a), mapping(b)) == shared_bits(a, b)


@settings(max_examples=200, deadline=None)
@given(ADDRESS | SITE, st.binary(min_size=1, max_size=32))
def test_keeps_the_class_and_changes_the_rest(address, key):
    before = ipaddress.IPv4Address(address)
    after = ipaddress.IPv4Address(Mapping4(key)(address))
    for network in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16"):
        assert (before in ipaddress.IPv4Network(network)) == (after in ipaddress.IPv4Network(network))
    stays = before.is_loopback or before.is_multicast or before.is_reserved or address >> 24 in (0, 255)
    assert (after == before) == stays
    assert after.is_private == before.is_private or address >> 16 in (0xC000, 0xC633, 0xCB00, 0xC612, 0xC613)


def test_what_is_no_secret_stays():
    mapping = Mapping4(b"k")
    for text in (
        "0.0.0.0",  # noqa: S104 - nobody binds to it
        "127.0.0.1",
        "127.0.1.1",
        "255.255.255.255",
        "255.255.255.0",
        "255.255.240.0",
        "224.0.0.251",
    ):
        assert mapping(int(ipaddress.IPv4Address(text))) == int(ipaddress.IPv4Address(text))


def test_network_and_broadcast_addresses_stay_what_they_are():
    """By hand: 172.16.48.0/20 runs from 172.16.48.0 to 172.16.63.255."""
    mapping = Mapping4(b"k", [ipaddress.IPv4Network("172.16.48.0/20")])
    first = ipaddress.IPv4Address(mapping(int(ipaddress.IPv4Address("172.16.48.0"))))
    last = ipaddress.IPv4Address(mapping(int(ipaddress.IPv4Address("172.16.63.255"))))
    network = ipaddress.IPv4Network(f"{first}/20")  # raises if host bits are set
    assert network.broadcast_address == last
    inside = ipaddress.IPv4Address(mapping(int(ipaddress.IPv4Address("172.16.50.7"))))
    assert inside in network
    outside = ipaddress.IPv4Address(mapping(int(ipaddress.IPv4Address("172.16.64.7"))))
    assert outside not in network


def test_ipv6_networks():
    mapping = Mapping6(b"k")

    def upper(text):
        return int(ipaddress.IPv6Address(text)) >> 64

    for text in ("fe80::1", "::1", "ff02::1", "fe80:0:0:5::"):
        assert mapping.network(upper(text)) == upper(text)
    a, b, c = (
        mapping.network(upper(text)) for text in ("fd12:3456:789a:1::5", "fd12:3456:789a:2::5", "fd12:3456:789a:1::6")
    )
    assert a == c != b
    assert a >> 16 == b >> 16 != upper("fd12:3456:789a::") >> 16
    assert a >> 48 == 0xFD12

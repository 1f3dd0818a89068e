"""Addresses and routes; expected values by hand."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdsctl.errors import InputError
from gdsctl.parse.ip_addr import Ipv4, Route, parse, parse_fib_trie, parse_route

FIB_TRIE = """Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     |-- 192.0.2.0
        /24 link UNICAST
Local:
  +-- 0.0.0.0/0 3 0 5
     |-- 127.0.0.1
        /32 host LOCAL
     |-- 192.0.2.7
        /32 host LOCAL
     |-- 192.0.2.255
        /32 link BROADCAST
"""
ROUTE = """Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
ens1\t00000000\t010200C0\t0003\t0\t0\t100\t00000000\t0\t0\t0
ens1\t000200C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0
ens2\t000200C0\t00000000\t0000\t0\t0\t100\t00FFFFFF\t0\t0\t0
ens3\tZZ\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0
"""


def test_ip_json() -> None:
    text = """[{"ifname":"lo","addr_info":[{"family":"inet6","local":"::1","prefixlen":128}]},
      {"ifname":"ib0","addr_info":[{"family":"inet","local":"192.0.2.7","prefixlen":24},{"family":"inet","local":"x"}]},
      {"no":"name"}, 7]"""
    assert parse(text) == {"lo": (), "ib0": (Ipv4(address="192.0.2.7", prefix=24),)}


def test_fib_trie_has_own_addresses_only() -> None:
    assert parse_fib_trie(FIB_TRIE) == ("127.0.0.1", "192.0.2.7")


def test_routes_that_are_up() -> None:
    """C0 00 02 01 read backwards is 192.0.2.1; flag 1 is RTF_UP."""
    assert parse_route(ROUTE) == (
        Route(interface="ens1", network="0.0.0.0/0", gateway="192.0.2.1", metric=100),
        Route(interface="ens1", network="192.0.2.0/24", metric=100),
    )


@settings(max_examples=60, deadline=None)
@given(st.text(st.sampled_from('[]{}":,|-+/ 0123456789.abcfinet\n\ud800\x00Ifce'), max_size=200))
@pytest.mark.parametrize(("read", "head"), [(parse, ""), (parse_fib_trie, "|-- "), (parse_route, "Iface\n")])
def test_any_text_is_read_or_refused(read: object, head: str, text: str) -> None:
    assert callable(read)
    with contextlib.suppress(InputError):
        assert read(head + text) is not None

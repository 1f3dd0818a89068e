"""Expected values from nvmf_get_address() of the kernel."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gdsctl.parse.nvme_address import NvmeAddress, parse


def test_all_keys() -> None:
    text = "traddr=192.0.2.7,trsvcid=4420,host_traddr=192.0.2.1,host_iface=ib0,src_addr=192.0.2.1\n"
    assert parse(text) == NvmeAddress(
        traddr="192.0.2.7", trsvcid="4420", host_traddr="192.0.2.1", host_iface="ib0", src_addr="192.0.2.1"
    )


def test_colons_of_ipv6_and_fibre_channel_stay() -> None:
    assert parse("traddr=fe80::1,trsvcid=4420").traddr == "fe80::1"
    assert parse("traddr=nn-0x1:pn-0x2").traddr == "nn-0x1:pn-0x2"


def test_empty_and_foreign() -> None:
    assert parse("") == parse("0000:83:00.0") == parse("traddr=,colour=red") == NvmeAddress()


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=100))
def test_any_text(text: str) -> None:
    assert isinstance(parse(text), NvmeAddress)

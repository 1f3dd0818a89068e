"""Expected values by hand from nfs(5) and the VAST client's documentation."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gdsctl.parse.nfs_options import NfsOptions, parse


def test_kernel_client_over_rdma() -> None:
    options = parse(
        "rw,vers=3,rsize=262144,proto=rdma,port=20049,sec=sys,mountaddr=10.9.0.1,mountproto=tcp,addr=10.9.0.2"
    )
    assert options == NfsOptions(
        proto="rdma", port=20049, vers="3", rsize_bytes=262144, mountaddr="10.9.0.1", addr="10.9.0.2"
    )


def test_vast_ranges_and_lists() -> None:
    options = parse(
        "vers=3,proto=rdma,port=20049,nconnect=16,localports=172.16.1.3~172.16.2.3,"
        "remoteports=172.16.1.10-172.16.1.12~172.16.9.9,spread_reads,spread_writes"
    )
    assert options.localports == ("172.16.1.3", "172.16.2.3")
    assert options.remoteports == ("172.16.1.10", "172.16.1.11", "172.16.1.12", "172.16.9.9")
    assert (options.nconnect, options.spread_reads, options.spread_writes, options.vast) == (16, True, True, True)


def test_names_and_words_stay_as_written() -> None:
    options = parse("localports=ens1f0~ib-2,remoteports=dns")
    assert options.localports == ("ens1f0", "ib-2")
    assert options.remoteports == ("dns",)
    assert options.warnings == ()


def test_what_is_no_range_is_kept_and_warned_about() -> None:
    for item in ("10.0.0.9-10.0.0.1", "10.0.0.1-x", "1.0.0.0-9.0.0.0"):
        options = parse(f"localports={item}")
        assert options.localports == (item,)
        assert len(options.warnings) == 1


def test_old_spellings() -> None:
    assert (parse("v4.1,rdma").vers, parse("v4.1,rdma").proto) == ("4.1", "rdma")
    assert (parse("nfsvers=3,tcp").vers, parse("nfsvers=3,tcp").proto) == ("3", "tcp")


def test_not_a_number_is_unknown() -> None:
    options = parse("port=many,nconnect=\u0664")
    assert (options.port, options.nconnect) == (None, None)
    assert len(options.warnings) == 2


@settings(max_examples=60, deadline=None)
@given(st.text(st.sampled_from("localports=remtdn~-,.0129\x00\ud800 "), max_size=200))
def test_any_text_gives_options(text: str) -> None:
    assert isinstance(parse(text), NfsOptions)
    assert isinstance(parse(f"remoteports={text}"), NfsOptions)

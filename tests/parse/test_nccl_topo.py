"""Fixture read by eye; field files against counts taken from their text."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdsctl.errors import InputError
from gdsctl.model.pci import Acs, Link
from gdsctl.parse.nccl_topo import NcclGpu, NcclLink, NcclNic, parse
from tests.hang import no_hang


@pytest.fixture(scope="module")
def text(fixtures: Path) -> str:
    return (fixtures / "parse/nccl_topo/two-gpus.xml").read_text()


def test_two_gpus(text: str) -> None:
    read = parse(text)
    assert not read.truncated
    assert read.gpus == (
        NcclGpu(address="0000:43:00.0", index=0, rank=0, sm=90, gdr=True),
        NcclGpu(address="0000:53:00.0", index=1, rank=1, sm=90, gdr=False),
    )
    assert read.nics == (
        NcclNic(address="0000:44:00.0", name="mlx5_0", port=1, guid="0xa1b2", rate_gbps=400.0, gdr=True),
        NcclNic(address=None, name="eth0", port=0, guid="0x0", rate_gbps=10.0, gdr=False),
    )
    # The pair is told by both ends; two switches (one of them hidden) add up.
    assert read.nvlinks == (
        NcclLink(a="0000:43:00.0", b="0000:53:00.0", count=4),
        NcclLink(a="0000:43:00.0", b="switch", count=14),
    )


def test_devices_of_the_tree(text: str) -> None:
    at = {device.address: device for device in parse(text).devices}
    assert {address: (device.parent, device.kind, device.numa_node) for address, device in at.items()} == {
        "0000:41:00.0": (None, "upstream_port", 1),
        "0000:43:00.0": ("0000:41:00.0", "endpoint", 1),
        "0000:44:00.0": ("0000:41:00.0", "endpoint", 1),
        "0000:53:00.0": (None, "endpoint", None),
    }
    assert at["0000:43:00.0"].link == Link(speed_gts=16.0, width=16)
    assert at["0000:44:00.0"].link == Link(max_speed_gts=32.0, max_width=16)
    assert at["0000:53:00.0"].link == Link()
    assert at["0000:53:00.0"].vendor_id is None
    assert (at["0000:41:00.0"].vendor_id, at["0000:41:00.0"].class_) == ("1000", "060400")
    assert all(device.acs == Acs(state="unreadable") and device.kind_inferred for device in at.values())


def test_a_file_cut_anywhere_gives_what_stands_before_the_cut(text: str) -> None:
    whole = {device.address: device for device in parse(text).devices}
    for size in range(text.index("<cpu"), text.index("</system>") + 8):
        read = parse(text[:size])
        assert read.truncated
        assert read.devices == tuple(whole[device.address] for device in read.devices)
        assert len(read.devices) == len(re.findall(r"<pci [^>]*>", text[:size]))


def test_a_break_in_the_middle_ends_the_reading(text: str) -> None:
    read = parse(text.replace('<pci busid="0000:44', "...\n<pci busid=0000:44"))
    assert read.truncated
    assert [device.address for device in read.devices] == ["0000:41:00.0", "0000:43:00.0"]
    assert read.warnings[0].line == 12


def test_a_log_before_and_quotes_around_are_no_matter(text: str) -> None:
    assert parse("node1:88:88 [0] NCCL INFO dump\n" + text) == parse(text)
    assert parse("".join(f"> {line}\n" for line in text.splitlines())).devices == parse(text).devices


def test_ranks_that_share_a_gpu_do_not_double_its_links(text: str) -> None:
    shared = re.sub(r"(<gpu dev=\"0\".*?</gpu>)", r"\1\1", text, flags=re.DOTALL)
    assert parse(shared).nvlinks == parse(text).nvlinks
    assert [gpu.index for gpu in parse(shared).gpus] == [0, 0, 1]


def test_ends_that_disagree_are_told(text: str) -> None:
    read = parse(text.replace('target="0000:43:00.0" count="4"', 'target="0000:43:00.0" count="3"'))
    assert read.nvlinks[0].count == 4
    assert "disagree" in read.warnings[0].message


def test_what_is_no_address_is_left_out_and_told(text: str) -> None:
    read = parse(text.replace('busid="0000:44:00.0"', 'busid="nonsense"'))
    assert "0000:44:00.0" not in {device.address for device in read.devices}
    assert read.nics[0].address is None
    assert "nonsense" in read.warnings[0].message


@pytest.mark.parametrize(
    "hostile",
    [
        '<!DOCTYPE system [<!ENTITY a "xxxxxxxx"><!ENTITY b "&a;&a;&a;&a;">]><system>&b;</system>',
        '<!DOCTYPE system SYSTEM "file:///etc/passwd"><system/>',
        "<system>" + "<pci>" * 100_000,
    ],
)
def test_hostile_documents_are_refused(hostile: str) -> None:
    with pytest.raises(InputError):
        parse(hostile)


@pytest.mark.parametrize("other", ["", "hello", "<html/>", "<sys", "\x00", "\ud800", "<a><b/></a>"])
def test_other_text_is_refused(other: str) -> None:
    with pytest.raises(InputError):
        parse(other)


@settings(max_examples=100)
@given(st.text(max_size=200), st.text(alphabet='<>/="&; systempciugn0x:.', max_size=200))
def test_no_text_raises_more_than_input_error(noise: str, almost: str) -> None:
    for body in (noise, almost, f"<system>{almost}", f'<system><pci busid="{noise}" link_width="{almost}"/></system>'):
        with contextlib.suppress(InputError):
            parse(body)
    assert parse("<system>" + noise.replace("<", "").replace("&", "")).truncated


def test_many_devices_are_read() -> None:
    rows = "".join(f'<pci busid="{n >> 8:04x}:{n & 255:02x}:00.0" class="0x030200"/>' for n in range(10_000))
    with no_hang():
        assert len(parse(f"<system>{rows}</system>").gpus) == 10_000


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "gpus", "nics"),
    [("aws_p4d.24xl", 8, 4), ("azure_ndv4-topo", 8, 8), ("azure_ndv2-topo", 8, 1), ("rccl_topo_4p3l", 4, None)],
)
def test_field_files(shared: Path, name: str, gpus: int, nics: int | None) -> None:
    text = (shared / f"field/nccl/{name}.xml").read_text()
    read = parse(text)
    assert (read.truncated, read.warnings) == (False, ())
    assert len(read.devices) == len(set(re.findall(r'busid="([^"]*)"', text)))
    assert len(read.gpus) == gpus
    assert nics is None or len(read.nics) == nics


@pytest.mark.shared
def test_xgmi_links_of_a_full_mesh(shared: Path) -> None:
    read = parse((shared / "field/nccl/rccl_topo_4p3l.xml").read_text())
    assert len(read.nvlinks) == 4 * 3 // 2
    assert {link.count for link in read.nvlinks} == {1}
    gpu = next(device for device in read.devices if device.address == "0000:1d:00.0")
    assert (gpu.parent, gpu.numa_node) == ("0000:1b:00.0", 0)

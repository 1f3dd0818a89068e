"""Oracles: the specification's layout (the builder below) and pciutils, which reads the same dumps."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gdsctl.model.pci import ACS_BITS, Acs, Link
from gdsctl.parse.pci_config import VirtualFunctions, parse_config

LSPCI = shutil.which("lspci")
ALL_BITS = ("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans")


def config(
    *,
    port_type: int | None = 0,
    bridge: bool = False,
    acs: tuple[int, int] | None = None,
    acs_at: int = 0x148,
    link: tuple[int, int, int, int] = (4, 16, 4, 16),
    size: int = 4096,
) -> bytearray:
    """A function laid out by the specification: (maximum speed code, width, current speed code, width) for the link."""
    data = bytearray(4096)
    struct.pack_into("<HHHH", data, 0, 0x10DE, 0x2330, 0x0006, 0x0010)
    data[0x08:0x0C] = bytes((0xA1, 0x00, 0x04, 0x06)) if bridge else bytes((0xA1, 0x00, 0x02, 0x03))
    data[0x0E] = 1 if bridge else 0
    if bridge:
        data[0x18:0x1B] = bytes((0x10, 0x11, 0x1F))
        data[0x34] = 0x40
        struct.pack_into("<BBHHH", data, 0x40, 0x0D, 0x60 if port_type is not None else 0, 0, 0x1028, 0x224B)
    else:
        struct.pack_into("<HH", data, 0x2C, 0x10DE, 0x16C1)
        data[0x34] = 0x60 if port_type is not None else 0x50
        data[0x50] = 0x01  # power management
    if port_type is not None:
        speed, width, now, lanes = link
        struct.pack_into("<BBH", data, 0x60, 0x10, 0, 2 | port_type << 4)
        struct.pack_into("<IH", data, 0x64, 2, 1 << 5 | 5 << 12)  # supports 512, set 256; reads of 4096
        struct.pack_into("<I", data, 0x6C, speed | width << 4)
        struct.pack_into("<H", data, 0x72, now | lanes << 4)
        struct.pack_into("<I", data, 0x100, 0x0001 | 1 << 16 | (acs_at << 20 if acs else 0))
        if acs:
            struct.pack_into("<IHH", data, acs_at, 0x000D | 1 << 16, *acs)
    return data[:size]


@pytest.mark.parametrize(
    ("port_type", "kind"),
    [
        (0, "endpoint"),
        (1, "endpoint"),
        (4, "root_port"),
        (5, "upstream_port"),
        (6, "downstream_port"),
        (7, "pcie_to_pci_bridge"),
        (8, "pci_bridge"),
        (9, "root_complex_endpoint"),
        (10, "root_complex_endpoint"),
        (2, "unknown"),
    ],
)
def test_port_types_are_those_of_the_specification(port_type: int, kind: str) -> None:
    assert parse_config(bytes(config(port_type=port_type))).kind == kind


@settings(max_examples=60)
@given(
    st.integers(0, 0x7F),
    st.integers(0, 0x7F),
    st.integers(0x104 // 4, 0xFF8 // 4),
    st.sampled_from([(1, 2.5), (2, 5.0), (3, 8.0), (4, 16.0), (5, 32.0), (6, 64.0)]),
    st.sampled_from([1, 2, 4, 8, 16, 32]),
)
def test_what_is_laid_out_is_read_back(
    capability: int, control: int, acs_dword: int, speed: tuple[int, float], width: int
) -> None:
    code, gts = speed
    data = config(port_type=6, acs=(capability, control), acs_at=acs_dword * 4, link=(code, width, 1, 1))
    read = parse_config(bytes(data))
    enabled = tuple(name for bit, name in enumerate(ALL_BITS) if control & 1 << bit)
    assert read.acs.state == ("enabled" if control else "disabled")
    assert read.acs.enabled == enabled
    assert read.acs.capabilities == tuple(name for bit, name in enumerate(ALL_BITS) if capability & 1 << bit)
    assert read.acs.redirects is bool(control & (0x04 | 0x08 | 0x20))
    assert read.link == Link(speed_gts=2.5, width=1, max_speed_gts=gts, max_width=width)


def test_identity_payload_and_buses() -> None:
    endpoint = parse_config(bytes(config()))
    assert (endpoint.vendor_id, endpoint.device_id, endpoint.class_) == ("10de", "2330", "030200")
    assert (endpoint.subsystem_vendor_id, endpoint.subsystem_device_id) == ("10de", "16c1")
    assert endpoint.max_payload_supported_bytes == 512
    assert endpoint.max_payload_bytes == 256
    assert endpoint.max_read_request_bytes == 4096
    assert endpoint.secondary_bus is None
    bridge = parse_config(bytes(config(bridge=True, port_type=4)))
    assert (bridge.primary_bus, bridge.secondary_bus, bridge.subordinate_bus) == (0x10, 0x11, 0x1F)
    assert (bridge.subsystem_vendor_id, bridge.subsystem_device_id) == ("1028", "224b")
    assert bridge.class_ == "060400"


def test_a_zero_width_and_a_reserved_speed_are_not_known() -> None:
    assert parse_config(bytes(config(link=(0, 0, 7, 0)))).link == Link()


@pytest.mark.parametrize("port_type", [9, 10])
def test_inside_the_root_complex_there_is_no_link(port_type: int) -> None:
    assert parse_config(bytes(config(port_type=port_type))).link == Link()


def test_sixty_four_bytes_hide_acs_and_port_kind_but_not_identity() -> None:
    read = parse_config(bytes(config(bridge=True, port_type=6, acs=(0x5F, 0x1D), size=64)))
    assert read.kind == "unknown"
    assert read.acs == Acs(state="unreadable")
    assert read.acs.redirects is None
    assert (read.vendor_id, read.secondary_bus, read.size_bytes) == ("10de", 0x11, 64)


def test_two_hundred_and_fifty_six_bytes_hide_the_acs_of_an_express_function_only() -> None:
    express = parse_config(bytes(config(port_type=6, bridge=True, acs=(0x5F, 0x1D), size=256)))
    assert (express.kind, express.acs.state) == ("downstream_port", "unreadable")
    assert parse_config(bytes(config(port_type=None, size=256))).acs.state == "absent"
    assert parse_config(bytes(config(port_type=None, size=256))).kind == "endpoint"
    assert parse_config(bytes(config(port_type=None, bridge=True, size=256))).kind == "pci_bridge"
    assert parse_config(bytes(config(port_type=None, size=64))).acs.state == "unreadable"


@settings(max_examples=60)
@given(st.integers(0, 4096), st.integers(0, 0x7F))
def test_cutting_never_changes_an_answer_only_hides_it(size: int, control: int) -> None:
    whole = parse_config(bytes(config(port_type=6, bridge=True, acs=(0x7F, control))))
    cut = parse_config(bytes(config(port_type=6, bridge=True, acs=(0x7F, control), size=size)))
    assert cut.kind in (whole.kind, "unknown")
    assert cut.acs in (whole.acs, Acs(state="unreadable"))
    assert cut.link in (whole.link, Link())


@pytest.mark.parametrize("size", [64, 256, 4096])
def test_all_ones_is_a_function_that_is_gone_not_acs_all_on(size: int) -> None:
    read = parse_config(b"\xff" * size)
    assert (read.acs.state, read.kind, read.vendor_id) == ("unreadable", "unknown", None)


def test_an_extended_list_need_not_ascend() -> None:
    data = config(acs=(0x5F, 0x1D), acs_at=0x800)
    struct.pack_into("<I", data, 0x100, 0x0001 | 1 << 16 | 0xB00 << 20)
    struct.pack_into("<I", data, 0xB00, 0x0003 | 1 << 16 | 0x800 << 20)
    assert parse_config(bytes(data)).acs.enabled == ("SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd")


@pytest.mark.parametrize(
    ("header_at_100", "state"),
    [
        (0x00000000, "absent"),
        (0x0000FFFF, "absent"),  # 7.6.3: "no extended capability" may also be spelled FFFFh with next 0
        (0xFFFFFFFF, "unreadable"),  # no access to extended space
        (0x0001 | 1 << 16 | 0x100 << 20, "absent"),  # points at itself
        (0x0001 | 1 << 16 | 0x040 << 20, "absent"),  # points into the header: Linux stops there as well
        (0x0001 | 1 << 16 | 0x200 << 20, "unreadable"),  # the next header reads as ones
    ],
)
def test_where_the_extended_list_ends(header_at_100: int, state: str) -> None:
    data = config()
    struct.pack_into("<I", data, 0x100, header_at_100)
    data[0x200:0x204] = b"\xff\xff\xff\xff"
    acs = parse_config(bytes(data)).acs
    assert (acs.state, acs.redirects) == (state, None)


def test_a_conventional_list_that_loops_ends() -> None:
    data = config(port_type=None)
    data[0x51] = 0x50
    assert parse_config(bytes(data)).kind == "endpoint"


def test_sriov_numbers_count_only_when_enabled() -> None:
    data = config()
    struct.pack_into("<I", data, 0x100, 0x0010 | 1 << 16)
    struct.pack_into("<HHHHH", data, 0x110, 8, 0, 2, 1, 0)
    assert parse_config(bytes(data)).virtual_functions is None
    data[0x108] = 1
    assert parse_config(bytes(data)).virtual_functions == VirtualFunctions(count=8, offset=2, stride=1)


@settings(max_examples=150)
@given(st.binary(max_size=600))
@example(b"")
@example(b"\x00" * 4096)
@example((b"\x10\xfc" * 2048)[:4096])
def test_no_bytes_raise(data: bytes) -> None:
    read = parse_config(data)
    assert read.size_bytes == len(data)
    assert read.acs.redirects is None or read.acs.state in ("enabled", "disabled")


# --- pciutils as oracle -----------------------------------------------------------------------------------------------

DUMPS = (
    "lspci/pciutils-cap-aer-root",
    "lspci/pciutils-cap-dpc",
    "lspci/pciutils-tree-asus-p6t6",
    "vm/*/oracle/lspci-xxxx.txt",
)


def dumps(shared: Path) -> list[Path]:
    return sorted(path for pattern in DUMPS for path in (shared / "field").glob(pattern))


def hex_blocks(text: str) -> list[bytes]:
    blocks: list[bytes] = []
    for line in text.splitlines():
        if re.match(r"(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] ", line):
            blocks.append(b"")
        elif match := re.match(r"[0-9a-f]{2,3}: ((?:[0-9a-f]{2} ?)+)$", line):
            blocks[-1] += bytes.fromhex(match[1])
    return blocks


def flags(line: re.Match[str] | None) -> tuple[str, ...]:
    return tuple(re.findall(r"(\w+)\+", line[1])) if line else ()


@pytest.mark.shared
@pytest.mark.skipif(LSPCI is None, reason="pciutils is not installed")
def test_pciutils_reads_the_same_in_every_dump(shared: Path) -> None:
    devices = acs = links = 0
    words = {
        "Endpoint": "endpoint",
        "Legacy Endpoint": "endpoint",
        "Root Port": "root_port",
        "Upstream Port": "upstream_port",
        "Downstream Port": "downstream_port",
        "Root Complex Integrated Endpoint": "root_complex_endpoint",
        "Root Complex Event Collector": "root_complex_endpoint",
        "PCI-Express to PCI/PCI-X Bridge": "pcie_to_pci_bridge",
    }
    for dump in dumps(shared):
        told = subprocess.run(
            [LSPCI or "", "-F", str(dump), "-vvv", "-nn"], capture_output=True, text=True, check=True
        ).stdout
        texts = [block for block in told.split("\n\n") if block.strip()]
        configs = hex_blocks(dump.read_text())
        assert len(texts) == len(configs), dump
        for text, data in zip(texts, configs, strict=True):
            read = parse_config(data)
            where = f"{dump}: {text.splitlines()[0]}"
            devices += 1
            express = re.search(r"Capabilities: \[..\] Express \(v\d\) ([^(,\n]+?)(?: \(|,|\n)", text)
            if express:
                assert words[express[1]] == read.kind, where
            else:
                assert read.port_type is None, where
            control = re.search(r"\tACSCtl:\t(.*)", text)
            assert bool(control) == (read.acs.state in ("enabled", "disabled")), where
            assert flags(control) == read.acs.enabled, where
            assert flags(re.search(r"\tACSCap:\t(.*)", text)) == read.acs.capabilities, where
            acs += bool(control)
            for register, speed, width in (
                ("LnkCap", read.link.max_speed_gts, read.link.max_width),
                ("LnkSta", read.link.speed_gts, read.link.width),
            ):
                line = re.search(rf"\t{register}:\t.*?Speed (unknown|[\d.]+GT/s).*?Width x(\d+)", text)
                links += bool(line)
                if line:
                    assert line[1] == (f"{speed:g}GT/s" if speed else "unknown"), where
                    assert int(line[2]) == (width or 0), where
            payload = re.search(r"\tMaxPayload (\d+) bytes, MaxReadReq (\d+) bytes", text)
            if payload:
                assert (int(payload[1]), int(payload[2])) == (read.max_payload_bytes, read.max_read_request_bytes)
            ids = re.search(r"\[([0-9a-f]{4}):([0-9a-f]{4})\]", text.splitlines()[0])
            assert ids is not None
            assert (ids[1], ids[2]) == (read.vendor_id, read.device_id)
    assert devices > 100
    assert acs > 20
    assert links > 100


def test_acs_bits_have_the_names_that_pciutils_prints() -> None:
    assert ACS_BITS == ALL_BITS

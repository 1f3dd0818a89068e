"""Fixtures are read by eye; real dumps are checked against pciutils and against the same machine's config files."""

from __future__ import annotations

import contextlib
import gzip
import re
import tarfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdsctl.errors import InputError
from gdsctl.model.pci import Acs, Bar, Link, PciDevice, Sriov
from gdsctl.parse.lspci import parse
from gdsctl.parse.pci_config import parse_config
from tests.hang import no_hang

VM = ("acs-off", "acs-on", "acs-pt", "acs-on-setpci-off", "cascade", "flat", "multipath", "switches-on", "rdma-612")


def by_address(text: str) -> dict[str, PciDevice]:
    return {device.address: device for device in parse(text).devices}


@pytest.fixture(scope="module")
def switch_text(fixtures: Path) -> str:
    return (fixtures / "parse/lspci/switch-root.txt").read_text()


@pytest.fixture(scope="module")
def xe9680(shared: Path) -> str:
    return gzip.decompress((shared / "field/lspci/xe9680-8xh100.lspci-vvv.gz").read_bytes()).decode()


def test_a_switch_read_as_root(switch_text: str) -> None:
    read = parse(switch_text)
    assert read.warnings == ()
    assert not read.truncated
    at = {device.address: device for device in read.devices}
    assert {address: (device.kind, device.parent) for address, device in at.items()} == {
        "0000:40:01.0": ("root_port", None),
        "0000:41:00.0": ("upstream_port", "0000:40:01.0"),
        "0000:42:00.0": ("downstream_port", "0000:41:00.0"),
        "0000:42:04.0": ("downstream_port", "0000:41:00.0"),
        "0000:43:00.0": ("endpoint", "0000:42:00.0"),
        "0000:44:00.0": ("endpoint", "0000:42:04.0"),
        "0000:45:00.0": ("endpoint", "0000:42:04.0"),
    }
    assert {device.root_bus for device in read.devices} == {"0000:40"}
    assert {device.numa_node for device in read.devices} == {1}
    assert not any(device.kind_inferred for device in read.devices)


def test_acs_of_the_switch(switch_text: str) -> None:
    at = by_address(switch_text)
    assert at["0000:42:00.0"].acs == Acs(
        state="enabled",
        capabilities=("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans"),
        enabled=("SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd"),
        redirects=True,
    )
    root = at["0000:40:01.0"].acs
    assert (root.state, root.enabled, root.redirects) == ("enabled", ("SrcValid",), False)
    assert at["0000:41:00.0"].acs == Acs(state="absent")


def test_the_gpu_of_the_switch(switch_text: str) -> None:
    gpu = by_address(switch_text)["0000:43:00.0"]
    assert (gpu.vendor_id, gpu.device_id, gpu.class_) == ("10de", "2331", "030200")
    assert (gpu.subsystem_vendor_id, gpu.subsystem_device_id) == ("10de", "1626")
    assert gpu.name == "NVIDIA Corporation GH100 [H100 PCIe]"
    assert (gpu.driver, gpu.iommu_group) == ("nvidia", "21")
    assert gpu.link == Link(speed_gts=2.5, width=16, max_speed_gts=32.0, max_width=16)
    # Region 1 belongs to virtual functions, Region 4 has no size.
    assert gpu.bars == (
        Bar(index=0, size_bytes=16 * 2**20, prefetchable=True),
        Bar(index=2, size_bytes=128 * 2**30, prefetchable=True),
    )
    assert gpu.sriov == Sriov()


def test_virtual_functions_follow_from_offset_and_stride(switch_text: str) -> None:
    # PF 44:00.0 is routing id 4400h; + 256 = 4500h is 45:00.0, on a bus that no bridge has as secondary.
    virtual = by_address(switch_text)["0000:45:00.0"]
    assert virtual.sriov == Sriov(is_vf=True, physfn="0000:44:00.0")
    assert virtual.bars == (Bar(index=0, size_bytes=2**20, prefetchable=True),)


def test_without_root_acs_and_link_are_unknown_and_kinds_follow_from_the_shape(fixtures: Path) -> None:
    at = by_address((fixtures / "parse/lspci/switch-user.txt").read_text())
    assert {address: device.kind for address, device in at.items()} == {
        "0000:40:01.0": "root_port",
        "0000:41:00.0": "upstream_port",
        "0000:42:00.0": "downstream_port",
        "0000:43:00.0": "endpoint",
    }
    for device in at.values():
        assert device.kind_inferred
        assert device.acs == Acs(state="unreadable")
        assert device.link == Link()
        assert device.numa_node == 1
    disk = at["0000:43:00.0"]
    assert (disk.class_, disk.driver, disk.iommu_group, disk.bars) == ("010802", "nvme", "10", ())
    assert disk.parent == "0000:42:00.0"


def test_names_alone_give_class_codes_and_no_tree(fixtures: Path) -> None:
    at = by_address((fixtures / "parse/lspci/names-only.txt").read_text())
    assert {address: device.class_ for address, device in at.items()} == {
        "0000:00:00.0": "060000",
        "0000:01:00.0": "0300",  # 00 is VGA, 01 is 8514: not told
        "0000:02:00.0": "030200",
        "0000:03:00.0": "0108",
        "0000:04:00.0": "020700",
        "0000:05:00.0": None,
        "10000:e1:00.0": "0108",
    }
    assert at["0000:02:00.0"].device_id == "2330"
    assert at["0000:02:00.0"].vendor_id is None
    assert list(at)[-1] == "10000:e1:00.0"
    assert all(device.acs.state == "unreadable" for device in at.values())


def test_bridges_without_bus_numbers_leave_parents_and_root_buses_unknown() -> None:
    at = by_address("00:01.0 PCI bridge: A Bridge\n01:00.0 3D controller: A Gpu\n00:02.0 Host bridge: A Host\n")
    assert (at["0000:01:00.0"].parent, at["0000:01:00.0"].root_bus) == (None, None)
    assert at["0000:00:02.0"].root_bus == "0000:00"


@pytest.mark.parametrize(
    "line",
    [
        "01:00.0 0302: 10de:20b2 (rev a1)",
        "01:00.0 Class 0302: Device 10de:20b2 (rev a1)",
        "01:00.0 Class [0302]: Device [10de:20b2]",
    ],
)
def test_numbers_for_names(line: str) -> None:
    device = parse(line + "\n").devices[0]
    assert (device.class_, device.vendor_id, device.device_id) == ("030200", "10de", "20b2")


def test_lost_tabs_quotes_and_colours_change_nothing(switch_text: str) -> None:
    expected = parse(switch_text).devices
    assert parse(re.sub(r"^\s+", "", switch_text, flags=re.MULTILINE) + "\n").devices[:-1] == expected[:-1]
    assert parse(re.sub(r"^", "> ", switch_text, flags=re.MULTILINE)).devices == expected
    assert parse(switch_text.replace("ReqRedir+", "\x1b[01;31mReqRedir+\x1b[0m")).devices == expected
    assert parse(switch_text.replace("\n", "\r\n")).devices == expected
    assert parse(re.sub(r"^", "    ", switch_text, flags=re.MULTILINE)).devices == expected


def test_a_wrapped_acs_line_is_put_together(switch_text: str) -> None:
    wrapped = switch_text.replace(
        "CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-\n", "CmpltRedir+\nUpstreamFwd+ EgressCtrl- DirectTrans-\n"
    )
    assert wrapped != switch_text
    assert parse(wrapped).devices == parse(switch_text).devices


def test_a_cut_acs_line_is_not_half_an_answer(switch_text: str) -> None:
    start = switch_text.index("ACSCtl:\tSrcValid+ TransBlk- ReqRedir+")
    read = parse(switch_text[: start + len("ACSCtl:\tSrcValid+ TransBlk-")])
    assert read.truncated
    assert read.devices[-1].acs == Acs(state="unreadable")
    assert "ACSCtl" in read.warnings[0].message


def test_the_acs_of_a_device_at_the_cut_is_not_called_absent(switch_text: str) -> None:
    upto = switch_text.index("Capabilities: [f24 v1]")
    read = parse(switch_text[:upto])
    assert read.devices[-1].address == "0000:42:00.0"
    assert read.devices[-1].acs.state == "unreadable"


def test_text_without_any_extended_capability_does_not_show_that_acs_is_absent() -> None:
    text = (
        "00:01.0 PCI bridge [0604]: A [8086:0001] (prog-if 00 [Normal decode])\n\tCapabilities: [40] Express (v2) Root"
        " Port (Slot-), MSI 00\n\tKernel driver in use: pcieport\n\tKernel modules: x\n\n"
    )
    assert parse(text).devices[0].acs.state == "unreadable"
    more = text + text.replace("00:01.0", "00:02.0").replace(
        "\tKernel d", "\tCapabilities: [100 v1] Vendor\n\tKernel d"
    )
    assert [device.acs.state for device in parse(more).devices] == ["unreadable", "absent"]


def test_hex_is_stronger_than_text_and_text_fills_what_hex_lacks() -> None:
    header = bytearray(64)
    header[0:4] = bytes.fromhex("86802a35")
    header[6] = 0x10
    header[8:12] = bytes.fromhex("11000406")
    header[14] = 1
    header[0x18:0x1B] = bytes((0, 7, 9))
    rows = "\n".join(f"{at:02x}: {bytes(header[at : at + 16]).hex(' ')}" for at in range(0, 64, 16))
    text = f"00:01.0 PCI bridge: A name\n\tBus: primary=00, secondary=01, subordinate=01\n\tNUMA node: 3\n{rows}\n\n"
    device = parse(text).devices[0]
    assert (device.secondary_bus, device.subordinate_bus) == (7, 9)
    assert (device.vendor_id, device.device_id, device.class_) == ("8086", "352a", "060400")
    assert (device.numa_node, device.config_bytes, device.acs.state) == (3, 64, "unreadable")


def test_a_hole_in_a_dump_ends_it() -> None:
    rows = [f"{at:02x}: " + "00 " * 16 for at in range(0, 256, 16)]
    del rows[5]
    read = parse("00:00.0 Host bridge: A\n" + "\n".join(rows) + "\n\n00:01.0 Host bridge: B\n")
    assert read.devices[0].config_bytes == 0x50
    assert read.warnings[0].line == 7


def test_a_dump_that_ends_early_is_truncated() -> None:
    rows = "\n".join(f"{at:02x}: " + "00 " * 16 for at in range(0, 0x90, 16))
    assert parse(f"00:00.0 Host bridge: A\n{rows}\n").truncated


@pytest.mark.parametrize(
    "end", ["...", "[truncated]", "0000:43:00.1 Audio dev", "\tRegion 0: Memory at 4a0 (64-bit, pre"]
)
def test_signs_of_a_missing_end(switch_text: str, end: str) -> None:
    assert parse(switch_text + end).truncated


@pytest.mark.parametrize("text", ["", "hello\n", "GPU0 GPU1\n", "\x00\ud800" * 50, "0000:00:00.0\n"])
def test_what_is_not_lspci_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse(text)


@settings(max_examples=100)
@given(st.text(max_size=300), st.text(alphabet="ACSCtlSrcValid+-:[]<>()Region 0123456789abcdef.\t\n", max_size=300))
def test_no_text_raises_more_than_input_error(noise: str, almost: str) -> None:
    read = parse(f"01:00.0 3D controller: x\n\t{almost}\n{noise}")
    assert "0000:01:00.0" in {device.address for device in read.devices}
    for text in (noise, almost):
        with contextlib.suppress(InputError):
            parse(text)


@settings(max_examples=40)
@given(st.integers(0, 4500))
def test_a_cut_never_changes_a_certain_answer(switch_text: str, size: int) -> None:
    whole = by_address(switch_text)
    cut = switch_text[:size]
    if not re.match(r".*: \S", cut):
        return
    for device in parse(cut).devices:
        assert device.acs in (whole[device.address].acs, Acs(state="unreadable"))
        assert device.link.width in (whole[device.address].link.width, None)


@pytest.mark.parametrize("piece", ["A" * 100_000, "a+" * 50_000, "[" * 100_000, " \t" * 50_000, "IOMMU group " * 8000])
def test_long_lines_take_no_long_time(piece: str) -> None:
    with no_hang():
        for key in ("ACSCtl: ", "Flags: ", "Capabilities: [40] ", "LnkCap: ", "Subsystem: ", "02:00.0 A"):
            parse(f"01:00.0 3D controller: x\n\t{key}{piece}\n")


def test_many_functions_are_read(switch_text: str) -> None:
    block = switch_text.split("\n\n")[4]
    text = "\n\n".join(block.replace("0000:43:00.0", f"{n >> 8:04x}:{n & 0xFF:02x}:00.0", 1) for n in range(4000))
    with no_hang():
        assert len(parse(text).devices) == 4000


# --- field data -------------------------------------------------------------------------------------------------------


@pytest.mark.shared
def test_a_server_with_eight_gpus(xe9680: str) -> None:
    read = parse(xe9680)
    assert (len(read.devices), read.truncated, read.warnings) == (517, False, ())
    states = Counter(device.acs.state for device in read.devices)
    assert states["enabled"] + states["disabled"] == 55
    assert states["enabled"] == len(re.findall(r"ACSCtl:.*\+", xe9680)) == 6
    assert states["unreadable"] == 0
    redirecting = [device for device in read.devices if device.acs.redirects]
    assert len(redirecting) == len(re.findall(r"ACSCtl:.*(?:ReqRedir|CmpltRedir|EgressCtrl)\+", xe9680)) == 4
    at = {device.address: device for device in read.devices}
    # Below each Gen5 switch one GPU; the NIC beside it has the same upstream port.
    gpu, port = at["0000:19:00.0"], at["0000:17:01.0"]
    assert gpu.parent == "0000:17:01.0"
    assert port.parent == "0000:16:00.0"
    assert at["0000:16:00.0"].kind == "upstream_port"
    assert gpu.bars[1] == Bar(index=2, size_bytes=128 << 30, prefetchable=True)
    kinds = Counter(device.kind for device in read.devices)
    express = Counter(re.findall(r"Express \(v\d\) (\w+ \w+)", xe9680))
    assert kinds["downstream_port"] == express["Downstream Port"]
    assert kinds["upstream_port"] == express["Upstream Port"]
    assert kinds["root_port"] == express["Root Port"]
    assert Counter(device.numa_node for device in read.devices) == Counter(
        int(node) for node in re.findall(r"NUMA node: (\d+)", xe9680)
    )
    gpus = [device for device in read.devices if device.name == "NVIDIA Corporation Device 2330"]
    assert len(gpus) == 8
    assert {at[device.parent or ""].kind for device in gpus} == {"downstream_port"}
    assert {device.class_ for device in gpus} == {"030200"}


@pytest.mark.shared
def test_a_flattened_guest(shared: Path) -> None:
    read = parse((shared / "field/lspci/azure-nd-a100-guest.lspci-nn").read_text())
    classes = Counter(device.class_ for device in read.devices)
    assert classes["030200"] == 8
    assert {device.parent for device in read.devices} == {None}


def configs(archive: Path) -> dict[str, bytes]:
    found = {}
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            name = re.fullmatch(r".*/([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])/config", member.name)
            file = tar.extractfile(member) if name and member.isfile() else None
            if name and file:
                found[name[1]] = file.read()
    return found


def numa_nodes(archive: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            name = re.fullmatch(r".*/([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])/numa_node", member.name)
            file = tar.extractfile(member) if name and member.isfile() else None
            if name and file:
                found[name[1]] = int(file.read())
    return found


@pytest.mark.shared
@pytest.mark.parametrize("capture", VM)
def test_text_says_what_the_config_files_of_the_same_machine_say(shared: Path, capture: str) -> None:
    folder = shared / "field/vm" / capture
    text = (folder / "oracle/lspci-vvv-nn.txt").read_text()
    at = by_address(text)
    extended = {block.split(" ")[0]: re.findall(r"\[([0-9a-f]{3}) v", block) for block in text.split("\n\n")}
    files = configs(folder / "root.tar.gz")
    assert at.keys() == files.keys()
    for address, data in files.items():
        device, config = at[address], parse_config(data)
        assert (device.kind, device.kind_inferred) == (config.kind, False), address
        if extended[address]:
            assert device.acs == config.acs, address
        elif config.port_type is not None:
            # Text shows no difference between an empty extended space and none.
            assert (device.acs.state, config.acs.redirects) == ("unreadable", None), address
        else:
            assert device.acs == config.acs == Acs(state="absent"), address
        assert device.link == config.link, address
        assert (device.class_, device.vendor_id, device.device_id) == (
            config.class_,
            config.vendor_id,
            config.device_id,
        )
        assert device.secondary_bus == config.secondary_bus
        assert (device.subsystem_vendor_id, device.subsystem_device_id) == (
            config.subsystem_vendor_id,
            config.subsystem_device_id,
        ), address
    for address, node in numa_nodes(folder / "root.tar.gz").items():
        assert at[address].numa_node == (node if node != -1 else None)


@pytest.mark.shared
@pytest.mark.parametrize("capture", VM)
def test_parents_are_those_of_sysfs(shared: Path, capture: str) -> None:
    folder = shared / "field/vm" / capture
    at = by_address((folder / "oracle/lspci-xxxx.txt").read_text())
    seen = 0
    with tarfile.open(folder / "root.tar.gz") as tar:
        for name in tar.getnames():
            if match := re.fullmatch(
                r"(?:\./)?sys/devices/pci([0-9a-f]+:[0-9a-f]{2})/((?:[^/]+/)*)([^/]+)/config", name
            ):
                device = at[match[3]]
                assert device.root_bus == match[1]
                assert device.parent == (match[2].rstrip("/").split("/")[-1] or None)
                seen += 1
    assert seen == len(at)

"""PCI functions from sysfs: made-up machines, captures of booted ones and hwloc's trees."""

from __future__ import annotations

import gzip
import re
import subprocess
import tarfile
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gdsctl.collect import pci
from gdsctl.collect.reader import Reader
from gdsctl.model.pci import Acs, PciDevice
from gdsctl.source.opening import open_source
from tests.builders import CR, RR, SV, Machine

VM = "field/vm"
MATTERING = ("0108", "02", "0302", "0604")


def two_sockets() -> Machine:
    machine = Machine()
    for bus, numa in (("0000:17", 0), ("0000:97", 1)):
        root = machine.root(bus, numa=numa)
        switch = machine.switch(machine.root_port(root, acs=SV), ports=3, acs=RR | CR)
        machine.gpu(switch.down[0], group="7")
        card = machine.nic(switch.down[1])
        machine.nic(switch.down[1], beside=card, physfn=card)
        machine.nvme(switch.down[2])
        machine.nvme(machine.root_port(root))
    return machine


def read(folder: Path) -> tuple[tuple[PciDevice, ...], Reader]:
    reader = Reader(open_source(str(folder)))
    return pci.collect(reader), reader


def without_names(devices: tuple[PciDevice, ...]) -> list[PciDevice]:
    return [msgspec.structs.replace(device, name=None) for device in devices]


def test_privileged_tree_is_read_back_as_it_was_built(tmp_path):
    machine = two_sockets()
    devices, reader = read(machine.write(tmp_path))
    assert without_names(devices) == list(machine.devices())
    assert not reader.gaps


def test_names_come_from_the_table(tmp_path):
    machine = two_sockets()
    devices, _ = read(machine.write(tmp_path))
    names = {device.address: device.name for device in devices}
    assert names[machine.gpus[0].address] == "GH100 [H100 SXM5 80GB]"
    assert names[machine.nics[0].address] == "MT2910 Family [ConnectX-7]"


def test_udev_names_come_first(machine):
    answer = {"devices": {"pci": {"0000:01:00.0": {"ID_MODEL_FROM_DATABASE": "GH100 [H200]"}}}}
    files = {f"/sys/bus/pci/devices/0000:0{bus}:00.0/vendor": "0x10de\n" for bus in (1, 2)}
    files |= {f"/sys/bus/pci/devices/0000:0{bus}:00.0/device": "0x2330\n" for bus in (1, 2)}
    names = [device.name for device in pci.collect(machine(files, answers={"udev": answer}))]
    assert names == ["GH100 [H200]", "GH100 [H100 SXM5 80GB]"]
    shapes: tuple[object, ...] = ({}, [], {"devices": {"pci": {"0000:01:00.0": 7}}})
    for odd in shapes:
        assert pci.collect(machine(files, answers={"udev": odd}))[0].name == "GH100 [H100 SXM5 80GB]"


def test_unprivileged_tree_keeps_shape_and_leaves_acs_unknown(tmp_path):
    machine = two_sockets()
    devices, reader = read(machine.write(tmp_path, privileged=False))
    truth = {device.address: device for device in machine.devices()}
    for device in devices:
        assert device.acs == Acs(state="unreadable")
        assert (device.parent, device.root_bus) == (truth[device.address].parent, truth[device.address].root_bus)
        if device.class_ == "060400":
            assert device.kind_inferred
            assert device.kind == truth[device.address].kind
    told = {gap.key: gap for gap in reader.gaps if gap.field == "acs/redirects"}
    physical = {device.address for device in devices if not device.sriov.is_vf}
    assert set(told) == physical
    assert {gap.reason for gap in told.values()} == {"denied"}
    port = machine.roots[0].parts[1].address
    assert told[port].settle_with == f"sudo lspci -D -s {port} -vvv"


def test_plain_folders_get_parents_from_bus_numbers(tmp_path):
    machine = Machine()
    root = machine.root("0000:17", numa=0)
    switch = machine.switch(machine.root_port(root), ports=2)
    gpu = machine.gpu(switch.down[1])
    devices, _ = read(machine.write(tmp_path, links=False))
    parents = {device.address: device.parent for device in devices}
    # by hand: root bus 17; root port 17:01.0 -> 18; upstream 18:00.0 -> 19; downstream 19:00.0 -> 1a, 19:01.0 -> 1b
    assert parents == {
        "0000:17:00.0": None,
        "0000:17:01.0": None,
        "0000:18:00.0": "0000:17:01.0",
        "0000:19:00.0": "0000:18:00.0",
        "0000:19:01.0": "0000:18:00.0",
        "0000:1b:00.0": "0000:19:01.0",
    }
    assert gpu.address == "0000:1b:00.0"


def test_plain_folders_without_bus_numbers_have_no_known_parent(machine):
    home = "/sys/bus/pci/devices"
    reader = machine({f"{home}/0004:04:00.0/class": "0x030200\n", f"{home}/0004:03:00.0/class": "0x060400\n"})
    devices = pci.collect(reader)
    assert [(device.address, device.parent, device.root_bus) for device in devices] == [
        ("0004:03:00.0", None, None),
        ("0004:04:00.0", None, None),
    ]
    assert [gap.key for gap in reader.gaps if gap.field == "parent"] == ["0004:03:00.0", "0004:04:00.0"]


def test_vmd_domain_is_a_root_bus_of_its_own(machine, link):
    place = "/sys/devices/pci0000:b2/0000:b2:00.5/pci10000:00/10000:00:02.0/10000:01:00.0"
    reader = machine(
        {
            f"{place}/class": "0x010802\n",
            "/sys/bus/pci/devices/10000:01:00.0": link(f"../../..{place.removeprefix('/sys')}"),
            "/sys/bus/pci/devices/10000:00:02.0": link(f"../../..{place.removeprefix('/sys').rpartition('/')[0]}"),
            f"{place.rpartition('/')[0]}/class": "0x060400\n",
        }
    )
    devices = {device.address: device for device in pci.collect(reader)}
    assert (devices["10000:00:02.0"].parent, devices["10000:00:02.0"].root_bus) == (None, "10000:00")
    assert (devices["10000:01:00.0"].parent, devices["10000:01:00.0"].root_bus) == ("10000:00:02.0", "10000:00")


def test_broken_attributes_are_unknown_not_wrong(machine):
    home = "/sys/bus/pci/devices/0000:01:00.0"
    reader = machine(
        {
            f"{home}/config": b"\xff" * 4096,
            f"{home}/class": "no number\n",
            f"{home}/vendor": "0x12345\n",
            f"{home}/numa_node": "-1\n",
            f"{home}/current_link_speed": "Unknown\n",
            f"{home}/current_link_width": "255\n",
            f"{home}/resource": "garbage\n",
        }
    )
    (device,) = pci.collect(reader)
    assert (device.vendor_id, device.class_, device.numa_node, device.bars) == (None, None, None, ())
    assert (device.link.speed_gts, device.link.width) == (None, None)
    assert device.acs.state == "unreadable"
    assert {"class", "acs/redirects"} <= {gap.field for gap in reader.gaps}


def test_no_pci_at_all_is_a_gap(machine):
    reader = machine({"/proc/cmdline": "quiet\n"})
    assert pci.collect(reader) == ()
    assert [(gap.section, gap.field) for gap in reader.gaps] == [("pci", "devices")]


PASTED = """\
0000:17:01.0 PCI bridge [0604]: Intel Corporation Device [8086:352a] (rev 04) (prog-if 00 [Normal decode])
\tBus: primary=17, secondary=18, subordinate=18, sec-latency=0
\tCapabilities: [40] Express (v2) Root Port (Slot+), MSI 00
\tCapabilities: [100 v1] Access Control Services
\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans+
\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-
\tKernel driver in use: pcieport

0000:18:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev a1)
\tCapabilities: [60] Express (v2) Endpoint, MSI 00

"""


def test_pasted_lspci_stands_in_where_there_is_no_sysfs(machine):
    devices = pci.collect(machine({}, outputs={"lspci": PASTED}))
    assert [(d.address, d.parent, d.root_bus) for d in devices] == [
        ("0000:17:01.0", None, "0000:17"),
        ("0000:18:00.0", "0000:17:01.0", "0000:17"),
    ]
    assert devices[0].acs.redirects is True


def test_lspci_fills_in_acs_that_an_unprivileged_capture_lacks(tmp_path, machine):
    built = Machine()
    port = built.root_port(built.root("0000:17", numa=0))
    built.gpu(port)
    files = {}
    for path in built.write(tmp_path, privileged=False, links=False).rglob("*"):
        if path.is_file():
            files["/" + str(path.relative_to(tmp_path))] = path.read_bytes()
    devices = {d.address: d for d in pci.collect(machine(files, outputs={"lspci": PASTED}))}
    assert devices["0000:17:01.0"].acs.enabled == ("SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd")
    assert (devices["0000:17:01.0"].kind, devices["0000:17:01.0"].kind_inferred) == ("root_port", False)
    assert devices["0000:17:00.0"].acs.state == "unreadable"  # the paste does not show it


def test_pasted_nccl_topology_is_the_last_resort(machine):
    text = """<system version="1"><cpu numaid="1"><pci busid="0000:17:00.0" class="0x060400" link_speed="32.0 GT/s PCIe"
    link_width="16"><pci busid="0000:19:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16"/></pci></cpu>
    </system>"""
    devices = pci.collect(machine({}, outputs={"nccl-topo": text}))
    assert [(d.address, d.parent, d.numa_node) for d in devices] == [
        ("0000:17:00.0", None, 1),
        ("0000:19:00.0", "0000:17:00.0", 1),
    ]


def test_ids_are_found_for_lspci_names_without_numbers(machine):
    text = (
        PASTED.replace(" [8086:352a]", " 352a")
        .replace(" [10de:2330]", "")
        .replace(" [0604]", "")
        .replace(" [0302]", "")
    )
    devices = pci.collect(machine({}, outputs={"lspci": text}))
    assert [(d.vendor_id, d.device_id) for d in devices] == [("8086", "352a"), ("10de", "2330")]


def test_a_read_costs_no_more_than_sixteen_questions(tmp_path):
    machine = two_sockets()
    source = open_source(str(machine.write(tmp_path)))
    asked: list[str] = []

    class Counting:
        def __getattr__(self, name: str):
            def ask(*arguments: str) -> object:
                asked.append(name)
                return getattr(source, name)(*arguments)

            return source.info if name == "info" else ask

    devices = pci.collect(Reader(Counting()))
    assert len(asked) <= 16 * len(devices) + 3


# --- machines that really booted -----------------------------------------------------------------------------------


CAPTURES = ("acs-on", "acs-on-setpci-off", "acs-noredir", "switches-pt", "flat", "cascade", "p2pmem")


@pytest.fixture(scope="module")
def captures(shared: Path) -> dict[Path, tuple[PciDevice, ...]]:
    """Oracle folder -> what is collected from the capture beside it."""
    folders = [shared / VM / name for name in CAPTURES]
    return {
        folder / "oracle": pci.collect(Reader(open_source(str(folder / "root.tar.gz"))))
        for folder in folders
        if folder.is_dir()
    }


@pytest.mark.shared
def test_captures_agree_with_lspci(captures):
    """Against lspci's text, cut up here by regular expressions: class, ids, NUMA, driver, IOMMU group, links, ACS."""
    seen = 0
    for oracle, collected in captures.items():
        devices = {d.address: d for d in collected}
        text = (oracle / "lspci-vvv-nn.txt").read_text()
        blocks = re.split(r"\n(?=[0-9a-f]{4}:|[0-9a-f]{2}:)", text)
        assert len(devices) == len(blocks)
        for block in blocks:
            head = re.match(r"(\S+) .*?\[([0-9a-f]{4})\]: .*\[([0-9a-f]{4}):([0-9a-f]{4})\]", block)
            assert head
            address = head[1]
            device = devices[address if address.count(":") == 2 else f"0000:{address}"]
            assert (device.class_ or "")[:4] == head[2]
            assert (device.vendor_id, device.device_id) == (head[3], head[4])
            numa = re.search(r"NUMA node: (\d+)", block)
            assert device.numa_node == (int(numa[1]) if numa else None)
            group = re.search(r"IOMMU group: (\d+)", block)
            assert device.iommu_group == (group[1] if group else None)
            driver = re.search(r"Kernel driver in use: (\S+)", block)
            assert device.driver == (driver[1] if driver else None)
            status = re.search(r"LnkSta:\s+Speed ([\d.]+)GT/s.*?Width x(\d+)", block)
            if status:
                assert (device.link.speed_gts, device.link.width) == (float(status[1]), int(status[2]))
            control = re.search(r"ACSCtl:\s+(.*)", block)
            enabled = tuple(re.findall(r"(\w+)\+", control[1])) if control else ()
            assert device.acs.enabled == enabled
            kind = re.search(r"Express \(v\d\) (Root Port|Upstream Port|Downstream Port)", block)
            if kind:
                assert device.kind == kind[1].lower().replace(" ", "_")
            seen += 1
    assert seen > 150


def drawn(document: ET.Element) -> dict[str, str | None]:
    """Address -> parent bridge in lstopo's XML."""
    parents: dict[str, str | None] = {}

    def walk(element: ET.Element, above: str | None) -> None:
        address = element.get("pci_busid")
        if address:
            parents[address] = above
        for child in element:
            walk(child, address or above)

    walk(document, None)
    return parents


def lstopo(root: Path) -> dict[str, str | None]:
    out = subprocess.run(
        ["lstopo", "--of", "xml", "--whole-io"],
        env={"PATH": "/usr/bin:/bin", "HWLOC_FSROOT": str(root), "HWLOC_COMPONENTS": "-x86", "HWLOC_THISSYSTEM": "0"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return drawn(ET.fromstring(out))  # noqa: S314  # lstopo's own output


@pytest.mark.shared
@pytest.mark.parametrize("name", ["32intel64-2p8co2t+8ve", "2pa-pcidomain32bits"])
def test_hwloc_draws_the_same_tree(shared, tmp_path, name):
    wanted = re.compile(r"/(?:sys/bus/pci/|sys/devices/pci|sys/devices/system/(?:node|cpu/cpu\d+/topology)|proc/)")
    with tarfile.open(shared / f"field/trees/hwloc-{name}.tar.bz2") as archive:
        members = [member for member in archive if wanted.search(member.name)]
        archive.extractall(tmp_path, members, filter="fully_trusted")  # noqa: S202  # links out of sys/bus/pci
    (root,) = tmp_path.iterdir()
    devices, _ = read(root)
    try:
        parents = lstopo(root)
    except FileNotFoundError:
        pytest.skip("lstopo is not installed")
    ours = {device.address: device.parent for device in devices}
    common = {a for a in parents if a in ours and (ours[a] is None or ours[a] in ours)}
    assert len(common) >= 5
    assert {a: ours[a] for a in common} == {a: parents[a] for a in common}


@pytest.mark.shared
def test_captures_and_lstopo_agree_on_the_tree(captures):
    for oracle, collected in captures.items():
        parents = drawn(ET.parse(oracle / "lstopo.xml").getroot())  # noqa: S314  # our own captures
        ours = {device.address: device.parent for device in collected}
        assert parents
        assert {address: ours[address] for address in parents} == parents


@pytest.mark.shared
def test_whole_server_from_pasted_lspci(shared, machine):
    text = gzip.decompress((shared / "field/lspci/xe9680-8xh100.lspci-vvv.gz").read_bytes()).decode()
    devices = pci.collect(machine({}, outputs={"lspci": text}))
    assert len(devices) == 517
    gpus = [d for d in devices if (d.class_ or "").startswith("0302")]
    assert {(d.vendor_id, d.device_id) for d in gpus} == {("10de", "2330")}
    assert len(gpus) == 8


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.sampled_from(
            ("class", "vendor", "device", "numa_node", "resource", "current_link_speed", "max_link_width", "config")
        ),
        st.binary(max_size=80),
    ),
    st.lists(st.sampled_from(("0000:00:00.0", "0000:17:01.0", "10000:e1:00.0", "junk", "0000:17:1f.7")), min_size=1),
)
def test_no_attribute_text_breaks_it(machine, attributes, names):
    files = {f"/sys/bus/pci/devices/{name}/{key}": value for name in names for key, value in attributes.items()}
    files |= {f"/sys/bus/pci/devices/{name}/uevent": "" for name in names}
    devices = pci.collect(machine(files))
    assert [device.address for device in devices] == sorted(set(names) - {"junk"}, key=lambda text: (len(text), text))


@pytest.mark.parametrize(
    ("longest", "expected"),
    [(4096, "absent"), (256, "unreadable")],  # 256 throughout: a copy that stopped there, as hwloc's do
)
def test_a_configuration_space_of_256_bytes_has_no_acs(tmp_path, longest, expected):
    # Command 0, status: capability list at 40h, which holds PCI Express (10h) of an endpoint (version 2, type 0).
    header = bytes.fromhex("de10302300001000a1000203") + bytes(40) + b"\x40" + bytes(11) + b"\x10\0\x02\0"
    (tmp_path / "proc").mkdir()
    for address, size in (("0000:01:00.0", 256), ("0000:02:00.0", longest), ("0000:03:00.0", 64)):
        home = tmp_path / "sys/bus/pci/devices" / address
        home.mkdir(parents=True)
        (home / "config").write_bytes((header + bytes(size))[:size])
    devices, reader = read(tmp_path)
    assert [device.acs.state for device in devices][0::2] == [expected, "unreadable"]
    gaps = {gap.key for gap in reader.gaps if gap.field == "acs/redirects"}
    assert ("0000:01:00.0" in gaps) is (expected == "unreadable")
    assert pci.whole(reader)


def test_pasted_functions_may_be_a_part(machine):
    reader = machine({}, outputs={"lspci": "0000:01:00.0 Ethernet controller: Foo (rev 01)\n"})
    assert pci.collect(reader)
    assert not pci.whole(reader)

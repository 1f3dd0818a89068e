"""Verdicts on GPU x peer pairs: the kernel's rule, unknowns, narrowest links."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdsctl.assess.pairs import pairs
from gdsctl.collect import pci
from gdsctl.collect.reader import Reader
from gdsctl.data import host_bridges
from gdsctl.model.devices import Gpu, Nic, Nvme
from gdsctl.model.judgement import Pair
from gdsctl.model.node import Node, Pci, SourceInfo
from gdsctl.model.pci import Acs, PciDevice
from gdsctl.model.software import NvidiaFs, Platform
from gdsctl.source.opening import open_source
from tests.builders import CR, EC, RR, SV, UF, Machine, Part
from tests.hang import no_hang

INTEL = ("GenuineIntel", 6)
ZEN = ("AuthenticAMD", 0x19)
UNLISTED = ("8086", "29c0")  # the host bridge of QEMU's q35
REDIRECT = Acs(state="enabled", capabilities=("ReqRedir",), enabled=("ReqRedir",), redirects=True)
HARMLESS = Acs(state="enabled", capabilities=("SrcValid",), enabled=("SrcValid",), redirects=False)


def switched(*, acs: int | None = 0, bridge=("8086", "09a2"), root_acs: int = 0) -> Machine:
    """GPU and drive below one switch, a NIC below another root port."""
    machine = Machine()
    root = machine.root("0000:17", numa=0, bridge=bridge)
    switch = machine.switch(machine.root_port(root, acs=root_acs), ports=2, acs=acs)
    machine.gpu(switch.down[0])
    machine.nvme(switch.down[1])
    machine.nic(machine.root_port(root, acs=root_acs))
    return machine


def judged(machine: Machine, **node) -> dict[str, Pair]:
    return {pair.peer: pair for pair in pairs(machine.node(**node))}


def replaced(node: Node, changes: dict[str, Acs]) -> Node:
    devices = tuple(
        msgspec.structs.replace(device, acs=changes.get(device.address, device.acs)) for device in node.pci.devices
    )
    return msgspec.structs.replace(node, pci=Pci(devices=devices))


# --- the kernel's rule -----------------------------------------------------------------------------------------------


def test_below_one_switch_requests_take_the_bus_address():
    machine = switched()
    pair = judged(machine, cpu=INTEL)[machine.disks[0].address]
    assert (pair.class_, pair.meet, pair.p2p, pair.acs_redirect_at) == ("PIX", "switch", "bus_address", ())


@pytest.mark.parametrize("bits", [SV, SV | UF, 0x02, 0x40])
def test_bits_that_redirect_nothing_change_nothing(bits):
    machine = switched(acs=bits)
    assert judged(machine)[machine.disks[0].address].p2p == "bus_address"


@pytest.mark.parametrize("bits", [RR, CR, EC, SV | RR | CR | UF])
def test_redirecting_ports_send_requests_to_the_host_bridge(bits):
    machine = switched(acs=bits)
    pair = judged(machine)[machine.disks[0].address]
    ports = tuple(port.address for port in (machine.gpus[0].above, machine.disks[0].above) if isinstance(port, Part))
    assert pair.acs_redirect_at == ports
    assert pair.p2p == "through_host_bridge"
    assert all(port in pair.p2p_reason for port in ports)
    blocked = switched(acs=bits, bridge=UNLISTED)
    assert judged(blocked)[blocked.disks[0].address].p2p == "blocked"


def test_acs_above_the_meeting_point_does_not_matter():
    machine = switched(root_acs=RR | CR)
    assert judged(machine)[machine.disks[0].address].p2p == "bus_address"


def test_acs_of_the_ends_counts_too():
    machine = switched()
    machine.disks[0].acs = RR
    pair = judged(machine)[machine.disks[0].address]
    assert (pair.p2p, pair.acs_redirect_at) == ("through_host_bridge", (machine.disks[0].address,))


@pytest.mark.parametrize(
    ("bridge", "cpu", "expected"),
    [
        (("8086", "09a2"), INTEL, "through_host_bridge"),
        (("8086", "3c00"), INTEL, "through_host_bridge"),  # for two ports of one host bridge only
        (UNLISTED, INTEL, "blocked"),
        (("1022", "14a4"), ZEN, "through_host_bridge"),
        (("1022", "14a4"), ("AuthenticAMD", 0x15), "blocked"),  # Bulldozer
        (("1022", "14a4"), ("HygonGenuine", 0x18), "blocked"),  # another vendor to Linux
        (("10de", "22b2"), ("ARM", 8), "blocked"),  # Grace
        (("10de", "2f96"), ("ARM", 8), "unknown"),  # listed by trees newer than the table's kernel
    ],
)
def test_across_root_ports_of_one_host_bridge(bridge, cpu, expected):
    machine = switched(bridge=bridge)
    pair = judged(machine, cpu=cpu)[machine.nics[0].address]
    assert (pair.class_, pair.p2p, pair.acs_redirect_at) == ("PHB", expected, ())
    assert "p2pdma.c" in pair.p2p_reason or expected == "unknown"


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [("09a2", "09a2", "through_host_bridge"), ("3c00", "3c00", "blocked"), ("09a2", "29c0", "blocked")],
)
def test_across_two_host_bridges(first, second, expected):
    machine = Machine()
    machine.gpu(machine.root_port(machine.root("0000:17", numa=0, bridge=("8086", first))))
    disk = machine.nvme(machine.root_port(machine.root("0000:97", numa=0, bridge=("8086", second))))
    pair = judged(machine, cpu=INTEL)[disk.address]
    assert (pair.class_, pair.p2p) == ("NODE", expected)


def test_a_root_bus_without_a_first_function_the_kernel_can_look_up():
    # A root bus that starts with a device at 02.0 which is no root port fails the look-up whatever its ids are.
    machine = Machine()
    root = machine.root("0000:80", numa=0, bridge=None)
    machine.add(root, "root_complex_endpoint", "088000", ("8086", "3c28")).slot = 2
    gpu_port, disk_port = machine.root_port(root), machine.root_port(root)
    machine.gpu(gpu_port)
    disk = machine.nvme(disk_port)
    assert judged(machine, cpu=INTEL)[disk.address].p2p == "blocked"


def test_without_the_cpu_amd_bridges_stay_undecided_and_intel_ones_do_not():
    for bridge, expected in (
        (("1022", "14a4"), "unknown"),
        (UNLISTED, "blocked"),
        (("8086", "09a2"), "through_host_bridge"),
    ):
        machine = switched(bridge=bridge)
        node = msgspec.structs.replace(machine.node(), platform=Platform())
        assert {pair.p2p for pair in pairs(node) if pair.class_ == "PHB"} == {expected}


def test_in_a_guest_an_emulated_intel_bridge_says_nothing_of_the_cpu():
    machine = switched(bridge=UNLISTED)
    node = msgspec.structs.replace(machine.node(), platform=Platform(virtualization="kvm"))
    assert {pair.p2p for pair in pairs(node) if pair.peer == machine.nics[0].address} == {"unknown"}


# --- what could not be read ------------------------------------------------------------------------------------------


def test_unreadable_acs_leaves_only_pairs_below_a_switch_open():
    machine = switched()
    node = replaced(machine.node(), {part.address: Acs() for part in machine.parts})
    found = {pair.peer: pair for pair in pairs(node)}
    disk, nic = found[machine.disks[0].address], found[machine.nics[0].address]
    assert (disk.p2p, disk.acs_redirect_at, disk.class_) == ("unknown", None, "PIX")
    assert (nic.p2p, nic.acs_redirect_at) == ("through_host_bridge", ())


def test_one_port_known_to_redirect_settles_it_though_others_are_unreadable():
    machine = switched()
    above = machine.disks[0].above
    assert isinstance(above, Part)
    node = replaced(machine.node(), {part.address: Acs() for part in machine.parts} | {above.address: REDIRECT})
    pair = next(pair for pair in pairs(node) if pair.peer_kind == "nvme")
    assert (pair.p2p, pair.acs_redirect_at) == ("through_host_bridge", (above.address,))


def test_other_sources_are_named_as_hints_not_as_proof():
    machine = switched()
    machine.gpus[0].group, machine.disks[0].group = "4", "5"
    above = machine.disks[0].above
    assert isinstance(above, Part)
    node = replaced(machine.node(acs_bridges=(above.address,)), {part.address: Acs() for part in machine.parts})
    pair = next(pair for pair in pairs(node) if pair.peer_kind == "nvme")
    assert pair.p2p == "unknown"
    assert f"nvidia-fs found some ACS bit on at {above.address}" in pair.p2p_reason
    assert "separate IOMMU groups" in pair.p2p_reason


@pytest.mark.parametrize(("state", "expected"), [("absent", "bus_address"), ("unreadable", "unknown")])
def test_acs_of_an_end_that_nobody_could_read_leaves_it_open(state, expected):
    """The kernel's walk includes both ends. 256 bytes alone prove nothing: `lspci -xxx` prints no more of any."""
    machine = switched()
    gpu = machine.gpus[0].address
    devices = tuple(
        msgspec.structs.replace(d, acs=Acs(state=state), config_bytes=256) if d.address == gpu else d
        for d in machine.devices()
    )
    node = msgspec.structs.replace(machine.node(), pci=Pci(devices=devices))
    pair = next(pair for pair in pairs(node) if pair.peer_kind == "nvme")
    assert pair.p2p == expected
    assert gpu in pair.p2p_reason


@pytest.mark.parametrize(("whole", "expected"), [(True, "blocked"), (False, "unknown")])
def test_a_list_that_may_be_a_part_does_not_tell_the_first_function(whole, expected):
    """8086:09a2 at 00.0 would pass, and the root port at 01.0 would not: which of them there is decides."""
    machine = switched(root_acs=0x04, acs=0x04, bridge=("8086", "1237"))
    devices = tuple(d for d in machine.devices() if not d.address.endswith(":00.0") or d.parent is not None)
    assert len(devices) == len(machine.devices()) - 1
    node = msgspec.structs.replace(
        machine.node(),
        pci=Pci(devices=devices, whole=whole),
        platform=Platform(cpu_vendor="GenuineIntel", cpu_family=6),
    )
    assert {pair.p2p for pair in pairs(node)} == {expected}


def test_a_flattened_guest_gets_no_class_but_keeps_the_kernels_verdict():
    machine = Machine()
    root = machine.root("0000:00", bridge=UNLISTED)
    machine.gpu(machine.root_port(root))
    disk = machine.nvme(machine.root_port(root))
    pair = judged(machine, cpu=INTEL, virtualization="kvm")[disk.address]
    assert (pair.class_, pair.meet, pair.p2p) == ("unknown", None, "blocked")
    assert "hypervisor (kvm)" in pair.p2p_reason


def test_peers_outside_the_tree_are_unknown_and_fabrics_are_no_peers():
    machine = switched()
    node = machine.node()
    node = msgspec.structs.replace(
        node,
        nvme=(Nvme(name="nvme0", transport="rdma"), Nvme(name="nvme1", address="0000:ff:00.0", transport="pcie")),
        nics=(Nic(address=None, rdma_device="rxe0"),),
    )
    (pair,) = pairs(node)
    assert (pair.peer, pair.class_, pair.p2p, pair.bottleneck_gbs) == ("0000:ff:00.0", "unknown", "unknown", None)


# --- odd machines ----------------------------------------------------------------------------------------------------


def test_a_drive_behind_vmd_is_across_a_root_bus_that_no_list_knows():
    """VMD makes a root bus of its own, whose first function is a root port of the platform: no entry for it."""
    machine = Machine()
    gpu_root = machine.root("0000:17", numa=0)
    machine.gpu(machine.root_port(gpu_root))
    vmd = machine.root("10000:e0", numa=0, bridge=None)
    disk = machine.nvme(machine.root_port(vmd))
    pair = judged(machine, cpu=INTEL)[disk.address]
    assert disk.address.startswith("10000:")
    assert (pair.class_, pair.p2p) == ("NODE", "blocked")
    assert "10000:e0:00.0" in pair.p2p_reason


def connectx8(*, data_direct: bool) -> Machine:
    """Grace: the GPU below one port, the NIC below another, its Data Direct function beside the GPU."""
    machine = Machine()
    switch = machine.switch(machine.root_port(machine.root("0009:00", numa=0, bridge=("10de", "22b8"))), ports=2)
    machine.gpu(switch.down[0])
    machine.nic(machine.root_port(machine.root("0008:00", numa=0, bridge=("10de", "22b8"))), ids=("15b3", "1023"))
    if data_direct:
        machine.add(switch.down[1], "endpoint", "080100", ("15b3", "2100"), speed=(32.0, 32.0))
    return machine


def test_data_direct_leaves_the_way_open():
    machine = connectx8(data_direct=True)
    pair = judged(machine, cpu=("ARM", 8))[machine.nics[0].address]
    assert (pair.class_, pair.meet, pair.p2p, pair.bottleneck_gbs, pair.hops) == ("unknown", None, "unknown", None, ())
    assert "Data Direct" in pair.p2p_reason
    plain = connectx8(data_direct=False)
    assert judged(plain, cpu=("ARM", 8))[plain.nics[0].address].class_ == "NODE"
    machine.nics[0].ids = ("15b3", "1021")  # a ConnectX-7 has no such function
    assert judged(machine, cpu=("ARM", 8))[machine.nics[0].address].class_ == "NODE"


def test_coherent_gpus_say_that_the_rule_is_not_asked():
    machine = connectx8(data_direct=False)
    node = machine.node(cpu=("ARM", 8))
    coherent = msgspec.structs.replace(node, gpus=(msgspec.structs.replace(node.gpus[0], c2c=True),))
    (before,), (after,) = pairs(node), pairs(coherent)
    assert before.p2p == after.p2p == "blocked"
    assert "NVLink-C2C" in after.p2p_reason
    assert "NVLink-C2C" not in before.p2p_reason


# --- width -----------------------------------------------------------------------------------------------------------


def test_the_narrowest_link_is_named():
    machine = Machine()
    root = machine.root("0000:17", numa=0)
    # GPU 32 GT/s x16 below a switch whose own link is 16 GT/s x16; drive 32 GT/s x4 below another root port.
    switch = machine.switch(machine.root_port(root), ports=2, gts=16.0)
    machine.gpu(switch.down[0], gts=16.0)
    near, far = machine.nvme(switch.down[1], gts=16.0), machine.nvme(machine.root_port(root), gts=32.0, width=16)
    found = judged(machine)
    assert (found[near.address].bottleneck_gbs, found[near.address].bottleneck_at) == (7.88, near.address)
    assert found[far.address].bottleneck_gbs == 31.51
    assert found[far.address].bottleneck_at in (switch.up.address, machine.gpus[0].address)


def test_a_switch_uplink_counts_only_where_it_is_crossed():
    machine = Machine()
    root = machine.root("0000:17", numa=0)
    switch = machine.switch(machine.root_port(root), ports=2)
    switch.up.width = 4
    machine.gpu(switch.down[0])
    near, far = machine.nic(switch.down[1]), machine.nic(machine.root_port(root))
    found = judged(machine)
    assert (found[near.address].bottleneck_gbs, found[far.address].bottleneck_gbs) == (63.02, 15.75)
    assert found[far.address].bottleneck_at == switch.up.address


def test_a_network_slower_than_its_slot_is_the_narrowest():
    machine = switched()
    nic = machine.nics[0].address
    assert judged(machine, rate_gbps=200.0)[nic].bottleneck_gbs == 25.0
    assert judged(machine, rate_gbps=800.0)[nic].bottleneck_gbs == 63.02


def test_two_ports_of_one_card_are_one_peer():
    machine = switched()
    nic = machine.nics[0].address
    node = msgspec.structs.replace(
        machine.node(), nics=(Nic(address=nic, rate_gbps=100.0), Nic(address=nic, rate_gbps=200.0))
    )
    assert [(p.peer, p.bottleneck_gbs) for p in pairs(node) if p.peer_kind == "nic"] == [(nic, 25.0)]


def test_an_unknown_link_makes_no_figure():
    machine = switched()
    machine.disks[0].speed = None
    assert judged(machine)[machine.disks[0].address].bottleneck_gbs is None


# --- any machine -----------------------------------------------------------------------------------------------------


@st.composite
def nodes(draw) -> Node:
    machine = Machine()
    bits = st.sampled_from((None, 0, SV, RR, RR | CR, 0x1D))
    for bus in ("0000:00", "0000:80"):
        root = machine.root(
            bus, numa=draw(st.sampled_from((0, 1))), bridge=draw(st.sampled_from((("8086", "09a2"), UNLISTED)))
        )
        for _ in range(draw(st.integers(1, 2))):
            top = machine.switch(machine.root_port(root, acs=draw(bits)), ports=3, acs=draw(bits))
            lower = machine.switch(top.down[0], ports=2, acs=draw(bits))
            machine.gpu(lower.down[0], acs=draw(st.sampled_from((None, 0))))
            machine.nvme(lower.down[1])
            machine.nic(top.down[1], acs=draw(bits))
            machine.nvme(top.down[2])
    return machine.node(cpu=INTEL)


def answers(node: Node) -> dict[tuple[str, str], Pair]:
    return {(pair.gpu, pair.peer): pair for pair in pairs(node)}


@settings(max_examples=40, deadline=None)
@given(nodes())
def test_the_verdict_is_that_of_the_kernels_own_loop(node):
    """Against p2pdma.c's loop written down here as it stands there, one bridge at a time."""
    devices = {device.address: device for device in node.pci.devices}

    def redirects(address: str) -> bool:
        return bool({"ReqRedir", "CmpltRedir", "EgressCtrl"} & set(devices[address].acs.enabled))

    def listed(*buses: str | None) -> bool:
        return all(devices[f"{bus}:00.0"].device_id == "09a2" for bus in buses)

    for (provider, client), pair in answers(node).items():
        acs = 0
        a: str | None = provider
        met = None
        while a is not None and met is None:
            acs += redirects(a)
            b: str | None = client
            while b is not None:
                if b == a:
                    met = a
                    break
                b = devices[b].parent
            if met is None:
                a = devices[a].parent
        b = client if met else None
        while b is not None and b != met:
            acs += redirects(b)
            b = devices[b].parent
        if met and not acs:
            expected = "bus_address"
        elif listed(devices[provider].root_bus, devices[client].root_bus):
            expected = "through_host_bridge"
        else:
            expected = "blocked"
        assert pair.p2p == expected


@settings(max_examples=40, deadline=None)
@given(nodes(), st.data())
def test_hiding_acs_never_gives_another_certain_answer(node, data):
    hidden = data.draw(st.sets(st.sampled_from([device.address for device in node.pci.devices])))
    before, after = answers(node), answers(replaced(node, dict.fromkeys(hidden, Acs())))
    for ends, pair in after.items():
        assert pair.p2p in ("unknown", before[ends].p2p)
        if before[ends].class_ not in ("PIX", "PXB"):
            assert pair.p2p == before[ends].p2p
        assert pair.class_ == before[ends].class_


@settings(max_examples=40, deadline=None)
@given(nodes(), st.data())
def test_redirect_on_one_port_flips_the_pairs_that_cross_it_and_no_others(node, data):
    clear = replaced(node, {device.address: Acs(state="absent") for device in node.pci.devices})
    ports = [device.address for device in node.pci.devices if device.kind == "downstream_port"]
    port = data.draw(st.sampled_from(ports))
    before, after, harmless = (
        answers(clear),
        answers(replaced(clear, {port: REDIRECT})),
        answers(replaced(clear, {port: HARMLESS})),
    )
    for ends, pair in after.items():
        crosses = before[ends].p2p == "bus_address" and port in pair.hops
        assert (pair.p2p != "bus_address") == (crosses or before[ends].p2p != "bus_address")
        assert pair.acs_redirect_at == ((port,) if crosses else ())
        assert harmless[ends].p2p == before[ends].p2p


def test_many_pairs():
    machine = Machine()
    for number in range(64):
        root = machine.root(f"{number // 8:04x}:{number % 8 * 32:02x}", numa=number % 4)
        switch = machine.switch(machine.root_port(root), ports=5)
        machine.gpu(switch.down[0])
        for port in switch.down[1:3]:
            machine.nvme(port)
        for port in switch.down[3:]:
            machine.nic(port)
    node = machine.node()
    with no_hang():
        assert len(pairs(node)) == 64 * 256


# --- the table -------------------------------------------------------------------------------------------------------


def test_the_kernels_list():
    assert host_bridges.host_bridge("8086", "2033") is not None
    assert host_bridges.host_bridge("8086", "0e00") is None  # Ivy Bridge is not on it
    row = host_bridges.host_bridge("8086", "2f00")
    assert row is not None
    assert row.same_bridge_only
    assert host_bridges.host_bridge("1ae0", "abcd") is not None
    assert host_bridges.trusted_cpu("AuthenticAMD", 0x17) is not None
    assert host_bridges.trusted_cpu("AuthenticAMD", 0x16) is None


def test_an_entry_younger_than_the_kernel_is_remarked_on():
    machine = switched()
    platform = Platform(cpu_vendor="GenuineIntel", cpu_family=6, kernel_version=(5, 15, 0))
    node = msgspec.structs.replace(machine.node(), platform=platform)
    pair = next(pair for pair in pairs(node) if pair.peer_kind == "nic")
    assert "since 5.18" in pair.p2p_reason


# --- field data ------------------------------------------------------------------------------------------------------


def of_class(devices: tuple[PciDevice, ...], *classes: str) -> list[str]:
    return [device.address for device in devices if (device.class_ or "").startswith(classes)]


def node_of(devices: tuple[PciDevice, ...], gpus: str = "0302", nics: tuple[str, ...] = ("0200", "0207")) -> Node:
    return Node(
        source=SourceInfo(kind="assembled"),
        platform=Platform(cpu_vendor="GenuineIntel", cpu_family=6),
        pci=Pci(devices=devices),
        gpus=tuple(Gpu(index=number, address=address) for number, address in enumerate(of_class(devices, gpus))),
        nvme=tuple(
            Nvme(name=f"nvme{number}", address=address, transport="pcie")
            for number, address in enumerate(of_class(devices, "0108"))
        ),
        nics=tuple(Nic(address=address) for address in of_class(devices, *nics)),
        nvidia_fs=NvidiaFs(),
    )


@pytest.fixture(scope="module")
def xe9680(shared: Path) -> tuple[PciDevice, ...]:
    from gdsctl.parse import lspci

    text = gzip.decompress((shared / "field/lspci/xe9680-8xh100.lspci-vvv.gz").read_bytes()).decode()
    devices = lspci.parse(text).devices
    # The text has no vendor ids; its root buses start with "Intel Corporation Device 09a2".
    return tuple(
        msgspec.structs.replace(device, vendor_id="8086") if (device.name or "").startswith("Intel") else device
        for device in devices
    )


def onboard(pair: Pair) -> bool:
    return pair.peer.startswith("0000:01:")  # the two gigabit ports of the mainboard


@pytest.mark.shared
def test_a_whole_h100_server(xe9680):
    """Counts worked out with an independent program over the same dump: 8 GPUs x (8 NVMe + 8 CX-7 + 4 CX-6 Dx)."""
    found = [pair for pair in pairs(node_of(xe9680)) if not onboard(pair)]
    assert Counter((pair.class_, pair.p2p) for pair in found) == {
        ("PIX", "bus_address"): 20,
        ("NODE", "through_host_bridge"): 60,
        ("SYS", "through_host_bridge"): 80,
    }
    assert {pair.bottleneck_gbs for pair in found if pair.peer_kind == "nvme"} == {7.88}
    assert {pair.bottleneck_gbs for pair in found if pair.peer_kind == "nic"} == {63.02, 31.51}
    assert not any(pair.acs_redirect_at for pair in found)


@pytest.mark.shared
def test_the_same_server_changed(xe9680):
    node = node_of(xe9680)
    certain = answers(node)
    one = answers(replaced(node, {"0000:17:01.0": REDIRECT}))
    flipped = {ends for ends in one if one[ends].p2p != certain[ends].p2p}
    assert len(flipped) == 4
    assert {gpu for gpu, _ in flipped} == {"0000:19:00.0"}
    hidden = answers(replaced(node, {device.address: Acs() for device in xe9680}))
    open_now = [ends for ends in hidden if hidden[ends].p2p != certain[ends].p2p]
    assert len(open_now) == 20
    assert {hidden[ends].p2p for ends in open_now} == {"unknown"}


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "expected"), [("acs-on", "blocked"), ("acs-off", "bus_address"), ("acs-on-setpci-off", "bus_address")]
)
def test_booted_machines_with_and_without_acs(shared: Path, name: str, expected: str):
    """QEMU's root ports are on no list, so redirected means refused; 3 drives and NICs share the switch of each GPU."""
    devices = pci.collect(Reader(open_source(str(shared / f"field/vm/{name}/root.tar.gz"))))
    found = pairs(node_of(devices))
    assert Counter(pair.class_ for pair in found) == {"PIX": 6, "PHB": 2, "SYS": 8}
    assert {pair.p2p for pair in found if pair.class_ == "PIX"} == {expected}
    assert {pair.p2p for pair in found if pair.class_ != "PIX"} == {"blocked"}


@pytest.mark.shared
def test_a_root_bus_that_starts_in_the_middle(shared: Path):
    """Sandy Bridge, root bus 80 starts at 80:02.0 (8086:3c04), which is no entry: refused below one host bridge."""
    name = "hwloc-32em64t-2n8c+dax+nvme+mic+dimms.tar.bz2"
    devices = pci.collect(Reader(open_source(str(shared / "field/trees" / name))))
    node = node_of(devices, gpus="0b40", nics=("0280",))
    found = [pair for pair in pairs(node) if pair.peer_kind == "nic" and pair.gpu.startswith("0000:8")]
    assert found
    assert {(pair.class_, pair.p2p) for pair in found} == {("PHB", "blocked")}
    assert "0000:80:02.0" in found[0].p2p_reason

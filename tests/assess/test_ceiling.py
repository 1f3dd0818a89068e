"""Ceilings worked out by hand. GB/s of a link: GT/s x lanes x 128/130 / 8 (8/10 for 2.5 and 5 GT/s)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdsctl.assess.ceiling import Stage, figure, limit, stages, uplinks
from gdsctl.assess.config import Config
from gdsctl.assess.pairs import pairs
from gdsctl.assess.view import View
from gdsctl.model.devices import Backing, Mount, NvLink
from gdsctl.model.node import Node
from tests.builders import CR, RR, Machine, Part

GEN4_X4, GEN4_X16, GEN5_X4, GEN5_X16 = 7.877, 31.508, 15.754, 63.015


def view_of(machine: Machine, *, rates: Sequence[float] = ()) -> View:
    """All drives and NICs carry one mount."""
    node = machine.node()
    nics = tuple(msgspec.structs.replace(nic, rate_gbps=rate) for nic, rate in zip(node.nics, rates, strict=False))
    backing = Backing(
        kind="md",
        nvme=tuple(drive.name for drive in node.nvme),
        nics=tuple(nic.address or "" for nic in node.nics),
    )
    node = msgspec.structs.replace(
        node, nics=nics or node.nics, mounts=(Mount(target="/data", fstype="xfs", backing=backing),)
    )
    return View(node, Config.of(node), pairs(node))


def found(view: View, gpu: int = 0, stage: Stage = None) -> tuple[float | None, tuple[str, ...]]:
    narrowest = limit(view, view.gpus[gpu], view.storage("/data"), [stage])
    return figure(narrowest), narrowest.at if narrowest else ()


def found_uplinks(view: View) -> tuple[str, ...]:
    storage = view.storage("/data")
    return uplinks(view, view.gpus[0], storage, limit(view, view.gpus[0], storage))


def near(value: float) -> object:
    return pytest.approx(value, abs=0.006)


def addresses(parts: list[Part]) -> tuple[str, ...]:
    return tuple(part.address for part in parts)


def test_two_gpus_and_four_drives_below_one_switch():
    machine = Machine()
    switch = machine.switch(machine.root_port(machine.root("0000:17", numa=0)), ports=6, gts=16.0)
    for port in switch.down[:2]:
        machine.gpu(port, gts=16.0)
    for port in switch.down[2:]:
        machine.nvme(port)
    switch.up.width = 4  # nobody crosses the uplink
    # 4 x 7.877 = 31.508: just what the GPU's link takes.
    gbs, at = found(view_of(machine))
    assert gbs == near(GEN4_X16)
    assert at == addresses(machine.gpus[:1])
    machine.disks[0].width = 2
    assert found(view_of(machine), 1) == (near(3.5 * GEN4_X4), addresses(machine.disks))


def test_a_raid0_over_two_switches_shares_the_far_uplink():
    machine = Machine()
    root = machine.root("0000:17", numa=0)
    own, far = (machine.switch(machine.root_port(root, gts=16.0), ports=5, gts=16.0) for _ in range(2))
    machine.gpu(own.down[0])  # 63 GB/s
    machine.nvme(own.down[1])
    for port in far.down:
        machine.nvme(port)
    far.up.width = 8  # 15.754 for five drives of 7.877
    own.up.width = 16
    gbs, at = found(view_of(machine))
    assert gbs == near(GEN4_X4 + 15.754)
    assert at == (machine.disks[0].address, far.up.address)
    own.up.width = 4  # now the far drives have to squeeze in through this
    assert found(view_of(machine)) == (near(2 * GEN4_X4), (machine.disks[0].address, own.up.address))


def test_shared_uplinks_are_told_apart_from_the_ends():
    machine = Machine()
    root = machine.root("0000:17", numa=0)
    own, far = (machine.switch(machine.root_port(root), ports=2) for _ in range(2))
    machine.gpu(own.down[0])
    machine.nvme(own.down[1])
    for port in far.down:
        machine.nvme(port)
    view = view_of(machine)
    assert found_uplinks(view) == ()  # the drives are
    far.up.width = 2
    view = view_of(machine)
    assert found_uplinks(view) == (far.up.address,)


def test_two_ports_of_200_gigabit_in_one_x16_gen4_slot():
    machine = Machine()
    switch = machine.switch(machine.root_port(machine.root("0000:17", numa=0)), ports=2)
    machine.gpu(switch.down[0])
    first = machine.nic(switch.down[1], gts=16.0)
    machine.nic(switch.down[1], gts=16.0, beside=first)
    # 25 + 25 GB/s arrive, 31.508 fit.
    assert found(view_of(machine, rates=(200, 200))) == (near(GEN4_X16), (first.address,))
    assert found(view_of(machine, rates=(100, 100))) == (25.0, addresses(machine.nics))


def test_two_cards_of_200_gigabit_have_a_slot_each():
    machine = Machine()
    switch = machine.switch(machine.root_port(machine.root("0000:17", numa=0)), ports=3)
    machine.gpu(switch.down[0])
    for port in switch.down[1:]:
        machine.nic(port, gts=16.0)
    assert found(view_of(machine, rates=(200, 200))) == (50.0, addresses(machine.nics))
    assert found(view_of(machine)) == (near(2 * GEN4_X16), addresses(machine.gpus))  # rates not known: the slots count


def test_virtual_functions_share_their_card():
    machine = Machine()
    switch = machine.switch(machine.root_port(machine.root("0000:17", numa=0)), ports=2)
    machine.gpu(switch.down[0])
    card = machine.nic(switch.down[1], gts=16.0)
    for _ in range(2):
        machine.nic(switch.down[1], beside=card, physfn=card, speed=None)
    machine.nics.remove(card)
    assert found(view_of(machine))[0] == near(GEN4_X16)


def test_cascaded_switches_narrow_step_by_step():
    machine = Machine()
    top = machine.switch(machine.root_port(machine.root("0000:17", numa=0)), ports=3, gts=16.0)
    machine.gpu(top.down[0], gts=16.0)
    lower = machine.switch(top.down[1], ports=4, gts=16.0)
    lower.up.width = 8
    for port in lower.down:
        machine.nvme(port)
    machine.nvme(top.down[2])
    # 4 drives behind x8: 15.754; one more beside: 7.877.
    assert found(view_of(machine)) == (near(15.754 + GEN4_X4), (lower.up.address, machine.disks[4].address))


def test_rest_is_not_a_limit_but_a_degraded_link_is():
    machine = Machine()
    switch = machine.switch(machine.root_port(machine.root("0000:17", numa=0)), ports=3)
    resting, degraded = machine.gpu(switch.down[0]), machine.gpu(switch.down[1], speed=(8.0, 32.0))
    machine.nic(switch.down[2])
    assert (resting.speed, degraded.speed) == ((2.5, 32.0), (8.0, 32.0))
    assert found(view_of(machine))[0] == near(GEN5_X16)
    assert found(view_of(machine), 1) == (near(15.754), (degraded.address,))
    switch.down[0].speed = (2.5, 16.0)  # the slot can do no more than 16 GT/s
    assert found(view_of(machine)) == (near(GEN4_X16), (resting.address,))
    machine.nics[0].speed = (2.5, 32.0)  # a NIC does not rest
    assert found(view_of(machine)) == (4.0, addresses(machine.nics))


def test_behind_c2c_the_gpus_own_link_does_not_count():
    machine = Machine()
    machine.gpu(machine.root_port(machine.root("0009:00", numa=0)), gts=16.0, width=1)
    machine.nvme(machine.root_port(machine.root("0008:00", numa=0)), gts=32.0)
    view = view_of(machine)
    assert found(view)[0] == near(1.969)
    gpu = msgspec.structs.replace(view.gpus[0], c2c=True)
    assert figure(limit(view, gpu, view.storage("/data"))) == near(GEN5_X4)
    assert figure(limit(view, gpu, view.storage("/data"), ["host"])) == near(GEN5_X4)


def test_unknown_links_and_peers_make_no_figure():
    machine = Machine()
    switch = machine.switch(machine.root_port(machine.root("0000:17", numa=0)), ports=3)
    machine.gpu(switch.down[0])
    machine.nvme(switch.down[1])
    machine.nvme(switch.down[2], speed=None)
    assert found(view_of(machine)) == (None, ())
    empty = Machine()
    empty.gpu(empty.root_port(empty.root("0000:17", numa=0)))
    assert found(view_of(empty)) == (None, ())


# --- bytes that rest on the way, or are sent round by the host bridge ------------------------------------------------


def below_one_switch(*, acs: int = 0) -> Machine:
    """A GPU and four Gen4 x4 drives below one switch with a Gen4 x8 uplink: 15.754 GB/s each way."""
    machine = Machine()
    switch = machine.switch(machine.root_port(machine.root("0000:17", numa=0)), ports=5, gts=16.0, acs=acs)
    machine.gpu(switch.down[0], gts=16.0)
    for port in switch.down[1:]:
        machine.nvme(port)
    switch.up.width = 8
    return machine


def test_through_host_memory_all_bytes_cross_the_uplink():
    machine = below_one_switch()
    view = view_of(machine)
    assert found(view) == (near(GEN4_X16), addresses(machine.gpus))
    gbs, at = found(view, stage="host")
    assert gbs == near(15.754)
    up = view.topology.chain(machine.gpus[0].address)[1]
    assert at == (up,)
    # Now the way down to the GPU is the narrower one.
    machine.gpus[0].width = 4
    assert found(view_of(machine), stage="host") == (near(GEN4_X4), addresses(machine.gpus))


def test_redirected_bytes_cross_the_uplink_too():
    machine = below_one_switch(acs=RR | CR)
    view = view_of(machine)
    up = view.topology.chain(machine.gpus[0].address)[1]
    assert found(view) == (near(15.754), (up,))
    assert {(pair.bottleneck_gbs, pair.bottleneck_at) for pair in view.pairs} == {
        (7.88, drive.address) for drive in machine.disks
    }
    machine.disks[0].width = 16
    pair = next(pair for pair in view_of(machine).pairs if pair.peer == machine.disks[0].address)
    assert (pair.bottleneck_gbs, pair.bottleneck_at) == (15.75, up)


def test_another_gpu_as_the_stage():
    """The NIC's own GPU takes 50 GB/s; from there NVLink is no limit, and PCIe is."""
    machine = Machine()
    root = machine.root("0000:17", numa=0)
    own, far = (machine.switch(machine.root_port(root), ports=2) for _ in range(2))
    own.up.width = 8
    machine.gpu(own.down[0])
    machine.gpu(far.down[0])
    machine.nic(far.down[1])
    view = view_of(machine, rates=(400,))
    assert found(view) == (near(GEN5_X16 / 2), (own.up.address,))
    helper = view.gpus[1]
    assert found(view, stage=helper) == (near(GEN5_X16 / 2), (own.up.address,))
    switched = [msgspec.structs.replace(gpu, nvlinks=(NvLink(peer="switch", count=18),)) for gpu in view.node.gpus]
    linked_view = View(msgspec.structs.replace(view.node, gpus=tuple(switched)), view.config, view.pairs)
    assert found(linked_view, stage=linked_view.gpus[1]) == (50.0, addresses(machine.nics))
    storage = linked_view.storage("/data")
    gpu = linked_view.gpus[0]
    assert stages(linked_view, gpu, storage, "GPU_MEM_NVLINKS") == (linked_view.gpus[1],)
    assert stages(view, view.gpus[0], storage, "GPU_MEM_NVLINKS") == ()
    assert stages(view, view.gpus[0], storage, "GPU_MEM") == (helper,)
    assert stages(view, gpu, storage, "SYS_MEM") == ("host",)
    assert stages(view, gpu, storage, "P2P") == stages(view, gpu, storage, None) == (None,)


# --- any tree --------------------------------------------------------------------------------------------------------


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    machine = Machine()
    width = st.sampled_from((1, 2, 4, 8, 16))

    def fill(port: Part, depth: int) -> None:
        what = draw(st.sampled_from(("nvme", "nic", "switch")))
        if what == "switch" and depth < 2:
            switch = machine.switch(port, ports=draw(st.integers(1, 3)))
            switch.up.width = draw(width)
            for down in switch.down:
                fill(down, depth + 1)
        else:
            (machine.nvme if what == "nvme" else machine.nic)(port, width=draw(width))

    for bus in ("0000:00", "0000:80"):
        root = machine.root(bus, numa=0)
        for _ in range(draw(st.integers(1, 2))):
            top = machine.switch(machine.root_port(root), ports=3)
            top.up.width = draw(width)
            machine.gpu(top.down[0], width=draw(width))
            fill(top.down[1], 0)
            fill(top.down[2], 0)
    return machine


def greatest_flow(node: Node, gpu: str, peers: Sequence[str]) -> float:
    """Ford and Fulkerson on the links themselves, without a thought of trees."""
    devices = {device.address: device for device in node.pci.devices}
    left: dict[str, dict[str, float]] = {}

    def join(a: str, b: str, gbs: float) -> None:
        left.setdefault(a, {})[b] = left.setdefault(b, {})[a] = gbs

    for device in node.pci.devices:
        linked = device.kind in ("endpoint", "upstream_port")
        gbs = (device.link.max_speed_gts or 0) * (device.link.max_width or 0) * 128 / 130 / 8 if linked else 1e9
        speed = device.link.speed_gts if device.address not in {g.address for g in node.gpus} else None
        if linked and speed:
            gbs = speed * (device.link.width or 0) * 128 / 130 / 8
        join(device.address, device.parent or "root complex", gbs)
        assert device.parent is None or device.parent in devices
    for peer in peers:
        left.setdefault("source", {})[peer] = 1e9
    total = 0.0
    while True:
        came: dict[str, str] = {"source": ""}
        waiting = ["source"]
        while waiting and gpu not in came:
            here = waiting.pop()
            for there, gbs in left.get(here, {}).items():
                if gbs > 1e-9 and there not in came:
                    came[there] = here
                    waiting.append(there)
        if gpu not in came:
            return total
        way = [gpu]
        while way[-1] != "source":
            way.append(came[way[-1]])
        steps = list(zip(way[1:], way, strict=False))
        gbs = min(left[a][b] for a, b in steps)
        for a, b in steps:
            left[a][b] -= gbs
            left[b][a] = left.setdefault(b, {}).get(a, 0.0) + gbs
        total += gbs


@settings(max_examples=60, deadline=None)
@given(machines())
def test_the_ceiling_is_the_greatest_flow(machine: Machine):
    view = view_of(machine)
    peers = [part.address for part in (*machine.disks, *machine.nics)]
    for index, gpu in enumerate(machine.gpus):
        gbs, at = found(view, index)
        assert gbs == near(greatest_flow(view.node, gpu.address, peers))
        assert sum(view.topology.gbs(address) or 0.0 for address in at) == near(gbs or 0.0)

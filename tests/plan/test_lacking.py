"""What the node lacks is never built upon: clients that no step installs, NICs without an address, LNet networks."""

from __future__ import annotations

import msgspec
import pytest

from gdsctl.assess.assessment import assess
from gdsctl.plan.desired import Plan, plan
from tests.planned_nodes import changed, example, wanted

HGX = example("hgx-h100-vast").node


def made(text: str, node: object = None) -> Plan:
    return plan(assess(HGX if node is None else node), wanted(text))  # type: ignore[arg-type]  # a Node


@pytest.mark.parametrize(
    ("fstype", "source", "module"),
    [("wekafs", "b0/fs", "wekafsio"), ("gpfs", "fs1", "mmfslinux"), ("beegfs", "beegfs_nodev", "beegfs")],
)
def test_a_client_that_no_step_installs_is_not_taken_for_there(fstype: str, source: str, module: str) -> None:
    text = f"mounts: [{{target: /x, type: {fstype}, source: {source!r}, nics: [mlx5_2]}}]"
    (told,) = [unmet for unmet in made(text).unmet if unmet.requirement == "client:/x"]
    assert told.status == "unknown"
    assert f"{module} is not loaded" in told.because
    assert module in (told.settle_with or "")
    found = made(text)
    assert "reaches 0 of 8" in found.mode_reason
    there = msgspec.structs.replace(HGX.modules[module], loaded=True)
    loaded = made(text, changed(HGX, modules={**HGX.modules, module: there}))
    assert not [unmet for unmet in loaded.unmet if unmet.requirement == "client:/x"]


VAST = "mounts: [{target: /vast/kv, type: nfs, source: '172.16.1.10:/kv', client: vast, transport: rdma, nics: [NICS]}]"


@pytest.mark.parametrize("nics", ["mlx5_2, mlx5_5", "mlx5_5"])
def test_no_step_is_built_on_a_nic_without_an_address(nics: str) -> None:
    """mlx5_5 has no IPv4 address; the mount stands over mlx5_2 and mlx5_7, 25 GB/s each."""
    assert next(nic.ipv4 for nic in HGX.nics if nic.rdma_device == "mlx5_5") == ()
    found = made(VAST.replace("NICS", nics))
    (told,) = found.unmet
    assert (told.requirement, told.status) == ("nic:mlx5_5", "fail")
    assert "mlx5_5 has no IPv4 address" in told.because
    assert not [step for step in found.steps if "localports" in " ".join((step.what, *step.commands))]
    now = {(r.gpu, r.mount): r.ceiling_gbs for r in found.routes_now}
    assert all(r.ceiling_gbs == now[r.gpu, r.mount] for r in found.routes_after if r.mount == "/vast/kv")


def test_one_nic_that_can_carry_is_the_ceiling() -> None:
    found = made(VAST.replace("NICS", "mlx5_2"))
    assert found.unmet == ()
    assert {r.ceiling_gbs for r in found.routes_after if r.mount == "/vast/kv"} == {25.0}


def test_a_subsystem_is_reached_by_the_nic_that_its_connection_leaves_from() -> None:
    """One connection from one NIC of 200 Gb/s: 25 GB/s, however many NICs are in the network."""
    text = (
        "mounts: [{target: /x, type: xfs, source: UUID=0a34-07de, nvme_of: {nqn: 'nqn.2024-01.org.example:kv', "
        "traddr: 172.16.1.20}}]"
    )
    found = made(text)
    assert {r.ceiling_gbs for r in found.routes_after if r.mount == "/x"} == {25.0}
    commands = [command for step in found.steps for command in step.commands]
    assert len([c for c in commands if c.replace("-", "_") == "modprobe nvme_rdma"]) == 1
    order = [
        next(n for n, c in enumerate(commands) if part in c) for part in ("nvme connect", "udevadm settle", "mount -t")
    ]
    assert order == sorted(order)
    assert "findfs UUID=0a34-07de" in commands[order[1]]

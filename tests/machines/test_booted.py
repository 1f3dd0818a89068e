"""Captures of machines that really booted, replayed: facts against what lspci, lstopo and others said in the same boot.

Each archive under fixtures/machines holds states of one boot (tests/vm makes them, and compares many more).
"""

from __future__ import annotations

import json
import tarfile
from collections import Counter
from pathlib import Path

import pytest

from gdsctl.assess.assessment import assess
from gdsctl.assess.pairs import pairs
from gdsctl.plan.desired import plan
from gdsctl.plan.intent import Intent, Mode, Wanted
from tests.vm import oracles

# Archive -> its states and the IOMMU mode it was booted with.
BOOTED = {
    "acs-on": (("before", "cleared"), "translated"),
    "iommu-pt": (("before",), "passthrough"),
    "rdma": (("before",), "passthrough"),
    "p2pdma": (("acs", "cleared"), "translated"),
}
CAPTURES = [(machine, state) for machine, (states, _) in BOOTED.items() for state in states]


@pytest.fixture(scope="module")
def unpacked(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("booted")
    for name in BOOTED:
        with tarfile.open(fixtures / "machines" / f"{name}.tar.gz") as archive:
            archive.extractall(folder / name, filter="fully_trusted")  # noqa: S202  # our own; sysfs links are absolute
    return folder


@pytest.mark.parametrize(("machine", "state"), CAPTURES)
def test_facts_are_what_other_tools_said(unpacked, machine, state):
    node = oracles.node_of(unpacked / machine / state)
    oracles.tools_agree(node, unpacked / machine / state)
    assert node.iommu.state == BOOTED[machine][1]


@pytest.mark.parametrize(("machine", "state"), CAPTURES[:3])
def test_nvidia_fs_said_the_same(unpacked, machine, state):
    capture = unpacked / machine / state
    oracles.nvidia_fs_agrees(
        oracles.node_of(capture), oracles.said(capture, "bridges"), oracles.said(capture, "peer_distance")
    )


# 3 providers x 6 drives: 4 pairs below the switch whose ports have ACS, 1 below the one without, 13 that share no bridge;
# QEMU's root ports are on no list.
@pytest.mark.parametrize(
    ("state", "verdicts"), [("acs", {"bus_address": 1, "blocked": 17}), ("cleared", {"bus_address": 5, "blocked": 13})]
)
def test_the_kernel_decided_the_same(unpacked, state, verdicts):
    capture = unpacked / "p2pdma" / state
    answers = json.loads((capture / "p2pdma.json").read_text())
    assert oracles.kernel_agrees(oracles.by_buffers(oracles.node_of(capture)), answers) == verdicts


def test_rdma_storage(unpacked):
    capture = unpacked / "rdma" / "before"
    oracles.rdma_agrees(oracles.node_of(capture), capture)


def test_clearing_acs_at_the_planned_ports_opens_the_way(unpacked):
    """Two GPUs, each below a switch with two drives and a NIC; the script of the plan cleared all ports but the NICs'."""
    before, cleared = (assess(oracles.node_of(unpacked / "acs-on" / state)) for state in ("before", "cleared"))
    assert Counter(pair.p2p for pair in before.pairs if pair.meet == "switch") == {"blocked": 6}
    local = [pair for pair in cleared.pairs if pair.meet == "switch"]
    assert {(pair.peer_kind, pair.p2p) for pair in local} >= {("nvme", "bus_address"), ("nic", "blocked")}
    assert all(
        pair.acs_redirect_at in {("0000:22:02.0",), ("0000:82:02.0",)} for pair in local if pair.peer_kind == "nic"
    )


def test_the_plan_names_the_ports_whatever_else_stands_against_a_direct_path(unpacked):
    """The kernel has no P2PDMA and its nvme no hooks, so that the script is advice: the ports that it cleared then."""
    before = oracles.node_of(unpacked / "acs-on" / "before")
    modes: tuple[Mode, ...] = ("auto", "p2pdma", "nvidia-fs")
    for mode in modes:
        ports = plan(assess(before), Wanted(intent=Intent()), mode).driver
        assert set(ports.redirecting) == {
            "0000:22:00.0",
            "0000:22:01.0",
            "0000:22:03.0",
            "0000:82:00.0",
            "0000:82:03.0",
        }
        assert not ports.clear_acs


def test_guests_iommu_groups_say_nothing_of_acs(unpacked):
    """Groups were formed at boot: after ports were cleared they still stand apart, and the verdict goes by the registers."""
    node = oracles.node_of(unpacked / "acs-on" / "cleared")
    groups = {device.address: device.iommu_group for device in node.pci.devices}
    open_ways = [pair for pair in pairs(node) if pair.p2p == "bus_address"]
    assert open_ways
    assert all(groups[pair.gpu] != groups[pair.peer] for pair in open_ways)

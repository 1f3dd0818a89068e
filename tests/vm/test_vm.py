"""gdsctl inside machines that really boot, against lspci, lstopo, findmnt, nvme, nvidia-fs and the kernel's own verdict."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gdsctl import pipeline
from gdsctl.assess import acs_parameters
from gdsctl.assess.assessment import assess
from gdsctl.model.topology import Topology
from gdsctl.source.opening import open_source
from tests.vm import oracles
from tests.vm.machines import MACHINES

pytestmark = pytest.mark.vm

# machine -> its states, each a capture.
STATES = {
    "acs-on": ("before", "cleared"),
    "acs-pt": ("before",),
    "acs-off": ("before", "set"),
    "acs-cmdline": ("before",),
    "config-acs": ("before",),
    "far": ("before",),
    "cascade": ("before",),
    "flat": ("before",),
    "multipath": ("before",),
    "rdma": ("before",),
    **{name: ("acs", "cleared", "srcvalid") for name in MACHINES if name.startswith("p2pdma-")},
}
CAPTURES = [(machine, state) for machine, states in STATES.items() for state in states]


def test_every_machine_is_looked_at():
    assert set(STATES) == set(MACHINES)


@pytest.mark.parametrize(("machine", "state"), CAPTURES)
def test_functions_as_other_tools_tell_them(booted, machine, state):
    """lspci: ids, class, NUMA node, driver, IOMMU group, link, ACS of every port. lstopo: who is above whom."""
    capture = booted(machine) / state
    node = oracles.node_of(capture)
    oracles.tools_agree(node, capture)


@pytest.mark.parametrize("machine", MACHINES)
def test_iommu_state_is_the_one_booted_with(booted, machine):
    state = STATES[machine][0]
    expected = {"off": "off", "pt": "passthrough", "on": "translated"}[MACHINES[machine].iommu]
    assert oracles.node_of(booted(machine) / state).iommu.state == expected


@pytest.mark.parametrize(
    ("machine", "state"),
    [("acs-on", "before"), ("acs-on", "cleared"), ("acs-pt", "before"), ("acs-off", "before"), ("acs-off", "set")],
)
def test_nvidia_fs_sees_the_same_ports_and_distances(booted, machine, state):
    capture = booted(machine) / state
    node = oracles.node_of(capture)
    assert node.nvidia_fs.loaded is True
    oracles.nvidia_fs_agrees(node, oracles.said(capture, "bridges"), oracles.said(capture, "peer_distance"))
    assert set(node.nvidia_fs.acs_bridges or ()) == set(oracles.said(capture, "bridges").split())


# --- the kernel's verdict ---------------------------------------------------------------------------------------------


# Three providers (two below the switch whose ports have ACS, one below a switch without) times six other drives.
# acs: each of the 2 x 2 pairs below the first switch is redirected, with the IOMMU off nothing sets ACS; the pair below
# the second switch is always direct. 13 pairs share no bridge. Family 25 is Zen: any host bridge will do.
DIRECT, REDIRECTED, ACROSS = 1, 4, 13


@pytest.mark.parametrize("machine", [name for name in MACHINES if name.startswith("p2pdma-")])
@pytest.mark.parametrize("state", ["acs", "cleared", "srcvalid"])
def test_peer_to_peer_as_the_kernel_decides(booted, machine, state):
    capture = booted(machine) / state
    answers = json.loads((capture / "p2pdma.json").read_text())
    counted = oracles.kernel_agrees(oracles.by_buffers(oracles.node_of(capture)), answers)
    redirected = REDIRECTED if state == "acs" and MACHINES[machine].iommu != "off" else 0
    crossing = "through_host_bridge" if MACHINES[machine].cpu else "blocked"
    assert counted == {"bus_address": DIRECT + REDIRECTED - redirected, crossing: ACROSS + redirected}


# --- ACS: the script, the command line ----------------------------------------------------------------------------------


def enabled(lspci: str) -> dict[str, tuple[str, ...] | None]:
    return {address: told.acs for address, told in oracles.lspci(lspci).items()}


def test_the_emitted_script_clears_its_ports_and_undoes_it(booted):
    folder: Path = booted("acs-on")
    before = enabled(oracles.said(folder / "before", "lspci.txt"))
    cleared = enabled(oracles.said(folder / "cleared", "lspci.txt"))
    assert (folder / "acs.rc").read_text().strip() == "0", (folder / "acs.log").read_text()
    ports = re.findall(r"^0000:\S+$", (folder / "acs.sh").read_text(), re.MULTILINE)
    # Ports above the two GPUs and above drives of the mounts; not those above the NICs, which no mount uses.
    assert set(ports) == {"0000:22:00.0", "0000:22:01.0", "0000:22:03.0", "0000:82:00.0", "0000:82:03.0"}
    for address, bits in before.items():
        if address in ports:
            assert bits == ("SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd")
            assert cleared[address] == ("SrcValid", "UpstreamFwd")
        else:
            assert cleared[address] == bits
    assert enabled((folder / "undone.txt").read_text()) == before


def test_findings_follow_the_ports(booted):
    folder: Path = booted("acs-on")
    before, cleared = (assess(oracles.node_of(folder / state)) for state in ("before", "cleared"))
    assert "acs.redirect-on-path" in {f.id for f in before.findings}
    assert "acs.redirect-on-path" not in {f.id for f in cleared.findings}


ON = ("SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd")  # what the kernel sets where an IOMMU is on
LESS = ("SrcValid", "UpstreamFwd")
# What each machine's command line makes of its ports. acs-cmdline, Linux 6.1: a path, a path, an id, an address, and only
# redirection is taken off. config-acs, Linux 7: of a port that an entry names, all other bits are as firmware left them,
# here off; 1111@nonsense ends the search, so disable_acs_redir=pci:0:0 is what counts for 22:02.0 and the root ports.
CARRIED_OUT: dict[str, dict[str, tuple[str, ...]]] = {
    "acs-cmdline": {
        **dict.fromkeys(("0000:20:00.0", "0000:20:01.0", "0000:80:00.0", "0000:80:01.0"), LESS),
        **dict.fromkeys(("0000:22:00.0", "0000:22:01.0", "0000:82:03.0"), LESS),
        **dict.fromkeys(("0000:22:02.0", "0000:22:03.0", "0000:82:00.0", "0000:82:01.0", "0000:82:02.0"), ON),
    },
    "config-acs": {
        **dict.fromkeys(("0000:20:00.0", "0000:20:01.0", "0000:20:02.0", "0000:80:00.0", "0000:22:00.0"), ()),
        "0000:22:01.0": ("SrcValid", "ReqRedir"),
        "0000:22:02.0": (),
    },
}


@pytest.mark.parametrize("machine", CARRIED_OUT)
def test_the_command_line_as_the_kernel_carried_it_out(booted, machine):
    capture = booted(machine) / "before"
    node = oracles.node_of(capture)
    told = enabled(oracles.said(capture, "lspci.txt"))
    assert {address: bits for address, bits in told.items() if bits is not None} == CARRIED_OUT[machine]
    topology = Topology(node.pci.devices)
    entries = acs_parameters.entries(node.platform.cmdline or "")
    for device in node.pci.devices:
        followed = [e for e in acs_parameters.asked(entries, device, topology) if not e.void]
        if told[device.address] == ON:
            assert not followed
        elif told[device.address] is not None:
            assert len(followed) == 1
            assert followed[0].off.isdisjoint(device.acs.enabled), device.address
    assert "acs.cmdline-not-effective" not in {f.id for f in assess(node).findings}


# --- rights -----------------------------------------------------------------------------------------------------------


def shown(document: Any) -> Any:
    """Without what tells the run, not the machine."""
    return {name: value for name, value in document.items() if name not in ("source", "tool")}


@pytest.mark.parametrize("who", ["root", "nobody"])
def test_a_snapshot_replays_what_the_live_machine_gave(booted, who):
    capture = booted("acs-on") / "before"
    live = json.loads((capture / f"{who}.json").read_text())
    replayed = msgspec.to_builtins(pipeline.inspect(open_source(str(capture / f"{who}.tar.gz"))))
    assert live["source"]["kind"] == "live"
    assert shown(live) == shown(json.loads(msgspec.json.encode(replayed)))


def differences(full: Any, poor: Any, pointer: str = "") -> list[tuple[str, Any, Any]]:
    if full == poor:
        return []
    if isinstance(full, dict) and isinstance(poor, dict) and full.keys() == poor.keys():
        return [d for name in full for d in differences(full[name], poor[name], f"{pointer}/{name}")]
    if isinstance(full, list) and isinstance(poor, list) and len(full) == len(poor):
        return [d for n, ends in enumerate(zip(full, poor, strict=True)) for d in differences(*ends, f"{pointer}/{n}")]
    return [(pointer, full, poor)]


def test_without_root_facts_are_unknown_never_different(booted):
    capture = booted("acs-on") / "before"
    root, nobody = (json.loads((capture / f"{who}.json").read_text()) for who in ("root", "nobody"))
    pointers = [unknown["pointer"] for unknown in nobody["unknowns"]]
    found = [
        d
        for section in root
        if section not in ("source", "tool", "findings", "unknowns", "routes")
        for d in differences(root[section], nobody[section], f"/{section}")
    ]
    assert found
    for pointer, full, poor in found:
        if pointer.endswith("/acs/state"):
            assert poor == "unreadable"
        elif pointer.endswith(("/config_bytes", "/kind_inferred", "/p2p_reason")):
            continue  # these say how much was read
        elif pointer.endswith("/p2p"):
            assert poor == "unknown"
        elif "/acs/" in pointer:
            assert poor in ([], None)
        else:
            assert poor is None, (pointer, full, poor)
    for pointer, _, _ in found:
        if pointer.startswith("/pci") and "/acs/redirects" in pointer:
            assert any(pointer.startswith(told) for told in pointers), pointer
    routes = [d for d in differences(root["routes"], nobody["routes"]) if d[0].endswith("/route")]
    assert all(poor in {"unknown", full} for _, full, poor in routes)


# --- network storage --------------------------------------------------------------------------------------------------


def test_nvme_of_and_nfs_over_rdma(booted):
    capture = booted("rdma") / "before"
    oracles.rdma_agrees(oracles.node_of(capture), capture)

"""verify and inspect on the machine that runs the tests: as we are, as nobody, and in a container's root.

What machine it is, nobody knows; so these tests are about what holds on all: no traceback, the same bytes twice, and
missing rights that make facts unknown and never other ones.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.live.namespaces import as_nobody, as_ourselves, in_container, usable

VERIFY = ("verify", "--profile", "local-nvme", "--format")
FORMATS = ["table", "json", "junit", "sarif", "prometheus", "nagios"]
_TIME = re.compile(r"20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)?")

namespaces = pytest.mark.skipif(bool(usable()), reason=usable())


def sound(done: subprocess.CompletedProcess[str], *codes: int) -> str:
    assert "Traceback" not in done.stdout + done.stderr
    assert done.returncode in codes, done.stderr
    return done.stdout


def document(done: subprocess.CompletedProcess[str], *codes: int) -> dict[str, Any]:
    return dict(json.loads(sound(done, *codes)))


def timeless(text: str) -> str:
    return _TIME.sub("TIME", text)


@pytest.mark.parametrize("format_", FORMATS)
def test_two_runs_differ_in_time_only(format_: str) -> None:
    first, second = (sound(as_ourselves(*VERIFY, format_), 0, 1, 3) for _ in range(2))
    assert first
    assert timeless(first) == timeless(second)


@namespaces
@pytest.mark.parametrize("format_", ["table", "json"])
def test_two_runs_as_nobody(format_: str) -> None:
    first, second = (sound(as_nobody(*VERIFY, format_), 0, 1, 3) for _ in range(2))
    assert timeless(first) == timeless(second)


@namespaces
def test_two_runs_in_a_container(tmp_path: Path) -> None:
    first, second = (sound(in_container(tmp_path, *VERIFY, "json"), 0, 1, 3) for _ in range(2))
    assert timeless(first) == timeless(second)


def known(value: Any, place: str = "") -> dict[str, Any]:
    """Every fact that is not null, by its pointer; things by what names them rather than by their number."""
    if isinstance(value, dict):
        return {name: one for key, below in value.items() for name, one in known(below, f"{place}/{key}").items()}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        found: dict[str, Any] = {}
        for number, below in enumerate(value):
            name = below.get("address") or below.get("name") or below.get("target") or number
            found |= known(below, f"{place}/{name}")
        return found
    return {} if value is None else {place: value}


HARDWARE = ("platform", "iommu", "pci", "numa", "gpus", "nics", "nvme", "block", "modules", "nvidia_driver")
OF_THE_READER = re.compile(r"/evidence|/kernel_log|/kind_inferred|/config_bytes|/acs/state")


@namespaces
def test_fewer_rights_mean_fewer_facts_and_no_other_ones() -> None:
    ours, theirs = (document(run("inspect", "--format", "json"), 0) for run in (as_ourselves, as_nobody))
    assert (ours["source"]["euid"], theirs["source"]["euid"]) == (0, 65534)
    facts = {section: known(ours[section]) for section in HARDWARE}
    for section in HARDWARE:
        for place, value in known(theirs[section]).items():
            if not OF_THE_READER.search(place):
                assert facts[section].get(place) == value, f"/{section}{place}"
    reasons = {one["pointer"]: one["reason"] for one in theirs["unknowns"]}
    assert {one["pointer"] for one in ours["unknowns"] if one["reason"] != "unsupported"} <= set(reasons)
    for number, device in enumerate(theirs["pci"]["devices"]):
        if device["config_bytes"] == 64 and ours["pci"]["devices"][number]["acs"]["redirects"] is not None:
            assert device["acs"]["state"] == "unreadable"
            assert reasons[f"/pci/devices/{number}/acs/redirects"] == "denied"
    if Path("/proc/sys/kernel/dmesg_restrict").read_text().strip() == "1":
        assert theirs["platform"]["kernel_log"] is None
        assert reasons["/platform/kernel_log"] in ("denied", "absent")  # absent: no dmesg(1)


@namespaces
def test_what_is_not_in_a_container_is_unknown(tmp_path: Path) -> None:
    seen = document(in_container(tmp_path, "inspect", "--format", "json"), 0)
    assert seen["container"]["kind"] == "docker"
    assert (seen["container"]["has_udev_db"], seen["container"]["has_cufile_json"]) == (False, False)
    assert seen["pci"]["devices"] == []
    assert seen["nvme"] == []
    assert seen["iommu"]["state"] == "unknown"
    unknown = {one["pointer"]: one for one in seen["unknowns"]}
    for pointer in ("/pci/devices", "/gpus", "/nics", "/nvme", "/block", "/iommu/state", "/numa/nodes"):
        assert unknown[pointer]["reason"] == "absent"
        assert unknown[pointer]["settle_with"]
    assert "/sys is not mounted" in unknown["/pci/devices"]["detail"]


@namespaces
def test_a_required_fact_that_cannot_be_seen_is_no_failure(tmp_path: Path) -> None:
    """No /sys: whether the IOMMU translates is not known, so the gate says unknown (3), and what would settle it."""
    done = in_container(tmp_path, "verify", "--require", "iommu.state=passthrough", "--format", "json")
    assert document(done, 3)["verdict"] == "unknown"
    assert re.search(r"gdsctl: unknown: iommu\.state.*settle with: ", done.stderr)

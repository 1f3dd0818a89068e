"""`gdsctl probe` on file systems of a real kernel: the path against what the kernel traced; faults; kills.

The guest's rows are one JSON object a line: guest/probing.py, guest/faults.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.vm.machines import PROBES

pytestmark = pytest.mark.vm

Row = dict[str, Any]
Booted = Callable[[str], Path]

PATHS = [name for name in PROBES if name in {"probe-local", "probe-stacked", "probe-served", "probe-new"}]

# No counter of the storage for these: a device number of no block device, or a server that counts nothing.
UNCOUNTED = {"overlay", "9p"}
# Kernel 6.1 refuses O_DIRECT on a tmpfs; from 6.6 on it takes it, and serves it from the page cache.
REFUSED = {("6.1", "tmpfs")}


def rows(folder: Path, part: str) -> list[Row]:
    return [json.loads(line) for line in (folder / f"{part}.jsonl").read_text().splitlines()]


def moved(folder: Path) -> list[Row]:
    """Runs that came to a verdict."""
    return [row for row in rows(folder, "paths") if row.get("document")]


@pytest.mark.parametrize("machine", PATHS)
def test_every_file_system_could_be_made(booted: Booted, machine: str) -> None:
    assert [(row["kind"], row["failed"]) for row in rows(booted(machine), "paths") if "failed" in row] == []


@pytest.mark.parametrize("machine", PATHS)
def test_every_run_ends_well_and_leaves_nothing(booted: Booted, machine: str) -> None:
    for row in rows(booted(machine), "paths"):
        assert row["left"] == [], row
        if (row["kernel"][:3], row["kind"]) in REFUSED:
            assert row["code"] == 5
            assert row["said"].endswith("the file system does not do direct I/O (O_DIRECT: EINVAL)")
        else:
            assert (row["code"], row["said"]) == (0, ""), row
            assert row["document"]["verify"] is None or row["document"]["verify"]["ok"], row


@pytest.mark.parametrize("machine", PATHS)
def test_written_directly_is_never_through_the_page_cache(booted: Booted, machine: str) -> None:
    """The trace point mm_filemap_add_to_page_cache tells what entered the page cache, even if it left it again."""
    for row in moved(booted(machine)):
        if row["load"].startswith("write"):
            share = row["pages_bytes"] / row["observed"]["bytes"]
            verdict = row["document"]["path_taken"]["verdict"]
            assert verdict == ("mixed" if share > 0.5 else "host-direct"), (row["kind"], row["load"], share)


@pytest.mark.parametrize("machine", PATHS)
def test_a_read_that_the_storage_did_not_see_was_not_direct(booted: Booted, machine: str) -> None:
    """Own files were written before, in the same trace; of an existing one only the read is traced."""
    for row in moved(booted(machine)):
        if row["load"] == "existing":
            through = row["pages_bytes"] > 0.5 * row["observed"]["bytes"]
            counters = row["observed"]["counters"]
            storage = counters["nfs_direct_bytes"] or counters["device_bytes"] or counters["member_bytes"]
            through |= row["kind"] not in UNCOUNTED and (storage or 0) < 0.5 * row["observed"]["bytes"]
            verdict = row["document"]["path_taken"]["verdict"]
            assert verdict == ("mixed" if through else "host-direct"), row["kind"]


@pytest.mark.parametrize("machine", PATHS)
def test_the_storage_counts_what_was_moved(booted: Booted, machine: str) -> None:
    """Within 2 % on a quiet guest; twice as much where two drives mirror, or a journal takes the data first."""
    for row in moved(booted(machine)):
        taken = row["document"]["path_taken"]
        if taken["verdict"] != "host-direct":
            continue
        assert (taken["confidence"] == "certain") is (row["kind"] not in UNCOUNTED), (row["kind"], taken)


# --- faults -----------------------------------------------------------------------------------------------------------


def test_faults_end_in_one_line_and_leave_nothing(booted: Booted) -> None:
    for row in rows(booted("probe-faults"), "faults"):
        assert "failed" not in row, row
        assert row["alive"] == [], row
        assert row["fault_files"] == [], row
        assert "Traceback" not in row["said"], row
        assert len(row["said"].splitlines()) <= 1, row
        assert row["left"] in ([], ["? Input/output error"], ["? Stale file handle"]), row
        assert row["left_on_server"] == [], row


# --- kills ------------------------------------------------------------------------------------------------------------


def test_kills_leave_nothing(booted: Booted) -> None:
    found = rows(booted("probe-kills"), "kills")
    assert len(found) == 3 * 54
    for row in found:
        assert row["left"] == [], row
        assert row["alive"] == [], row
        assert row["code"] in {0, 130, 137}, row

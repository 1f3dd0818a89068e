"""`gdsctl probe` on file systems of a real kernel: the path against what the kernel traced; faults; kills.

The guest's rows are one JSON object a line: guest/probing.py, guest/faults.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.vm.guest.faults import FAULTS
from tests.vm.machines import PROBES

pytestmark = pytest.mark.vm

Row = dict[str, Any]
Booted = Callable[[str], Path]

PATHS = [name for name in PROBES if name in {"probe-local", "probe-stacked", "probe-served", "probe-new"}]

# No counter of the storage for these: a device number of no block device, or a server that counts nothing.
UNCOUNTED = {"overlay", "9p"}
# A loop device that reads and writes its file through the page cache.
CACHED_BELOW = {"loop"}
# Is a page cache, whose pages the trace point does not see.
MEMORY = {"tmpfs"}
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
        elif row["kind"] == "9p" and row["load"] != "existing":  # QEMU's server forgets a file that has no name
            assert row["code"] == 5
            assert row["said"].endswith("the file system forgets an open file that has no name (ENOENT)")
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
            through = share > 0.5 or row["kind"] in MEMORY | CACHED_BELOW
            assert verdict == ("mixed" if through else "host-direct"), (row["kind"], row["load"], share)


@pytest.mark.parametrize("machine", PATHS)
def test_a_read_that_the_storage_did_not_see_was_not_direct(booted: Booted, machine: str) -> None:
    """Own files were written before, in the same trace; of an existing one only the read is traced."""
    for row in moved(booted(machine)):
        if row["load"] == "existing":
            through = row["pages_bytes"] > 0.5 * row["observed"]["bytes"]
            counters = row["observed"]["counters"]
            storage = counters["nfs_direct_bytes"] or counters["device_bytes"] or counters["member_bytes"]
            through |= row["kind"] not in UNCOUNTED and (storage or 0) < 0.5 * row["observed"]["bytes"]
            through |= row["kind"] in MEMORY | CACHED_BELOW
            verdict = row["document"]["path_taken"]["verdict"]
            assert (verdict == "host-direct") is not through, (row["kind"], verdict)


@pytest.mark.parametrize("machine", PATHS)
def test_the_storage_counts_what_was_moved(booted: Booted, machine: str) -> None:
    """Within 2 % on a quiet guest; twice as much where two drives mirror, or a journal takes the data first."""
    for row in moved(booted(machine)):
        taken = row["document"]["path_taken"]
        if taken["verdict"] != "host-direct":
            continue
        assert (taken["confidence"] == "certain") is (row["kind"] not in UNCOUNTED), (row["kind"], taken)


# --- faults -----------------------------------------------------------------------------------------------------------

EIO = r"(read|write) of 256 KiB at offset \d+: Input/output error \(EIO\)"
SILENT = "no transfer of 256 KiB was completed for 30 s; is the storage still there?"

# What the kernel gives: Linux, Documentation/admin-guide/device-mapper, errno of write(2), nfs(5).
ENDS = {
    "error, read": (5, EIO),
    "error, write": (5, EIO),
    "error, read, queue": (5, EIO),
    "error, write, 4 threads": (5, EIO),
    # Where the journal meets the error first, ext4 is read-only by then.
    "error before it starts": (
        5,
        r"write of 1 MiB at offset \d+: Input/output error \(EIO\)|/mnt/faulty-ext4: Read-only file system \(EROFS\)",
    ),
    "writes dropped": (1, "data mismatch: offset 0 is (zeroed|stale|misplaced|corrupt): .*"),
    "reads corrupted": (1, r"data mismatch: offset \d+ is corrupt: .*"),
    "300 ms late": (0, ""),
    "no answer, read": (5, re.escape(SILENT)),
    "no answer, write, 2 threads": (5, re.escape(SILENT)),
    "full": (5, r"/mnt/xfs: 48 MiB wanted, .* free, .*\(ENOSPC ahead\)"),
    "full meanwhile, no fallocate": (5, r"write of 64 KiB at offset \d+: .*"),
    "full meanwhile, NFS": (5, r"write of 64 KiB at offset \d+: No space left on device \(ENOSPC\)"),
    "quota": (5, r"/mnt/xfs-quota: reserving 48 MiB: Disk quota exceeded \(EDQUOT\)"),
    "quota, NFS": (5, r"write of 64 KiB at offset 16777216: Disk quota exceeded \(EDQUOT\)"),
    "read-only": (5, r"/mnt/ext4: Read-only file system \(EROFS\)"),
    "read-only meanwhile": (0, ""),  # blocks that are there are overwritten in place
    "shut down, read": (5, EIO),
    "shut down, write": (5, EIO),
    "shut down, write, queue": (5, EIO),
    "unmounted lazily": (0, ""),
    "existing file truncated": (5, r"read of 256 KiB at offset \d+: .*"),
    "existing file truncated, queue": (5, r"read of 256 KiB at offset \d+: .*"),
    "existing file deleted": (0, ""),
    "drive removed, read": (5, EIO),
    "drive removed, write, 4 threads": (5, EIO),
    "member of RAID 0 removed, read, queue": (5, EIO),
    "member of RAID 1 removed, write": (0, ""),
    "namespace disabled": (5, EIO),
    "disconnected": (5, EIO),
    "target gone": (5, re.escape(SILENT)),
    "server stopped, soft": (
        5,
        r"write of 256 KiB at offset \d+: (Input/output error \(EIO\)|Connection timed out \(ETIMEDOUT\))",
    ),
    "server stopped, hard": (5, re.escape(SILENT)),
    "server stopped, hard, 2 threads": (5, re.escape(SILENT)),
    "server restarted": (0, ""),
    "unmounted by force": (5, r"write of 256 KiB at offset \d+: .*"),
    "deleted on the server": (5, r"read of 256 KiB at offset \d+: Stale file handle \(ESTALE\)"),
    "deleted on the server, NFS 4": (0, ""),  # it is open there
    "export withdrawn": (
        5,
        r"write of 256 KiB at offset \d+: (Permission denied \(EACCES\)|Stale file handle \(ESTALE\))",
    ),
}
# The kernel removes what it silly-renamed when the file is closed, and does not try again where the server is away then.
KEPT_BY_SERVER = {"server stopped, soft", "unmounted by force", "export withdrawn"}


def test_every_fault_has_an_end() -> None:
    assert set(ENDS) == set(FAULTS)


@pytest.mark.parametrize("name", ENDS)
def test_a_fault_ends_in_one_line_and_leaves_nothing(booted: Booted, name: str) -> None:
    row = next(row for row in rows(booted("probe-faults"), "faults") if row["fault"] == name)
    assert "failed" not in row, row
    code, said = ENDS[name]
    assert row["code"] == code, row
    assert re.fullmatch(f"gdsctl: ({said})" if said else "", row["said"]), row["said"]
    assert row["by_itself"], "it did not end while the fault lasted"
    assert row["alive"] == []
    assert row["fault_files"] == []
    if name not in KEPT_BY_SERVER:
        assert row["left"] in ([], ["? Input/output error"])  # of a file system that is gone nothing is told
        assert row["left_on_server"] == []


# --- kills ------------------------------------------------------------------------------------------------------------


KILLED = {"xfs": 50, "nfs4-tcp": 50, "nfs3-rdma": 20}


def test_kills_leave_nothing(booted: Booted) -> None:
    found = rows(booted("probe-kills"), "kills")
    assert {kind: sum(row["kind"] == kind for row in found) for kind in KILLED} == KILLED
    for row in found:
        assert row["left"] == [], row
        assert row["alive"] == [], row
        assert row["said"] in {"", "gdsctl: interrupted"}, row
        assert row["code"] in {0, 130, 137, 143}, row  # 143: SIGTERM before main

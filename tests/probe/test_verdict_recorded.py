"""The verdict over counters of real file systems, recorded in virtual machines (tests/vm, machines probe-*).

Each line of the fixture: kernel, kind of file system, load, all that the verdict was judged by, and, from the trace point
mm_filemap_add_to_page_cache, the bytes that entered the page cache of the file system's device meanwhile. NFS and NVMe-oF
were served by the same kernel. What is expected comes from that trace and from the file system's own rules.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gdsctl.probe.stack import Stack
from gdsctl.probe.verdict import Observed, judge

FIXTURE = Path(__file__).resolve().parents[2] / "fixtures/probe/paths.jsonl"
ROWS: list[dict[str, Any]] = [json.loads(line) for line in FIXTURE.read_text().splitlines()]

DIRECT, UNPROVEN = ("host-direct", "certain"), ("host-direct", "likely")
UNKNOWN = ("unknown", "unknown")
BUFFERED, DROPPED = ("mixed", "certain"), ("mixed", "likely")

EXPECTED = {
    # data=journal has no direct I/O: all goes through the page cache, and there it stays.
    **{("ext4-journal", load): BUFFERED for load in ("write", "write queue", "randread", "existing")},
    # Filling a hole of a file that is mapped by blocks: written into the page cache, flushed, and dropped from it.
    **{("ext3", load): DROPPED for load in ("write", "write queue")},
    # Is a page cache.
    **{("tmpfs", load): BUFFERED for load in ("write", "write queue", "randread")},
    ("tmpfs", "existing"): UNKNOWN,  # it was there before
    # A loop device that counts all bytes and moves them through the page cache of its own file.
    **{("loop", load): BUFFERED for load in ("write", "write queue", "randread", "existing")},
    # On a device number of no block device, and in no list of the kernel's.
    **{
        (kind, load): UNPROVEN
        for kind in ("overlay", "9p")
        for load in ("write", "write queue", "randread", "existing")
    },
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['kernel']} {row['kind']} {row['load']}")
def test_as_the_kernel_traced_it(row: dict[str, Any]) -> None:
    buffered = ("loop0",) if row["observed"].pop("buffered_below", False) else ()  # as it was written down then
    seen = msgspec.structs.replace(msgspec.convert(row["observed"], Observed), below=Stack(buffered=buffered))
    taken = judge(seen)
    assert (taken.verdict, taken.confidence) == EXPECTED.get((row["kind"], row["load"]), DIRECT)
    if row["load"].startswith("write") and row["kind"] != "tmpfs":  # whose pages another trace point would tell
        assert (row["pages_bytes"] > 0.5 * seen.bytes) is (taken.verdict == "mixed")

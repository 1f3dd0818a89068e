"""Writes that the storage acknowledges and forgets, reads that come in any order: what --verify makes of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gdsctl import pipeline
from gdsctl.errors import RefusedError, UsageError
from gdsctl.probe.probe import probe
from gdsctl.probe.report import Verified
from gdsctl.probe.request import Request
from gdsctl.probe.target import create
from gdsctl.source.live import LiveSource

BLOCK, BLOCKS = 16384, 64


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    try:
        descriptor, _ = create(str(tmp_path))
    except RefusedError:
        pytest.skip("the temporary folder's file system has no O_DIRECT")
    os.close(descriptor)
    return tmp_path


def verified(folder: Path, **asked: Any) -> Verified:
    source = LiveSource()
    default: dict[str, Any] = {"block_bytes": (BLOCK,), "size_bytes": BLOCK * BLOCKS, "verify": True}
    request = Request(path=str(folder), engine="posix", **{**default, **asked})
    found = probe(request, source, pipeline.inspect(source)).verify
    assert found is not None
    return found


def forget(monkeypatch: pytest.MonkeyPatch, offset: int, *, from_write: int = 0) -> None:
    """Every write of one block at `offset` is acknowledged, and none from that number on reaches the file."""
    write, seen = os.pwritev, 0

    def lossy(descriptor: int, buffers: list[memoryview], at: int, *flags: int) -> int:
        nonlocal seen
        if at == offset and len(buffers[0]) == BLOCK:
            seen += 1
            if seen > from_write:
                return BLOCK
        return write(descriptor, buffers, at, *flags)

    monkeypatch.setattr(os, "pwritev", lossy)


@pytest.mark.parametrize("rw", ["rw", "randrw"])
def test_a_write_lost_in_a_mixed_run(folder: Path, monkeypatch: pytest.MonkeyPatch, rw: str) -> None:
    forget(monkeypatch, 5 * BLOCK)
    found = verified(folder, rw=rw, read_percent=10, seconds=0.3)
    assert (found.ok, found.first_bad_offset, found.kind) == (False, 5 * BLOCK, "stale")


@pytest.mark.parametrize("rw", ["write", "randwrite"])
def test_a_write_lost_in_a_later_pass(folder: Path, monkeypatch: pytest.MonkeyPatch, rw: str) -> None:
    """The first two passes reach the storage."""
    forget(monkeypatch, 9 * BLOCK, from_write=2)
    found = verified(folder, rw=rw, seconds=0.5)
    assert (found.ok, found.first_bad_offset, found.kind) == (False, 9 * BLOCK, "stale")


@pytest.mark.parametrize("asked", [{"repeat": 2}, {"block_bytes": (BLOCK, 4 * BLOCK)}, {"warmup_seconds": 0.1}])
@pytest.mark.parametrize("depth", [1, 4])
def test_mixed_runs_one_after_the_other_are_right(folder: Path, asked: dict[str, Any], depth: int) -> None:
    found = verified(folder, rw="randrw", seconds=0.2, threads=(2,), iodepth=(depth,), files=2, **asked)
    assert found.ok


@pytest.mark.parametrize("depth", [1, 4])
def test_many_passes_are_right(folder: Path, depth: int) -> None:
    """A block is written more than 256 times, which is as far as its counter goes."""
    assert verified(folder, rw="randwrite", size_bytes=2 * BLOCK, seconds=1.0, iodepth=(depth,)).ok


@pytest.mark.parametrize("rw", ["read", "randread", "randrw"])
@pytest.mark.parametrize("threads", [1, 4])
def test_the_lowest_bad_offset_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch, rw: str, threads: int) -> None:
    """Half of the blocks come back wrong, from the third on."""
    read = os.preadv

    def wrong(descriptor: int, buffers: list[memoryview], at: int, *flags: int) -> int:
        moved = read(descriptor, buffers, at, *flags)
        if at >= 3 * BLOCK and at // BLOCK % 2:
            buffers[0][700] ^= 1
        return moved

    monkeypatch.setattr(os, "preadv", wrong)
    found = verified(folder, rw=rw, threads=(threads,))
    assert (found.ok, found.first_bad_offset, found.kind) == (False, 3 * BLOCK + 512, "corrupt")


def test_more_threads_than_an_existing_file_has_blocks(tmp_path: Path) -> None:
    file = tmp_path / "short"
    file.write_bytes(b"x" * (3 * BLOCK + 100))
    source = LiveSource()
    node = pipeline.inspect(source)
    asked = Request(path=str(file), engine="posix", allow_existing=True, block_bytes=(BLOCK,), threads=(3,))
    assert probe(asked, source, node).bytes == 3 * BLOCK
    with pytest.raises(UsageError, match="3 blocks of 16 KiB are too few for 4 threads"):
        probe(msgspec.structs.replace(asked, threads=(4,)), source, node)
    assert file.read_bytes() == b"x" * (3 * BLOCK + 100)

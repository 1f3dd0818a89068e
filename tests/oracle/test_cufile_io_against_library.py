"""Which of libcufile's interfaces carry blocks over the stand-in libcuda, in each release, and what the library counts.

Compat mode, where the library itself reads and writes the file: that bytes go direct is not shown here. The stream calls
start a kernel on the GPU even in compat mode, so that without one their error is what can be seen.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.oracle import oracle
from tests.oracle.conftest import Libcufile
from tests.oracle.cufile_io import BLOCK, BLOCKS, carry, pattern

pytestmark = pytest.mark.oracle


def counted(libcufile: Libcufile) -> dict[str, int] | None:
    """Every block as POSIX; before 1.15 the library has no such counts."""
    if tuple(map(int, libcufile.version.split(".")[:2])) < (1, 15):
        return None
    return {"nvidia_fs": 0, "p2p": 0, "posix": BLOCKS, "total": BLOCKS}


@pytest.mark.parametrize(
    ("asked", "how"),
    [
        ({"api": "sync", "registered": False}, "synchronous calls, buffers not registered"),
        ({"api": "sync", "compat": True}, "synchronous calls, registered buffers, compat mode forced"),
        ({"api": "batch", "iodepth": 5}, "batch calls, registered buffers"),
        (
            {"api": "batch", "registered": False, "compat": True},
            "batch calls, buffers not registered, compat mode forced",
        ),
    ],
)
def test_every_release_carries_blocks(libcufile: Libcufile, tmp_path: Path, asked: dict[str, Any], how: str) -> None:
    found, contents = carry(str(oracle.find_library(libcufile.path)), tmp_path, **asked)
    release = ".".join(libcufile.version.split(".")[:2])
    assert found["how"] == f"libcufile {release}, {how}"
    assert found["address"] == "0000:ab:00.0"
    assert found["runs"] == [{"blocks": BLOCKS, "mismatch": None, "counts": counted(libcufile)}] * 2
    assert contents == pattern()


def test_a_batch_mixes_reads_and_writes(libcufile: Libcufile, tmp_path: Path) -> None:
    found, contents = carry(
        str(oracle.find_library(libcufile.path)), tmp_path, api="batch", iodepth=4, runs=["write", 50]
    )
    assert [run["blocks"] for run in found["runs"]] == [BLOCKS, BLOCKS]
    assert found["runs"][1]["mismatch"] is None
    assert found["runs"][1]["counts"] == counted(libcufile)
    assert contents == pattern()


def test_a_batch_larger_than_io_batchsize(installed: Libcufile, tmp_path: Path) -> None:
    found, _ = carry(installed.path, tmp_path, api="batch", iodepth=129, threads=1, runs=["read"])
    (run,) = found["runs"]
    assert run["error"].startswith("cuFileBatchIOSetUp: cuFile error 5022, INVALID_VALUE; cufile.log: ERROR ")
    assert run["error"].endswith("Invalid max number of ios for Batch setup: 129 max allowed: 128")


def test_a_batch_as_large_as_the_nodes_io_batchsize(installed: Libcufile, tmp_path: Path) -> None:
    found, _ = carry(
        installed.path,
        tmp_path,
        api="batch",
        iodepth=129,
        threads=1,
        runs=["read"],
        configuration={"properties": {"io_batchsize": 256}},
    )
    assert found["runs"][0]["mismatch"]["kind"] == "zeroed"  # the file has zeros, not the pattern: compared they were
    assert found["runs"][0]["mismatch"]["offset"] == 0


def test_stream_calls_need_a_gpu_even_in_compat_mode(installed: Libcufile, tmp_path: Path) -> None:
    found, contents = carry(installed.path, tmp_path, api="stream", iodepth=2, threads=1, runs=["write"])
    (run,) = found["runs"]
    assert run["error"].startswith("write of 64 KiB at offset 0: Input/output error; cufile.log: ERROR ")
    assert "cuFileCopyGpu failed" in run["error"]
    assert contents == bytes(BLOCK * BLOCKS)

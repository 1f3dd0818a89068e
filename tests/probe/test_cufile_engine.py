"""NVIDIA's own libcufile, in compat mode over the stand-in libcuda: the calls, the statistics, the verdict.

There is no GPU in it: that bytes really go direct is not shown here.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gdsctl.errors import RefusedError
from gdsctl.probe.cufile_settings import CufileSettings, private_configuration
from gdsctl.probe.libcufile import PerGpu, level3
from gdsctl.probe.target import create
from tests.oracle import oracle


@pytest.fixture(scope="module")
def stub() -> str:
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        pytest.skip("libcufile is asked on Linux x86-64 only")
    try:
        oracle.find_library()
        return str(oracle.build_stub())
    except oracle.Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def probe(stub: str, tmp_path: Path):
    """Runs the command with one pretend GPU, udev's word on the file system, and a list of modules."""
    folder, root = tmp_path / "data", tmp_path / "root"
    folder.mkdir()
    try:
        descriptor, _ = create(str(folder))
    except RefusedError:
        pytest.skip("the temporary folder's file system has no O_DIRECT")
    os.close(descriptor)
    device = os.stat(folder).st_dev
    udev = root / f"run/udev/data/b{os.major(device)}:{os.minor(device)}"
    udev.parent.mkdir(parents=True)
    udev.write_text("E:ID_FS_USAGE=filesystem\nE:ID_FS_TYPE=ext4\n")
    (root / "proc").mkdir()
    (root / "proc/modules").write_text("pretend 16384 0 - Live 0x0000000000000000\n")

    def run(*arguments: str) -> tuple[int, Any, str]:
        """Exit code, document or None, stderr."""
        environment = dict(os.environ) | {
            "LD_PRELOAD": stub,
            "FAKECUDA_GPUS": "0000:17:00.0,0000:65:00.0",
            "FAKEROOT": str(root),
            "TMPDIR": str(tmp_path),
        }
        done = subprocess.run(
            [sys.executable, "-m", "gdsctl", "probe", str(folder), "--format", "json", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert os.listdir(folder) == []
        assert not list(tmp_path.glob(".gdsctl-*"))
        return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr

    return run


@pytest.mark.oracle
@pytest.mark.parametrize("rw", ["read", "randwrite"])
def test_compat_mode_is_seen_by_the_librarys_own_count(probe: Any, rw: str) -> None:
    code, found, said = probe(
        "--engine", "cufile", "--rw", rw, "--size", "4M", "--bs", "64k", "--threads", "2", "--verify"
    )
    assert code == 0, said
    assert found["path_taken"]["verdict"] == "compat"
    assert found["path_taken"]["confidence"] == "certain"
    assert found["verify"]["ok"]
    assert found["gpus"] == [0]
    counted = next(piece for piece in found["path_taken"]["evidence"] if piece["source"] == "cuFileGetStatsL3")
    assert counted["value"] == "nvidia-fs 0, peer-to-peer 0, POSIX 64, all 64"  # 4 MiB in blocks of 64 KiB


@pytest.mark.oracle
def test_two_gpus_at_once_and_both_directions(probe: Any) -> None:
    """128 blocks: what was read and what was written is counted by the library for both GPUs together."""
    code, found, said = probe(
        *(
            "--engine",
            "cufile",
            "--gpu",
            "all",
            "--threads",
            "4",
            "--rw",
            "randrw",
            "--size",
            "8M",
            "--bs",
            "64k",
            "--verify",
        )
    )
    assert code == 0, said
    assert found["gpus"] == [0, 1]
    assert (found["path_taken"]["verdict"], found["verify"]["ok"]) == ("compat", True)
    counted = [piece for piece in found["path_taken"]["evidence"] if piece["source"] == "cuFileGetStatsL3"]
    moved = {piece["fact"]: int(piece["value"].rpartition("all ")[2]) for piece in counted}
    assert moved == {
        "reads: blocks by path": found["read"]["bytes"] >> 16,
        "writes: blocks by path": found["write"]["bytes"] >> 16,
    }
    assert sum(moved.values()) == 128


@pytest.mark.oracle
def test_the_baseline_of_compat_mode(probe: Any) -> None:
    code, found, said = probe("--engine", "bounce", "--size", "4M", "--bs", "64k", "--compare", "compat")
    assert code == 0, said
    (row,) = found["comparison"]
    assert (row["engine"], row["verdict"]) == ("compat", "compat")
    assert "compat mode forced" in row["carried_by"]


@pytest.mark.oracle
def test_a_direct_route_demanded_forbids_compat_mode(probe: Any) -> None:
    """The strong test: without nvidia-fs and without compat mode the library does not open at all."""
    code, found, said = probe("--require-path", "nvidia-fs", "--size", "1M")
    assert (code, found) == (1, None)
    assert (
        "compat mode forbidden, libcufile refuses: cuFileDriverOpen: cuFile error 5001, DRIVER_NOT_INITIALIZED" in said
    )
    assert said.count("\n") == 1


@pytest.mark.oracle
def test_auto_takes_cufile_where_it_can(probe: Any) -> None:
    code, found, _ = probe("--require-path", "compat", "--size", "1M")
    assert code == 0
    assert found["engine"] == "cufile"


@pytest.mark.oracle
def test_bounce_goes_through_the_gpus_memory(probe: Any) -> None:
    code, found, said = probe("--engine", "bounce", "--rw", "write", "--size", "2M", "--bs", "64k", "--verify")
    assert code == 0, said
    assert found["verify"]["ok"]
    assert found["engine"] == "bounce"


@pytest.mark.oracle
def test_a_gpu_that_is_not_there(probe: Any) -> None:
    code, _, said = probe("--engine", "cufile", "--gpu", "3", "--size", "1M")
    assert code == 3
    assert "no GPU 3: the CUDA driver shows 2" in said


def test_the_private_configuration_keeps_the_nodes_keys() -> None:
    node = {"properties": {"use_pci_p2pdma": True, "force_compat_mode": True}, "profile": {"nvtx": True}}
    open_, strict = (private_configuration(node, "/x", strict=flag) for flag in (False, True))
    assert open_["properties"] == {"use_pci_p2pdma": True, "force_compat_mode": True, "allow_compat_mode": True}
    assert strict["properties"]["allow_compat_mode"] is False
    assert "force_compat_mode" not in strict["properties"]
    assert open_["profile"] == {"nvtx": True, "cufile_stats": 3}
    forced = private_configuration({"properties": {"allow_compat_mode": False}}, "/x", strict=False, compat=True)
    assert forced["properties"] == {"allow_compat_mode": True, "force_compat_mode": True}
    assert node == {"properties": {"use_pci_p2pdma": True, "force_compat_mode": True}, "profile": {"nvtx": True}}


def test_the_settings_of_a_run_are_gone_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    settings = CufileSettings({}, strict=True)
    (folder,) = tmp_path.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert settings.environment["CUFILE_ENV_PATH_JSON"] == str(folder / "cufile.json")
    assert settings.environment["CUFILE_FORCE_COMPAT_MODE"] is None
    assert json.loads((folder / "cufile.json").read_text())["logging"] == {"dir": str(folder), "level": "INFO"}
    assert settings.compat_allowed is False
    assert settings.log_lines() == ()
    (folder / "cufile.log").write_text(
        " 01-02-2026 03:04:05:6 [pid=1 tid=1] ERROR  cufio:1 it broke\n"
        " 01-02-2026 03:04:05:7 [pid=1 tid=1] INFO  cufio:2 fine\n"
    )
    assert settings.log_lines() == ("ERROR it broke",)
    settings.close()
    assert list(tmp_path.iterdir()) == []


def test_the_statistics_are_laid_out_as_in_cufile_h() -> None:
    """Counted in the header: 16 bytes of UUID and 29 counters a GPU; level 1 has 64 words, with readv and writev 78."""
    assert ctypes.sizeof(PerGpu) == 16 + 29 * 8
    assert (PerGpu.reads_total.offset, PerGpu.reads_posix.offset) == (16 + 4 * 8, 16 + 7 * 8)
    assert (PerGpu.writes_total.offset, PerGpu.writes_posix.offset) == (16 + 17 * 8, 16 + 20 * 8)
    assert ctypes.sizeof(level3(vectored=True)) - ctypes.sizeof(level3(vectored=False)) == 14 * 8

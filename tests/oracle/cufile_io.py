"""Moves blocks of a file by CufileEngine in a process of its own, which a library that asserts may end.

    LD_PRELOAD=<stand-in libcuda> python -m tests.oracle.cufile_io '{"library": .., "path": .., "runs": ["write", "read"], ..}'

Prints {"how":, "address":, "runs": [{"blocks":, "mismatch":, "counts":, "error":}, ..]}.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gdsctl.errors import GdsctlError, RefusedError
from gdsctl.probe.cuda import Cuda
from gdsctl.probe.cufile import CufileEngine
from gdsctl.probe.engine import Job
from gdsctl.probe.offsets import regions
from gdsctl.probe.pattern import Pattern
from gdsctl.probe.run import run
from gdsctl.probe.target import create
from tests.oracle import oracle

BLOCK, BLOCKS, SEED = 65536, 24, 9
GPU = "0000:AB:00.0"  # as the driver writes it


def carry(library: str, tmp_path: Path, **asked: Any) -> tuple[dict[str, Any], bytes]:
    """What a process of its own answers, and the file afterwards; it is one of zeros before, without holes."""
    folder, root = tmp_path / "data", tmp_path / "root"
    folder.mkdir()
    try:
        os.close(create(str(folder))[0])
    except RefusedError:
        pytest.skip("the temporary folder's file system has no O_DIRECT")
    path = folder / "file"
    with open(path, "wb") as file:
        file.write(bytes(BLOCK * BLOCKS))
        file.flush()
        os.fsync(file.fileno())
    device = os.stat(folder).st_dev
    udev = root / f"run/udev/data/b{os.major(device)}:{os.minor(device)}"
    udev.parent.mkdir(parents=True)
    udev.write_text("E:ID_FS_USAGE=filesystem\nE:ID_FS_TYPE=ext4\n")
    (root / "proc").mkdir()
    (root / "proc/modules").write_text("pretend 16384 0 - Live 0x0000000000000000\n")
    request = {
        "library": library,
        "path": str(path),
        "runs": ["write", "read"],
        "api": "sync",
        "registered": True,
        "compat": False,
        "block_bytes": BLOCK,
        "size_bytes": BLOCK * BLOCKS,
        "threads": 2,
        "iodepth": 1,
        "seed": SEED,
        **asked,
    }
    environment = dict(os.environ) | {
        "LD_PRELOAD": str(oracle.build_stub()),
        "FAKECUDA_GPUS": GPU,
        "FAKEROOT": str(root),
        "TMPDIR": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.oracle.cufile_io", json.dumps(request)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.glob(".gdsctl-*"))
    return json.loads(done.stdout), path.read_bytes()


def pattern() -> bytes:
    made = Pattern(SEED, BLOCK)
    return b"".join(bytes(made.block(at)) for at in range(0, BLOCK * BLOCKS, BLOCK))


def main(asked: dict[str, Any]) -> dict[str, Any]:
    """`runs`: `read`, `write` or the share of reads of a mixed run in percent."""
    threads, block, size, depth = asked["threads"], asked["block_bytes"], asked["size_bytes"], asked["iodepth"]
    cuda = Cuda()
    try:
        engine = CufileEngine(
            cuda,
            0,
            asked.get("configuration", {}),
            asked["library"],
            strict=False,
            api=asked["api"],
            registered=asked["registered"],
            compat=asked["compat"],
        )
    except GdsctlError as error:
        return {"error": str(error), "code": error.exit_code}
    answer: dict[str, Any] = {"how": engine.how, "address": cuda.address(0), "runs": []}
    descriptor = os.open(asked["path"], os.O_RDWR | os.O_DIRECT)
    engine.introduce(descriptor)
    for wanted in asked["runs"]:
        mixed = isinstance(wanted, int)
        job = Job(
            descriptor=descriptor,
            direction="read" if mixed else wanted,
            read_percent=wanted if mixed else None,
            block_bytes=block,
            iodepth=depth,
            seed=asked["seed"],
            checked=True,
            gpu=0,
        )
        engine.begin()
        try:
            timed = run(engine, [job] * threads, regions(size, block, threads))
        except GdsctlError as error:
            answer["runs"].append({"error": str(error)})
            continue
        counts = engine.counts("read" if mixed else wanted)
        answer["runs"].append(
            {
                "blocks": timed.blocks,
                "mismatch": msgspec.to_builtins(timed.mismatch),
                "counts": msgspec.to_builtins(counts),
            }
        )
    engine.close()
    return answer


if __name__ == "__main__":
    kept = os.dup(1)
    os.dup2(2, 1)  # the library prints to stdout
    os.write(kept, json.dumps(main(json.loads(sys.argv[1]))).encode())
    os._exit(0)  # its threads may outlive it

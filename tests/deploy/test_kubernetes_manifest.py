"""The DaemonSet: its parts fit each other, and its loop does with exit codes what the page says."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
MANIFEST: dict[str, Any] = yaml.safe_load((FOLDER / "daemonset.yaml").read_text())
POD = MANIFEST["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]


def test_the_parts_fit() -> None:
    assert (MANIFEST["apiVersion"], MANIFEST["kind"]) == ("apps/v1", "DaemonSet")
    assert MANIFEST["spec"]["selector"]["matchLabels"] == MANIFEST["spec"]["template"]["metadata"]["labels"]
    volumes = {volume["name"]: volume["hostPath"] for volume in POD["volumes"]}
    mounts = {mount["name"]: mount for mount in CONTAINER["volumeMounts"]}
    assert set(volumes) == set(mounts)
    own = {"textfiles"}  # only there is anything written, and only its place differs from the host's
    assert {name for name, mount in mounts.items() if not mount.get("readOnly")} == own
    assert {name for name, mount in mounts.items() if mount["mountPath"] != volumes[name]["path"]} == own
    assert mounts["data"]["mountPropagation"] == "HostToContainer"  # a file system mounted later is seen
    assert mounts["textfiles"]["mountPath"] == environment()["TEXTFILES"]


def environment() -> dict[str, str]:
    return {one["name"]: one["value"] for one in CONTAINER["env"]}


@pytest.mark.skipif(not shutil.which("kubectl"), reason="no kubectl")
def test_kustomize_takes_it() -> None:
    done = subprocess.run(
        ["kubectl", "kustomize", str(FOLDER)],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"]},
    )
    assert yaml.safe_load(done.stdout) == MANIFEST


@pytest.mark.parametrize(("code", "told"), [(0, False), (1, False), (3, False), (4, True), (5, True), (124, True)])
def test_the_loop(code: int, told: bool, tmp_path: Path) -> None:
    """It goes on whatever the verdict, tells what is none, and ends at once when the pod does."""
    shell, option, script = CONTAINER["command"]
    for name, body in {
        "gdsctl": f'echo "$@" >> {tmp_path}/calls\nexit {code}',
        "timeout": 'shift\nexec "$@"',
        "sleep": f"echo slept >> {tmp_path}/slept\nexec /bin/sleep 30",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    own = {**environment(), "TEXTFILES": str(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with subprocess.Popen(
        [shell, option, script], env=own, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as loop:
        deadline = time.monotonic() + 30
        while not (tmp_path / "slept").exists():
            assert loop.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        loop.send_signal(signal.SIGTERM)
        assert loop.wait(30) == 0
        os.killpg(loop.pid, signal.SIGKILL)  # the sleep, which a container takes down with it
        assert loop.stderr is not None
        assert (f"ended with {code}" in loop.stderr.read()) is told
    assert (tmp_path / "calls").read_text().split() == (
        f"verify {environment()['ARGUMENTS']} --quiet --format prometheus --output {tmp_path}/gdsctl.prom"
    ).split()

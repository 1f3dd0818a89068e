"""The role, run by ansible-core against this machine: with a gdsctl that ends as told, and with the real one."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from gdsctl.plan.intent import read

ANSIBLE = Path(__file__).resolve().parents[2] / "deploy" / "ansible"
ROLE = ANSIBLE / "roles" / "gdsctl"
PLAYBOOK = shutil.which("ansible-playbook")
REAL = Path(sys.executable).with_name("gdsctl")
INVENTORY = f"node1 ansible_connection=local ansible_python_interpreter={sys.executable}\n"

ansible = pytest.mark.skipif(PLAYBOOK is None, reason="ansible-core is not installed")


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "hosts").write_text(INVENTORY)
    own = {name: str(folder / "tmp") for name in ("ANSIBLE_LOCAL_TEMP", "ANSIBLE_REMOTE_TEMP", "ANSIBLE_HOME")}
    return subprocess.run(
        [PLAYBOOK or "", "-i", str(folder / "hosts"), *arguments],
        cwd=folder,
        env={**os.environ, **own, "ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )


def play(folder: Path, **variables: Any) -> subprocess.CompletedProcess[str]:
    """A play of nothing but the role."""
    book = [{"hosts": "node1", "gather_facts": False, "roles": [{"role": str(ROLE), **variables}]}]
    (folder / "play.yml").write_text(yaml.safe_dump(book, sort_keys=False))
    return run(folder, str(folder / "play.yml"))


def stand_in(folder: Path, code: int, status: str) -> str:
    """A gdsctl that notes its arguments and ends with a code; its document has one requirement of a status."""
    document = {"requirements": [{"id": "route:/mnt", "subject": "GPU 0", "status": status}]}
    place = folder / "gdsctl"
    place.write_text(
        f"#!/bin/sh\necho \"$@\" >> {folder}/calls\necho 'gdsctl: said' >&2\n"
        f'[ "$1" = snapshot ] && {{ echo packed > "$2"; exit 0; }}\necho \'{json.dumps(document)}\'\nexit {code}\n'
    )
    place.chmod(0o755)
    return str(place)


@ansible
@pytest.mark.parametrize(
    ("code", "status", "refuse_unknown", "refused"),
    [(0, "pass", False, False), (1, "fail", False, True), (3, "unknown", False, False), (3, "unknown", True, True)],
)
def test_verdicts(code: int, status: str, refuse_unknown: bool, refused: bool, tmp_path: Path) -> None:
    done = play(tmp_path, gdsctl_command=stand_in(tmp_path, code, status), gdsctl_refuse_unknown=refuse_unknown)
    assert (done.returncode != 0) is refused, done.stdout + done.stderr
    assert ("route:/mnt GPU 0" in done.stdout) is refused
    assert ("gdsctl: said" in done.stdout) is (code == 3)


@ansible
@pytest.mark.parametrize("code", [2, 4, 5, 70])
def test_no_verdict_fails_the_play_where_gdsctl_ran(code: int, tmp_path: Path) -> None:
    done = play(tmp_path, gdsctl_command=stand_in(tmp_path, code, "pass"))
    assert done.returncode != 0
    assert "Judge the paths between GPUs and storage" in done.stdout.rpartition("TASK [")[2]


@ansible
def test_arguments_intent_and_snapshot(tmp_path: Path) -> None:
    done = play(
        tmp_path,
        gdsctl_command=stand_in(tmp_path, 0, "pass"),
        gdsctl_intent={"schema": "gdsctl/intent/v1", "mounts": [{"target": "/mnt", "expect": "direct"}]},
        gdsctl_intent_path=str(tmp_path / "etc/gdsctl/intent.yaml"),
        gdsctl_requirements=["driver.kind=open", "direct:/a b"],
        gdsctl_profiles=["local-nvme"],
        gdsctl_snapshots=str(tmp_path / "snapshots"),
        gdsctl_redact=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    intent = tmp_path / "etc/gdsctl/intent.yaml"
    (mount,) = read(intent.read_text(), str(intent)).intent.mounts or ()
    assert (mount.target, mount.expect) == ("/mnt", "direct")
    judged, captured = (tmp_path / "calls").read_text().splitlines()
    assert judged == (
        f"verify --format json --intent {intent} --require=driver.kind=open --require=direct:/a b --profile=local-nvme"
    )
    place = captured.split()[1]
    assert captured == f"snapshot {place} --redact"
    assert not Path(place).parent.exists()
    assert (tmp_path / "snapshots/node1.tar.gz").read_text() == "packed\n"


@ansible
def test_the_real_program(tmp_path: Path) -> None:
    """An example in the place of the node for the verdict; the snapshot is of this machine."""
    shown = ["--snapshot", "example:hgx-h100-vast"]
    good = play(
        tmp_path,
        gdsctl_command=str(REAL),
        gdsctl_arguments=shown,
        gdsctl_requirements=["direct:@nvme"],
        gdsctl_snapshots=str(tmp_path / "kept"),
    )
    assert good.returncode == 0, good.stdout + good.stderr
    with tarfile.open(tmp_path / "kept/node1.tar.gz") as archive:
        assert "manifest.json" in archive.getnames()
    bad = play(
        tmp_path,
        gdsctl_command=str(REAL),
        gdsctl_arguments=["--snapshot", "example:nvme-unpatched"],
        gdsctl_requirements=["direct:@nvme"],
    )
    assert bad.returncode != 0
    assert "Refuse the node" in bad.stdout.rpartition("TASK [")[2]


@ansible
def test_the_playbook_is_one(tmp_path: Path) -> None:
    done = run(tmp_path, "--syntax-check", str(ANSIBLE / "site.yml"), "-e", "nodes=node1")
    assert done.returncode == 0, done.stderr


def test_every_variable_has_a_default() -> None:
    defaults = yaml.safe_load((ROLE / "defaults/main.yml").read_text())
    tasks = (ROLE / "tasks/main.yml").read_text()
    registered = {"gdsctl_verify", "gdsctl_place"}
    assert set(re.findall(r"\bgdsctl_\w+", tasks)) == set(defaults) | registered

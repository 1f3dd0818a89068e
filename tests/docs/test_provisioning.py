"""Every snippet of docs/provisioning.md parses, and does with gdsctl's exit codes what the page says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import types
from pathlib import Path

import pytest
import yaml

from gdsctl.data.profiles import facts, profiles
from gdsctl.plan.intent import read

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "provisioning.md").read_text("utf-8")
SNIPPETS = {
    name: (language, body)
    for name, language, body in re.findall(r"<!-- snippet: ([a-z-]+) -->\n```(\w+)\n(.*?)```", PAGE, re.DOTALL)
}


def shell_of(name: str) -> tuple[str, str]:
    """(interpreter, script) of a snippet that is shell or holds some."""
    language, body = SNIPPETS[name]
    if name == "cloud-init":
        (command,) = yaml.safe_load(body)["runcmd"]
        return "sh", command
    if name == "kubernetes":
        shell, option, script = yaml.safe_load(body)["initContainers"][0]["command"]
        assert option == "-c"
        return shell, script
    if name == "nhc":  # die and log are NHC's own; die prints and ends the check
        return "bash", f'die() {{ echo "$2"; exit "$1"; }}\nlog() {{ :; }}\n{body}\ncheck_gds'
    return language, body


def run(name: str, gdsctl_ends_with: int, folder: Path, **edits: str) -> subprocess.CompletedProcess[str]:
    """A snippet with a gdsctl that notes its arguments and ends as told; logger, srun and timeout are stand-ins.

    `edits`: `old` and `new` of a change that the page proposes.
    """
    stand_ins = {
        "gdsctl": f'echo "$@" >> {folder}/calls\necho said\nexit {gdsctl_ends_with}',
        "logger": f'echo "$@" >> {folder}/logged',
        "timeout": 'shift\nexec "$@"',
        "pdsh": 'shift 2\nexec sh -c "$@"',
        "ansible-playbook": f'echo "$@" >> {folder}/played\nexit {gdsctl_ends_with}',
        "srun": 'while [ "${1#--}" != "$1" ]; do shift; done\nexec "$@"',
    }
    for tool, body in stand_ins.items():
        (folder / tool).write_text(f"#!/bin/sh\n{body}\n")
        (folder / tool).chmod(0o755)
    shell, script = shell_of(name)
    if edits:
        assert edits["old"] in script
        script = script.replace(edits["old"], edits["new"])
    environment = {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "SHARED": str(folder),
        "TEXTFILES": str(folder),
        "NODES": "gpu[001-128]" if name == "pdsh-fleet" else "1",
    }
    return subprocess.run([shell, "-c", script], env=environment, capture_output=True, text=True, check=False)


SHELL = [name for name in SNIPPETS if name != "ansible"]


def test_all_snippets_are_known() -> None:
    assert set(SNIPPETS) == {
        "cloud-init",
        "ansible",
        "ansible-fleet",
        "slurm-prolog",
        "nhc",
        "kubernetes",
        "prometheus",
        "slurm-fleet",
        "pdsh-fleet",
    }


@pytest.mark.parametrize("name", SHELL)
def test_shell_parses(name: str) -> None:
    shell, script = shell_of(name)
    subprocess.run([shell, "-n", "-c", script], check=True)
    if shell == "sh" and shutil.which("dash"):
        subprocess.run(["dash", "-n", "-c", script], check=True)


@pytest.mark.parametrize("name", ["cloud-init", "slurm-prolog", "nhc", "kubernetes"])
@pytest.mark.parametrize(("code", "refused"), [(0, False), (1, True), (2, False), (3, False), (4, False), (124, False)])
def test_only_a_failed_requirement_refuses_the_node(name: str, code: int, refused: bool, tmp_path: Path) -> None:
    assert (run(name, code, tmp_path).returncode != 0) is refused
    assert (tmp_path / "calls").read_text().startswith("verify ")


IN_CASE = {"old": "1)\n", "new": "1 | 3)\n"}
IN_TEST = {"old": '[ "$rc" -ne 1 ]', "new": '[ "$rc" -ne 1 ] && [ "$rc" -ne 3 ]'}


@pytest.mark.parametrize(
    ("name", "edits"),
    [("slurm-prolog", IN_CASE), ("nhc", IN_CASE), ("cloud-init", IN_TEST), ("kubernetes", IN_TEST)],
)
@pytest.mark.parametrize(("code", "refused"), [(0, False), (1, True), (2, False), (3, True), (4, False)])
def test_unknown_refuses_where_that_is_asked_for(
    name: str, edits: dict[str, str], code: int, refused: bool, tmp_path: Path
) -> None:
    assert edits["new"].strip() in PAGE
    assert (run(name, code, tmp_path, **edits).returncode != 0) is refused


@pytest.mark.parametrize(("code", "ended"), [(0, 0), (1, 0), (3, 0), (4, 4), (5, 5)])
def test_metrics_are_written_whatever_the_verdict(code: int, ended: int, tmp_path: Path) -> None:
    assert run("prometheus", code, tmp_path).returncode == ended
    assert f"--output {tmp_path}/gdsctl.prom" in (tmp_path / "calls").read_text()


def test_the_prolog_logs_what_was_said(tmp_path: Path) -> None:
    run("slurm-prolog", 1, tmp_path)
    run("slurm-prolog", 3, tmp_path)
    assert (tmp_path / "logged").read_text() == "-t gdsctl said\n-t gdsctl not judged (3): said\n"


@pytest.mark.parametrize("name", ["slurm-fleet", "pdsh-fleet"])
def test_fleet(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.tar.zst").touch()
    assert run(name, 0, tmp_path).returncode == 0
    captured, compared = (tmp_path / "calls").read_text().splitlines()
    assert re.fullmatch(rf"snapshot {tmp_path}/[^/ ]+\.tar\.zst", captured)
    assert compared == f"diff {tmp_path}/a.tar.zst"


@pytest.mark.parametrize(("code", "fails"), [(0, False), (1, True), (3, False), (4, True)])
def test_ansible(code: int, fails: bool) -> None:
    judge, tell = yaml.safe_load(SNIPPETS["ansible"][1])
    names = {"gds": types.SimpleNamespace(rc=code)}
    # These two conditions mean the same to Jinja and to Python.
    assert eval(judge["failed_when"], {}, names) is fails  # noqa: S307 -- our own page
    assert eval(tell["when"], {}, names) is (code == 3)  # noqa: S307 -- our own page


def test_the_intent_of_cloud_init_is_one() -> None:
    (file,) = yaml.safe_load(SNIPPETS["cloud-init"][1])["write_files"]
    (mount,) = read(file["content"], file["path"]).intent.mounts or ()
    assert (mount.target, mount.expect) == ("/mnt/nvme", "direct")


def test_the_page_names_every_fact_and_profile() -> None:
    for name in (*facts(), *profiles()):
        assert f"`{name}`" in PAGE


@pytest.mark.parametrize("code", [0, 2])
def test_a_failing_node_does_not_keep_the_others_from_being_compared(code: int, tmp_path: Path) -> None:
    run("ansible-fleet", code, tmp_path)
    assert (tmp_path / "played").read_text() == "-i hosts deploy/ansible/site.yml\n"
    assert (tmp_path / "calls").read_text().startswith("diff deploy/ansible/snapshots/")
    assert (ROOT / "deploy/ansible/site.yml").exists()


@pytest.mark.skipif(not shutil.which("cloud-init"), reason="no cloud-init")
def test_cloud_init_takes_its_snippet(tmp_path: Path) -> None:
    (tmp_path / "user-data").write_text(SNIPPETS["cloud-init"][1])
    subprocess.run(["cloud-init", "schema", "--config-file", str(tmp_path / "user-data")], check=True)


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="no shellcheck")
@pytest.mark.parametrize("name", SHELL)
def test_shellcheck(name: str) -> None:
    shell, script = shell_of(name)
    subprocess.run(["shellcheck", "--severity=warning", "--shell", shell, "-"], input=script, text=True, check=True)

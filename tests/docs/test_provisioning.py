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

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "provisioning.md").read_text("utf-8")
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


def run(name: str, gdsctl_ends_with: int, folder: Path) -> subprocess.CompletedProcess[str]:
    """A snippet with a gdsctl that notes its arguments and ends as told; logger, srun and timeout are stand-ins."""
    stand_ins = {
        "gdsctl": f'echo "$@" >> {folder}/calls\necho said\nexit {gdsctl_ends_with}',
        "logger": f'echo "$@" >> {folder}/logged',
        "timeout": 'shift\nexec "$@"',
        "srun": 'while [ "${1#--}" != "$1" ]; do shift; done\nexec "$@"',
    }
    for tool, body in stand_ins.items():
        (folder / tool).write_text(f"#!/bin/sh\n{body}\n")
        (folder / tool).chmod(0o755)
    shell, script = shell_of(name)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "SHARED": str(folder), "TEXTFILES": str(folder)}
    return subprocess.run([shell, "-c", script], env=environment, capture_output=True, text=True, check=False)


SHELL = [name for name in SNIPPETS if name != "ansible"]


def test_all_snippets_are_known() -> None:
    assert set(SNIPPETS) == {
        "cloud-init",
        "ansible",
        "slurm-prolog",
        "nhc",
        "kubernetes",
        "prometheus",
        "slurm-fleet",
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


@pytest.mark.parametrize(("code", "ended"), [(0, 0), (1, 0), (3, 0), (4, 4), (5, 5)])
def test_metrics_are_written_whatever_the_verdict(code: int, ended: int, tmp_path: Path) -> None:
    assert run("prometheus", code, tmp_path).returncode == ended
    assert f"--output {tmp_path}/gdsctl.prom" in (tmp_path / "calls").read_text()


def test_the_prolog_logs_what_was_said(tmp_path: Path) -> None:
    run("slurm-prolog", 1, tmp_path)
    run("slurm-prolog", 3, tmp_path)
    assert (tmp_path / "logged").read_text() == "-t gdsctl said\n-t gdsctl not judged (3): said\n"


def test_fleet(tmp_path: Path) -> None:
    (tmp_path / "a.tar.zst").touch()
    assert run("slurm-fleet", 0, tmp_path).returncode == 0
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

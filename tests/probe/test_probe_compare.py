"""The same job by another engine: the command that repeats it, and what a ratio is taken to mean."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from gdsctl.probe.compare import said
from gdsctl.render.schemas import schema
from tests.probe.test_probe_command import folder  # noqa: F401 -- a fixture

START = f"import sys; sys.path = [*filter(None, sys.path), {str(Path(__file__).parents[2])!r}]; from gdsctl.cli import main; main()"
COMMAND = [sys.executable, "-c", START, "probe", "--engine", "posix", "--format", "json"]


@pytest.mark.parametrize(
    ("verdict", "engine", "ratio", "overlap", "expected"),
    [
        ("nvidia-fs", "compat", 1.02, False, "direct moves no more than compat"),
        ("p2pdma", "bounce", 0.8, False, "direct moves no more than bounce"),
        ("nvidia-fs", "compat", 1.5, False, "50 % more than compat"),
        ("nvidia-fs", "posix", 1.0, False, "as much as posix"),  # host memory is another question
        ("compat", "bounce", 0.5, False, "50 % less than bounce"),
        ("host-direct", "posix", 1.3, True, "no difference"),
    ],
)
def test_what_a_ratio_means(verdict: str, engine: str, ratio: float, overlap: bool, expected: str) -> None:
    assert said(verdict, engine, ratio, overlap=overlap).startswith(expected)


def test_with_itself(folder: Path) -> None:  # noqa: F811 -- the fixture
    hostile = folder / "-n $(touch x)"
    hostile.mkdir()
    (folder / "typer.py").write_text("raise SystemExit(99)")  # what lies in the current folder is nobody's module
    done = subprocess.run(
        [*COMMAND, *("--size", "8M", "--bs", "64k,1M", "--rw", "randrw", "--mix", "60", "--threads", "2", "--files", "2"),
         *("--duration", "0.2", "--repeat", "2", "--compare", "posix", "--", str(hostile))],
        capture_output=True, text=True, check=True, timeout=120,
        cwd=folder,
    )  # fmt: skip
    found = json.loads(done.stdout)
    jsonschema.validate(found, schema("probe"))
    (row,) = found["comparison"]
    assert (row["engine"], row["verdict"]) == ("posix", found["path_taken"]["verdict"])
    assert row["ratio"] == pytest.approx(found["throughput_gbs"] / row["throughput_gbs"], rel=0.01)
    assert os.listdir(hostile) == []
    assert sorted(os.listdir(folder)) == sorted([hostile.name, "typer.py"])


@pytest.mark.parametrize("engine", ["bounce", "gdsio"])
def test_with_what_is_not_here(folder: Path, tmp_path: Path, engine: str) -> None:  # noqa: F811 -- the fixture
    """Told before anything is moved: no document, and long before --duration has passed."""
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("there is a GPU")
    empty = tmp_path / "bin"
    empty.mkdir()
    done = subprocess.run(
        [*COMMAND, "--size", "8M", "--duration", "100", "--compare", "posix", "--compare", engine, str(folder)],
        capture_output=True, text=True, check=False, timeout=50, env=os.environ | {"PATH": str(empty)},
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert "settle with: " in done.stderr


def test_with_what_fails(folder: Path, tmp_path: Path) -> None:  # noqa: F811 -- the fixture
    """A stand-in for fio that has its engines and then fails: what was measured is told, and that the rest is not."""
    program = tmp_path / "bin" / "fio"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\n[ "$1" = --enghelp ] && echo psync && exit\necho fio: no luck today >&2\nexit 9\n')
    program.chmod(0o755)
    done = subprocess.run(
        [*COMMAND, "--size", "8M", "--compare", "fio", str(folder)],
        capture_output=True, text=True, check=False, timeout=100,
        env=os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}"},
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert (done.returncode, found["comparison"], found["bytes"]) == (5, [], 8 << 20)
    said = "not compared with fio: fio ended with 9: fio: no luck today"
    assert done.stderr == f"gdsctl: {said}\n"
    assert said in found["notes"]

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


def test_with_itself_and_with_what_is_not_here(folder: Path) -> None:  # noqa: F811 -- the fixture
    hostile = folder / "-n $(touch x)"
    hostile.mkdir()
    (folder / "typer.py").write_text("raise SystemExit(99)")  # what lies in the current folder is nobody's module
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("there is a GPU")
    done = subprocess.run(
        [*COMMAND, *("--size", "8M", "--bs", "64k,1M", "--rw", "randrw", "--mix", "60", "--threads", "2", "--files", "2"),
         *("--duration", "0.2", "--repeat", "2", "--compare", "posix", "--compare", "bounce", "--", str(hostile))],
        capture_output=True, text=True, check=True, timeout=120,
        cwd=folder,
    )  # fmt: skip
    found = json.loads(done.stdout)
    jsonschema.validate(found, schema("probe"))
    (row,) = found["comparison"]
    assert (row["engine"], row["verdict"]) == ("posix", found["path_taken"]["verdict"])
    assert row["ratio"] == pytest.approx(found["throughput_gbs"] / row["throughput_gbs"], rel=0.01)
    (note,) = [note for note in found["notes"] if note.startswith("not compared with bounce: ")]
    assert "settle with: nvidia-smi" in note
    assert os.listdir(hostile) == []
    assert sorted(os.listdir(folder)) == sorted([hostile.name, "typer.py"])

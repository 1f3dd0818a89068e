"""`gdsctl probe` with another program moving the blocks: fio where it is installed, else a stand-in."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gdsctl.render.schemas import schema
from tests.probe.test_probe_command import folder  # noqa: F401 -- a fixture


def probe(*arguments: str | Path, path: str | None = None) -> tuple[int, Any, str]:
    """Exit code, document or None, stderr; `path`: where programs are looked for."""
    done = subprocess.run(
        [sys.executable, "-m", "gdsctl", "probe", *map(str, arguments), "--format", "json"],
        capture_output=True, text=True, check=False, timeout=120,
        env=os.environ | ({"PATH": path} if path is not None else {}),
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


@pytest.fixture
def fio() -> str:
    found = shutil.which("fio")
    if found is None:
        pytest.skip("fio is not installed")
    return found


def test_fio_on_a_file_of_our_own(folder: Path, fio: str) -> None:  # noqa: F811
    code, found, said = probe(folder, "--engine", "fio", "--size", "8M", "--bs", "64k", "--threads", "2")
    assert code == 0, said
    jsonschema.validate(found, schema("probe"))
    assert (found["engine"], found["bytes"], found["threads"]) == ("fio", 8 << 20, 2)
    assert "psync" in found["carried_by"]
    assert found["iops"] == pytest.approx(128 / found["seconds"], rel=0.01)
    assert found["latency_us"]["p50"] > 0
    assert any(note.startswith(f"run as: {fio} ") for note in found["notes"])
    facts = [piece["fact"] for piece in found["path_taken"]["evidence"]]
    assert "page cache holds of the file" in facts
    assert os.listdir(folder) == []


def test_fio_mixed_and_compared(folder: Path, fio: str) -> None:  # noqa: F811
    del fio
    code, found, said = probe(
        *(folder, "--engine", "posix", "--rw", "randrw", "--mix", "80", "--size", "8M", "--bs", "64k"),
        *("--duration", "0.5", "--compare", "fio"),
    )
    assert code == 0, said
    (row,) = found["comparison"]
    assert row["engine"] == "fio"
    assert row["ratio"] == pytest.approx(found["throughput_gbs"] / row["throughput_gbs"], rel=0.01)
    assert row["p50_us"] is None  # fio tells those of reads and of writes


@pytest.mark.parametrize("program", ["fio", "gdsio", "elbencho", "nixlbench"])
def test_a_program_that_is_not_there(folder: Path, tmp_path: Path, program: str) -> None:  # noqa: F811
    empty = tmp_path / "bin"
    empty.mkdir()
    code, found, said = probe(folder, "--engine", program, "--size", "1M", path=str(empty))
    assert (code, found) == (3, None)
    assert said == f"gdsctl: {program} is not installed here; settle with: command -v {program}\n"


@pytest.mark.parametrize(
    "more",
    [["--verify"], ["--files", "2", "--threads", "2"], ["--rate", "1M"], ["--ramp", "1", "--duration", "1"], ["--numa", "0"]],
)  # fmt: skip
def test_what_other_programs_are_not_asked_for(folder: Path, more: list[str]) -> None:  # noqa: F811
    code, _, said = probe(folder, "--engine", "fio", "--size", "8M", *more)
    assert code == 2
    assert "not with --engine fio" in said


def test_a_program_that_lies_about_its_output(folder: Path, tmp_path: Path) -> None:  # noqa: F811
    """A stand-in that moves nothing and prints something: an error that names it, and no traceback."""
    binary = tmp_path / "bin" / "fio"
    binary.parent.mkdir()
    binary.write_text('#!/bin/sh\necho psync io_uring\nprintf "\\033[31m{}"\n')
    binary.chmod(0o755)
    code, found, said = probe(folder, "--engine", "fio", "--size", "1M", path=f"{binary.parent}:{os.environ['PATH']}")
    assert (code, found) == (5, None)
    assert said.startswith("gdsctl: fio's output is not the JSON that it should be")
    assert "\x1b" not in said
    assert not [name for name in os.listdir(folder) if name != "bin"]


@pytest.mark.parametrize("rw", ["read", "randwrite"])
def test_a_program_that_does_not_go_direct_whatever_it_says(folder: Path, tmp_path: Path, fio: str, rw: str) -> None:  # noqa: F811
    """fio, buffered, behind a wrapper that keeps --direct=1 to itself."""
    wrapper = tmp_path / "bin" / "fio"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/bash\nexec {fio} "${{@/--direct=1/--direct=0}}"\n')
    wrapper.chmod(0o755)
    code, found, said = probe(
        *(folder, "--engine", "fio", "--size", "8M", "--rw", rw, "--duration", "0.5", "--require-path", "host-direct"),
        path=f"{wrapper.parent}:{os.environ['PATH']}",
    )
    assert code in (1, 3), said
    assert (found["path_taken"]["verdict"], found["direct"]) in (("mixed", False), ("unknown", None))


@pytest.mark.parametrize(("program", "modes"), [("fio", "psync, io_uring, libaio"), ("gdsio", "0, 1, 2")])
def test_a_mode_that_a_program_does_not_have(folder: Path, program: str, modes: str) -> None:  # noqa: F811
    """A usage error, whether or not the program is here."""
    code, found, said = probe(folder, "--engine", program, "--tool-mode", "nosuch", "--size", "1M", path="/nonexistent")
    assert (code, found) == (2, None)
    assert said.startswith(f"gdsctl: --tool-mode: {program} has no mode nosuch; it has {modes}")


def test_what_one_combination_cannot_do_is_told_before_the_first_is_run(folder: Path, fio: str) -> None:  # noqa: F811
    del fio
    asked = ("--engine", "fio", "--tool-mode", "psync", "--iodepth", "1,2", "--duration", "100", "--size", "1M")
    code, found, said = probe(folder, *asked)
    assert (code, found) == (2, None)
    assert "psync moves one block at a time" in said


def test_the_mode_of_no_program(folder: Path) -> None:  # noqa: F811
    code, _, said = probe(folder, "--engine", "posix", "--tool-mode", "psync", "--size", "1M")
    assert code == 2
    assert "--tool-mode" in said

"""Where a result cannot be put is noticed before anything is measured, and what stands there stays as it is."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gdsctl import pipeline
from gdsctl.cli import run
from gdsctl.errors import RefusedError
from gdsctl.probe.outputs import require_writable

BAD: dict[str, Callable[[Path], str]] = {
    "no folder": lambda folder: f"{folder}/none/out.svg",
    "a folder": lambda folder: f"{folder}/folder.svg",
    "below a file": lambda folder: f"{folder}/file.svg/out.svg",
    "ends with a slash": lambda folder: f"{folder}/out.svg/",
    "a name too long": lambda folder: f"{folder}/{'x' * 300}.svg",
    "a closed descriptor": lambda _: "/dev/fd/987654",
    "no place for files": lambda _: "/proc/out.svg",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "folder.svg").mkdir()
    (tmp_path / "file.svg").write_text("mine")
    return tmp_path


@pytest.mark.parametrize("name", BAD)
def test_a_bad_place(folder: Path, name: str) -> None:
    path = BAD[name](folder)
    with pytest.raises(RefusedError) as error:
        require_writable(path)
    assert str(error.value).startswith(f"{path}: ")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_and_a_file_of_others() -> None:
    for path in ("/root/out", "/out", "/etc/passwd"):
        with pytest.raises(RefusedError, match=r"EACCES|EROFS"):
            require_writable(path)


def test_a_good_place_is_not_touched(folder: Path) -> None:
    (folder / "link").symlink_to(folder / "file.svg")
    before = (folder / "file.svg").stat()
    for path in ("file.svg", "link", "new"):
        require_writable(str(folder / path))
    for path in ("/dev/null", "/dev/stdout", "/dev/fd/1"):
        require_writable(path)
    assert (folder / "file.svg").stat() == before
    assert sorted(os.listdir(folder)) == ["file.svg", "folder.svg", "link"]


@pytest.mark.parametrize("option", ["--output", "--plot"])
@pytest.mark.parametrize("name", BAD)
def test_nothing_is_measured_first(folder: Path, monkeypatch: pytest.MonkeyPatch, option: str, name: str) -> None:
    monkeypatch.setattr(pipeline, "inspect", lambda _: pytest.fail("it went on"))
    assert run(["probe", str(folder), "--size", "1M", option, BAD[name](folder)]) in (2, 5)

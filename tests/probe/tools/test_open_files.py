"""What /proc tells of a program's descriptors, over real programs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gdsctl.errors import RefusedError
from gdsctl.probe.target import create
from gdsctl.probe.tools.open_files import Watch


@pytest.fixture
def file(tmp_path: Path) -> Path:
    try:
        os.close(create(str(tmp_path))[0])
    except RefusedError:
        pytest.skip("the temporary folder's file system has no O_DIRECT")
    path = tmp_path / "file"
    path.write_bytes(b"x" * 8192)
    return path


@contextmanager
def program(*opens: str, path: Path, in_a_child: bool = False, given: tuple[int, ...] = ()) -> Iterator[int]:
    """Opens the file in each of these ways, and waits."""
    script = "import os, sys, time\n"
    if in_a_child:
        script += "if os.fork():\n    os.wait(); sys.exit()\n"
    script += "".join(f"os.open({str(path)!r}, {flags})\n" for flags in opens)
    script += "print(flush=True)\nsys.stdin.read()\n"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=given
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        assert process.stdin is not None
        process.stdin.close()


DIRECT, BUFFERED = "os.O_RDONLY | os.O_DIRECT", "os.O_RDONLY"


@pytest.mark.parametrize(
    ("opens", "direct"),
    [((DIRECT,), True), ((BUFFERED,), False), ((DIRECT, BUFFERED), None), ((DIRECT, DIRECT), True), ((), None)],
)
@pytest.mark.parametrize("in_a_child", [False, True])
def test_how_a_file_is_open(file: Path, opens: tuple[str, ...], direct: bool | None, in_a_child: bool) -> None:
    for place in (file, file.parent):
        watch = Watch([str(place)], [])
        with program(*opens, path=file, in_a_child=in_a_child) as process:
            assert watch.look(process) is bool(opens)
        assert watch.direct is direct


def test_what_it_was_given_open_and_other_files_do_not_count(file: Path) -> None:
    other = file.parent / "other"
    other.write_bytes(b"")
    given = os.open(file, os.O_RDONLY | os.O_DIRECT)
    try:
        watch = Watch([str(file)], [given])
        with program(DIRECT, path=other, given=(given,)) as process:
            assert not watch.look(process)
        assert watch.direct is None
    finally:
        os.close(given)


def test_a_process_that_is_gone(file: Path) -> None:
    with program(DIRECT, path=file) as process:
        pass
    assert not Watch([str(file)], []).look(process)

"""Tools at work: fio itself where it is installed, and stand-ins that print what the others would."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gdsctl.errors import RefusedError, UndecidedError, UsageError
from gdsctl.probe.target import create
from gdsctl.probe.tools.execute import execute
from gdsctl.probe.tools.run import prepared
from gdsctl.probe.tools.tool import ToolError, Work

MIB = 1 << 20


@pytest.fixture
def folder(tmp_path: Path) -> str:
    made = tmp_path / "data"
    made.mkdir()
    try:
        os.close(create(str(made))[0])
    except RefusedError:
        pytest.skip("the temporary folder's file system has no O_DIRECT")
    return str(made)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Puts a Python program of a name first on the PATH; gives the file to which it can write down what it saw."""
    place = tmp_path / "bin"
    place.mkdir()
    monkeypatch.setenv("PATH", str(place), prepend=os.pathsep)

    def install(name: str, body: str) -> Path:
        program, seen = place / name, tmp_path / f"{name}.seen"
        program.write_text(f"#!{sys.executable}\nimport json, os, sys\nSEEN = {str(seen)!r}\n{body}")
        program.chmod(0o755)
        return seen

    return install


needs_fio = pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")


@needs_fio
@pytest.mark.parametrize(
    ("mode", "work"),
    [
        ("psync", {"rw": "read", "threads": 2}),
        ("psync", {"rw": "randwrite"}),
        ("libaio", {"rw": "randread", "iodepth": 4}),
        (None, {"rw": "randrw", "read_percent": 25, "seconds": 0.6}),
    ],
)
def test_fio_itself(folder: str, mode: str | None, work: dict[str, Any]) -> None:
    asked = Work(**{"size_bytes": 8 * MIB, "block_bytes": 65536, **work})
    with prepared("fio", mode, asked, folder) as ready:
        assert os.listdir(folder) == []  # the file has no name
        assert os.stat(ready.paths[0]).st_size == 8 * MIB
        if asked.rw != "randwrite":
            assert os.stat(ready.paths[0]).st_blocks * 512 >= 8 * MIB  # no holes
        figures = ready.run()
        assert ready.flush() > 0
    told = figures.told
    assert [side.direction for side in told.sides] == list(asked.directions)
    assert told.bytes == told.blocks * 65536
    if asked.seconds is None:
        assert told.blocks == 128
    else:
        assert told.seconds == pytest.approx(asked.seconds, abs=0.4)
        reads, writes = told.sides
        assert reads.blocks / told.blocks == pytest.approx(0.25, abs=0.1)
        assert writes.blocks > 0
    for side in told.sides:
        times = side.latency_us
        assert None not in (times.min, times.mean, times.max)
        assert times.min <= times.p50 <= times.p90 <= times.p99 <= times.p99_9 <= times.max  # type: ignore[operator]
    assert figures.version == told.version
    assert told.cpu_seconds is not None
    assert 0 <= told.cpu_seconds <= figures.cpu_seconds + 0.1
    assert figures.wall_seconds >= told.seconds
    assert figures.command[0].endswith("/fio")


@needs_fio
def test_fio_built_without_libcufile(folder: str) -> None:
    if "libcufile" in execute(["fio", "--enghelp"], limit_s=30).stdout:
        pytest.skip("this fio has it")
    with (
        pytest.raises(UndecidedError, match="built without libcufile; settle with: fio --enghelp"),
        prepared("fio", "libcufile", Work(), folder),
    ):
        pass
    assert os.listdir(folder) == []


@pytest.mark.parametrize("name", ["fio", "gdsio", "elbencho", "nixlbench"])
def test_a_tool_that_is_not_installed(name: str, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(f"gdsctl.probe.tools.{name}._PLACES", (), raising=False)
    with (
        pytest.raises(UndecidedError, match=f"{name} is not installed here; settle with: command -v {name}"),
        prepared(name, None, Work(), folder),
    ):
        pass


GDSIO = """
if "-h" in sys.argv:
    print("gdsio version :1.16\\nUsage [using cmd line options]: ...")
    sys.exit()
place, count = sys.argv[sys.argv.index("-D") + 1], int(sys.argv[sys.argv.index("-w") + 1])
writes = sys.argv[sys.argv.index("-I") + 1] == "1"
for number in range(count):
    with open(os.path.join(place, f"gdsio.{number}"), "wb" if writes else "rb") as file:
        assert not writes or file.write(bytes(1 << 20))
        assert writes or len(file.read()) == 1 << 20
with open(SEEN, "a") as file:
    file.write(json.dumps([sys.argv[1:], os.environ.get("CUFILE_ENV_PATH_JSON")]) + "\\n")
print("IoType: READ XferType: GPUD Threads: 2 DataSetSize: 2048/2048(KiB) IOSize: 1024(KiB) "
      "Throughput: 2.0 GiB/sec, Avg_Latency: 500.0 usecs ops: 2 total_time 0.001000 secs")
"""


def test_gdsio_writes_its_files_before_it_reads_them(folder: str, installed: Callable[..., Path]) -> None:
    seen = installed("gdsio", GDSIO)
    work = Work(size_bytes=2 * MIB, threads=2, gpus=(0,))
    with prepared("gdsio", None, work, folder, environment={"CUFILE_ENV_PATH_JSON": "/x.json"}) as ready:
        (private,) = os.listdir(folder)
        assert private.startswith(".gdsctl-probe-")
        assert os.stat(os.path.join(folder, private)).st_mode & 0o777 == 0o700
        assert [os.path.basename(path) for path in ready.paths] == ["gdsio.0", "gdsio.1"]
        figures = ready.run()
    assert os.listdir(folder) == []
    layout, read = (json.loads(line) for line in seen.read_text().splitlines())
    assert layout[0][-4:] == ["-x", "1", "-I", "1"]
    assert (read[0][-4:], read[1]) == (["-x", "0", "-I", "0"], "/x.json")
    assert (figures.version, figures.told.bytes, figures.told.seconds) == ("1.16", 2 * MIB, 0.001)
    assert figures.mode.what == "storage to GPU: cuFileRead and cuFileWrite"


ELBENCHO = """
path, results = sys.argv[-1], sys.argv[sys.argv.index("--jsonfile") + 1]
held = open(path, "rb").read()
open(SEEN, "w").write(json.dumps([len(held), held.count(0) < 100000]))
last = {"elapsed_time_ms": "20", "bytes": "2097152", "cpu%": "1", "latency": {"IO": {"min_us": "1", "avg_us": "2",
    "max_us": "3"}}}
open(results, "a").write(json.dumps({"config": {"version": "3.1-10"}, "last_done": last}) + "\\n")
print("... a table ...")
"""


@pytest.mark.parametrize("gpus", [(), (0,)])
def test_elbencho_finds_a_written_file_and_a_place_for_its_results(
    folder: str, installed: Callable[..., Path], gpus: tuple[int, ...]
) -> None:
    seen = installed("elbencho", ELBENCHO)
    with prepared("elbencho", None, Work(size_bytes=2 * MIB, gpus=gpus), folder) as ready:
        assert len(os.listdir(folder)) == len(gpus)  # libcufile wants a name, host memory does not
        first, second = ready.run(), ready.run()
    assert os.listdir(folder) == []
    assert json.loads(seen.read_text()) == [2 * MIB, True]
    assert first.told == second.told
    assert (first.told.bytes, first.told.seconds, first.version) == (2 * MIB, 0.02, "3.1-10")


def test_a_tool_that_fails(folder: str, installed: Callable[..., Path]) -> None:
    installed("elbencho", "print('ERROR: first'); print('ERROR: disk on fire', file=sys.stderr); sys.exit(3)")
    with (
        pytest.raises(ToolError, match=r"^elbencho ended with 3: ERROR: disk on fire$"),
        prepared("elbencho", None, Work(rw="write", size_bytes=MIB, gpus=(0,)), folder) as ready,
    ):
        ready.run()
    assert os.listdir(folder) == []


def test_a_tool_that_tells_of_nothing_moved(folder: str, installed: Callable[..., Path]) -> None:
    installed("elbencho", ELBENCHO.replace('"bytes": "2097152", ', ""))
    with (
        pytest.raises(ToolError, match="moved nothing"),
        prepared("elbencho", None, Work(rw="write", size_bytes=MIB), folder) as ready,
    ):
        ready.run()


def test_less_than_a_block_a_thread(folder: str) -> None:
    with (
        pytest.raises(UsageError, match="one block of --bs"),
        prepared("fio", None, Work(size_bytes=MIB, threads=2), folder),
    ):
        pass


# --- execute


def alive(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def gone(process: int) -> bool:
    until = time.monotonic() + 30
    while alive(process) and time.monotonic() < until:
        time.sleep(0.02)
    return not alive(process)


def test_cpu_time_is_that_of_the_program_and_its_children() -> None:
    busy = "import os, time\nos.fork()\nuntil = time.process_time() + 0.2\nwhile time.process_time() < until: pass\n"
    ended = execute([sys.executable, "-c", f"{busy}\ntry: os.wait()\nexcept OSError: pass\nprint('done')"], limit_s=30)
    assert (ended.code, ended.stdout) == (0, "done\ndone\n")
    assert 0.4 <= ended.cpu_seconds < 1.5


def test_no_shell_and_no_input() -> None:
    ended = execute(["sh", "-c", 'cat; echo "$1"', "x", "$(id); `id` > /"], limit_s=10)
    assert (ended.code, ended.stdout) == (0, "$(id); `id` > /\n")


def test_a_program_that_is_not_done_in_time_is_ended_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"trap '' TERM; sleep 60 & echo $! $$ > {pids}; wait; sleep 60"
    began = time.monotonic()
    with pytest.raises(RefusedError, match=r"sh was not done after 0\.5 s, and was ended"):
        execute(["sh", "-c", script], limit_s=0.5)
    assert time.monotonic() - began < 30
    assert all(gone(int(process)) for process in pids.read_text().split())


def test_what_is_left_behind_is_ended(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    assert execute(["sh", "-c", f"sleep 60 > /dev/null 2>&1 & echo $! > {pids}"], limit_s=10).code == 0
    assert gone(int(pids.read_text()))


def test_endless_output_is_forgotten_beyond_a_limit() -> None:
    ended = execute([sys.executable, "-c", "import os\nfor _ in range(320): os.write(1, b'x' * 65536)"], limit_s=60)
    assert (ended.code, len(ended.stdout)) == (0, 16 << 20)


def test_a_program_that_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="No such file or directory"):
        execute([str(tmp_path / "none")], limit_s=10)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_us(folder: str, installed: Callable[..., Path], number: signal.Signals) -> None:
    """SIGTERM ends gdsctl as Ctrl-C does. Of SIGKILL only the file's folder may be left, not the program."""
    seen = installed("elbencho", "import time\nopen(SEEN, 'w').write(str(os.getpid()))\ntime.sleep(60)\n")
    script = (
        "import signal\n"
        "from gdsctl.probe.tools.run import prepared\nfrom gdsctl.probe.tools.tool import Work\n"
        "def end(*_): raise KeyboardInterrupt\n"
        "signal.signal(signal.SIGTERM, end)\n"
        f"with prepared('elbencho', None, Work(size_bytes=1 << 20, gpus=(0,)), {folder!r}) as ready: ready.run()\n"
    )
    ours = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 30
        while not (seen.exists() and seen.read_text()) and time.monotonic() < until:
            time.sleep(0.02)
        tool = int(seen.read_text())
        assert alive(tool)
        ours.send_signal(number)
        ours.wait(20)
    finally:
        ours.kill()
        ours.wait()
    assert gone(tool)
    if number != signal.SIGKILL:
        assert os.listdir(folder) == []

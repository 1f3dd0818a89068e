"""`gdsctl probe` as a user runs it: documents, exit codes, and nothing left behind however it ends."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest

from gdsctl.cli import run
from gdsctl.errors import RefusedError
from gdsctl.probe.target import create
from gdsctl.render.schemas import schema

COMMAND = [sys.executable, "-m", "gdsctl", "probe"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    try:
        descriptor, _ = create(str(tmp_path))
    except RefusedError:
        pytest.skip("the temporary folder's file system has no O_DIRECT")
    os.close(descriptor)
    return tmp_path


def gdsctl(*arguments: str | Path, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False, **more
    )


def test_the_document(folder: Path) -> None:
    done = gdsctl(
        folder, "--size", "8M", "--bs", "64k", "--rw", "randwrite", "--verify", "--engine", "posix", "--format", "json"
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    jsonschema.validate(found, schema("probe"))
    assert found["bytes"] == 8 << 20
    assert found["iops"] == pytest.approx(128 / found["seconds"], rel=0.01)
    assert found["throughput_gbs"] == pytest.approx((8 << 20) / found["seconds"] / 1e9, abs=1e-4)
    assert (found["engine"], found["rw"], found["block_bytes"], found["threads"]) == ("posix", "randwrite", 65536, 1)
    assert found["gpus"] == []
    assert found["verify"].pop("seed") != 1  # each run writes other contents
    assert found["verify"] == {"ok": True, "bytes": 8 << 20, "first_bad_offset": None, "kind": None, "found": None}
    latency = found["latency_us"]
    ordered = [latency[name] for name in ("min", "p50", "p90", "p99", "p99_9", "max")]
    assert ordered == sorted(ordered)
    assert os.listdir(folder) == []


def test_auto_says_why(folder: Path) -> None:
    done = gdsctl(folder, "--size", "1M", "--format", "json")
    found = json.loads(done.stdout)
    if found["engine"] == "posix":
        assert found["engine_because"].startswith("auto: ")


@pytest.mark.parametrize("engine", ["cufile", "bounce"])
def test_without_a_gpu_one_line_and_exit_3(folder: Path, engine: str) -> None:
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("there is a GPU")
    done = gdsctl(folder, "--engine", engine, "--size", "1M")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.count("\n") == 1
    assert "settle with: nvidia-smi" in done.stderr


def test_a_gpus_route_demanded_on_host_memory(folder: Path) -> None:
    done = gdsctl(folder, "--engine", "posix", "--size", "1M", "--require-path", "nvidia-fs")
    taken = done.returncode
    assert taken in (1, 3)  # 3 where this file system tells nothing of itself
    assert "nvidia-fs" in done.stderr if taken == 1 else "settle with" in done.stderr


def test_tmpfs_is_seen_through() -> None:
    """It takes O_DIRECT from Linux 6.6 on, and keeps every byte in the page cache."""
    if not os.path.isdir("/dev/shm"):
        pytest.skip("no /dev/shm")
    done = gdsctl("/dev/shm", "--engine", "posix", "--size", "1M", "--require-path", "host-direct")
    if "does not do direct I/O" in done.stderr:
        assert done.returncode == 5
    else:
        assert done.returncode == 1
        assert "the path was mixed" in done.stderr


def test_sweep(folder: Path) -> None:
    done = gdsctl(folder, "--sweep", "--duration", "0.2", "--size", "16M", "--engine", "posix")
    assert done.returncode == 0
    for size in ("4 KiB", "64 KiB", "1 MiB", "4 MiB", "16 MiB"):
        assert f"{size} " in done.stdout
    assert "█" in done.stdout
    assert "\x1b" not in done.stdout
    assert os.listdir(folder) == []


def test_the_workload_kv_cache(folder: Path) -> None:
    """33 MiB hold 8 chunks of 4 MiB: two for each of 4 sessions, each stored once and retrieved 3 times."""
    done = gdsctl(
        *(folder, "--size", "33M", "--workload", "kv-cache", "--bs", "4M", "--sessions", "4", "--rounds", "3"),
        *("--format", "json"),
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    jsonschema.validate(found, schema("probe"))
    assert [(row["operation"], row["threads"], row["requests"]) for row in found["requests"]] == [
        (operation, threads, 4 * (1 if operation == "store" else 3))
        for threads in (1, 2, 4, 8)
        for operation in ("store", "retrieve")
    ]
    assert (found["block_bytes"], found["files"], found["bytes"]) == (4 << 20, 8, 3 * 32 << 20)
    assert found["notes"][0].startswith("4 sessions of 8 MiB each")
    assert os.listdir(folder) == []


@pytest.mark.parametrize(
    ("more", "chunk", "files"),
    [
        (("--chunk-tokens", "100"), 819200, 5),
        (("--chunk-tokens", "200", "--tp", "2"), 819200, 5),
        (("--chunk-tokens", "10240", "--size", "160M"), 80 << 20, 2),
    ],
)
def test_chunks_of_a_model(folder: Path, more: tuple[str, ...], chunk: int, files: int) -> None:
    """2 layers x 2 (K and V) x 8 heads x 128 x 2 bytes = 8192 bytes a token; 100 tokens are 200 sectors of 4096.

    Of two GPUs each keeps four of the heads.
    """
    config = folder / "config.json"
    config.write_text(
        json.dumps(
            {
                "architectures": ["LlamaForCausalLM"],
                "model_type": "llama",
                "hidden_size": 1024,
                "num_hidden_layers": 2,
                "num_attention_heads": 8,
                "num_key_value_heads": 8,
                "head_dim": 128,
                "torch_dtype": "bfloat16",
            }
        )
    )
    done = gdsctl(
        *(folder, "--size", "4M", "--workload", "kv-cache", "--model", config, "--threads", "2"),
        *("--format", "json", *more),
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["block_bytes"], found["files"]) == (chunk, files)
    assert "percentiles of as few as 1 request tell little" in found["notes"][1]
    assert {row["threads"] for row in found["requests"]} == {2}


def test_a_mixed_run_over_several_files(folder: Path) -> None:
    done = gdsctl(
        *(
            folder,
            "--engine",
            "posix",
            "--rw",
            "randrw",
            "--mix",
            "75",
            "--size",
            "16M",
            "--bs",
            "64k",
            "--threads",
            "4",
        ),
        *("--files", "2", "--verify", "--format", "json"),
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    jsonschema.validate(found, schema("probe"))
    assert (found["files"], found["bytes"], found["verify"]["ok"]) == (2, 16 << 20, True)
    assert found["read"]["bytes"] + found["write"]["bytes"] == 16 << 20
    # 64 blocks a thread, of each hundred 75 are read: of the first 64 of them between 39 and 64
    assert 4 * 39 <= found["read"]["bytes"] >> 16 <= 4 * 64
    facts = {piece["fact"] for piece in found["path_taken"]["evidence"]}
    assert {"reads: page cache holds of the file", "writes: page cache holds of the file"} <= facts
    assert os.listdir(folder) == []


def test_repeats_and_combinations(folder: Path) -> None:
    done = gdsctl(
        *(folder, "--engine", "posix", "--size", "8M", "--bs", "64k,1M", "--threads", "1,2", "--repeat", "3"),
        *("--duration", "0.1", "--format", "json"),
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    jsonschema.validate(found, schema("probe"))
    rows = found["sweep"]
    assert [(row["block_bytes"], row["threads"]) for row in rows] == [
        (65536, 1), (65536, 2), (1 << 20, 1), (1 << 20, 2),
    ]  # fmt: skip
    for row in rows:
        spread = row["spread"]
        assert spread["min"] <= spread["median"] == row["throughput_gbs"] <= spread["max"]
        assert row["limiter"]["name"]
    assert found["throughput_gbs"] == max(row["throughput_gbs"] for row in rows)
    assert len(found["repeats"]) == 3
    assert found["throughput_gbs"] == sorted(run["throughput_gbs"] for run in found["repeats"])[1]


def test_a_rate(folder: Path) -> None:
    done = gdsctl(
        *(folder, "--engine", "posix", "--size", "8M", "--bs", "64k", "--rate", "2M", "--threads", "2"),
        *("--duration", "1", "--format", "json"),
    )
    found = json.loads(done.stdout)
    assert found["rate_gbs"] == pytest.approx((2 << 20) / 1e9)
    assert found["throughput_gbs"] <= 1.15 * found["rate_gbs"]
    assert found["limiter"]["name"] == "rate"


@pytest.mark.parametrize(("form", "begins"), [("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_a_picture(folder: Path, form: str, begins: bytes) -> None:
    pytest.importorskip("matplotlib")
    hostile = folder / "$x$ <b>&\x1b[31m"
    hostile.mkdir()
    drawn = folder / f"p.{form}"
    done = gdsctl(
        *(hostile, "--engine", "posix", "--size", "4M", "--bs", "64k,1M", "--duration", "0.1", "--plot", drawn)
    )
    assert done.returncode == 0, done.stderr
    assert drawn.read_bytes().startswith(begins)
    if form == "svg":
        text = "".join(ET.fromstring(drawn.read_bytes()).itertext())  # noqa: S314 -- our own
        assert "$x$ <b>&" in text
        assert "\x1b" not in text
        assert "64 KiB" in text


def test_a_picture_that_cannot_be_drawn_is_refused_first(folder: Path) -> None:
    started = time.monotonic()
    assert gdsctl(folder, "--engine", "posix", "--plot", folder / "p.txt", "--duration", "60").returncode == 2
    assert time.monotonic() - started < 20
    assert os.listdir(folder) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["--bs", "1000"],
        ["--bs", "128M"],
        ["--bs", "x"],
        ["--threads", "0"],
        ["--duration", "-1"],
        ["--size", "1k"],
        ["--gpu", "x"],
        ["--verify", "--allow-existing"],
        ["--rw", "scribble"],
        ["--workload", "kv-cache", "--sweep"],
        ["--workload", "kv-cache", "--rw", "rw"],
        ["--workload", "kv-cache", "--bs", "2G"],
        ["--workload", "kv-cache", "--tp", "2"],
        ["--sweep", "--bs", "4k"],
        ["--workload", "kv-cache", "--sessions", "2000"],
        ["--workload", "kv-cache", "--rounds", "0"],
        ["--workload", "kv-cache", "--chunk-tokens", "7"],
        ["--sessions", "2"],
        ["--workload", "kv-cache", "--rate", "1M"],
        ["--workload", "kv-cache", "--duration", "1"],
        ["--mix", "30"],
        ["--engine", "posix", "--gpu", "1"],
        ["--verify", "--compare", "posix"],
        ["--threads", "1,x"],
        ["--iodepth", ""],
        ["--bs", "4k,"],
        ["--numa", "x"],
        ["--numa", "4711"],
        ["--rate", "x"],
        ["--mix", "101"],
        ["--plot", "p.gif"],
        ["--plot", ""],
        ["--i-know-this-destroys-data", "/dev/null"],
    ],
)
def test_usage(folder: Path, arguments: list[str]) -> None:
    assert run(["probe", str(folder), *arguments]) == 2


def test_an_existing_file(folder: Path) -> None:
    file = folder / "data"
    content = os.urandom(2 << 20)
    with file.open("wb") as stream:
        stream.write(content)
        os.fsync(stream.fileno())
    refused = gdsctl(file, "--engine", "posix")
    assert refused.returncode == 2
    assert "--allow-existing" in refused.stderr
    assert gdsctl(file, "--engine", "posix", "--allow-existing", "--rw", "write").returncode == 2
    assert gdsctl(file, "--engine", "posix", "--allow-existing").returncode == 0
    assert file.read_bytes() == content


def test_an_existing_file_that_is_shorter(folder: Path) -> None:
    """7 blocks of 64 KiB and a rest: 448 KiB are read, in half a second more often than once."""
    file = folder / "data"
    file.write_bytes(os.urandom((7 << 16) + 4096))
    os.sync()
    asked = (file, "--engine", "posix", "--allow-existing", "--bs", "64k", "--format", "json")
    notes = {}
    for size, more in (("1M", ()), ("1M", ("--duration", "0.5")), ("448k", ("--duration", "0.5")), ("480k", ())):
        done = gdsctl(*asked, "--size", size, *more)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        notes[size, bool(more)] = [note for note in found["notes"] if "shorter than --size" in note]
        if (size, bool(more)) == ("1M", True):
            times = found["bytes"] / (7 << 16)
    assert notes["448k", True] == notes["480k", False] == []
    (once,), (often,) = notes["1M", False], notes["1M", True]
    assert once == f"{file} is shorter than --size: its 448 KiB in whole blocks were read"
    assert often == f"{once}, over and over: up to {times:.1f} times in a run"


def test_a_place_that_is_not_there(folder: Path) -> None:
    """As for --output and --plot the system refuses; what is read to be understood is another thing: 4."""
    places: list[list[str | Path]] = [[folder / "nosuch"], [folder, "--output", folder / "nosuch" / "x"]]
    if importlib.util.find_spec("matplotlib"):
        places.append([folder, "--plot", folder / "nosuch" / "x.svg"])
    for arguments in places:
        done = gdsctl(*arguments, "--engine", "posix", "--size", "1M")
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (5, "", 1)
        assert "ENOENT" in done.stderr
    done = gdsctl(folder, "--workload", "kv-cache", "--model", folder / "nosuch", "--size", "1M")
    assert done.returncode == 4


def test_a_limit_on_file_size_ends_with_its_name(folder: Path) -> None:
    """Stands for a full disk: the system refuses in the middle of it. EFBIG, since SIGXFSZ is ignored by Python."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, 4 << 20))

    done = gdsctl(folder, "--size", "64M", "--rw", "write", "--engine", "posix", preexec_fn=limit)
    assert done.returncode == 5
    assert "EFBIG" in done.stderr
    assert os.listdir(folder) == []


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[str]:
    """A loop device of 32 MiB."""
    image = tmp_path / "image"
    with image.open("wb") as stream:
        stream.truncate(32 << 20)
    made = (
        subprocess.run(["losetup", "--find", "--show", image], capture_output=True, text=True, check=False)
        if _root()
        else None
    )
    if made is None or made.returncode:
        pytest.skip("no loop devices here")
    yield made.stdout.strip()
    subprocess.run(["losetup", "--detach", made.stdout.strip()], check=True)


def test_a_block_device_given_up(loop: str) -> None:
    """Written only when its path is said twice, and never while it is in use (a loop device over it holds it)."""
    asked = [loop, "--engine", "posix", "--size", "16M", "--rw", "write", "--verify", "--format", "json"]
    assert gdsctl(*asked).returncode == 2
    assert gdsctl(*asked, "--i-know-this-destroys-data", f"{loop}x").returncode == 2
    assert Path(loop).read_bytes() == bytes(32 << 20)
    done = gdsctl(*asked, "--i-know-this-destroys-data", loop)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["verify"]["ok"]
    assert (found["bytes"], found["environment"]["device"]) == (16 << 20, os.path.basename(loop))
    assert found["path_taken"]["verdict"] == "mixed"  # losetup without --direct-io: its image is in the page cache
    written = Path(loop).read_bytes()
    assert any(written[:4096])
    assert not any(written[16 << 20 :])


def test_a_block_device_in_use(loop: str, tmp_path: Path) -> None:
    mount = tmp_path / "mount"
    mount.mkdir()
    if subprocess.run(["mkfs.ext4", "-q", loop], check=False).returncode:
        pytest.skip("no mkfs.ext4")
    subprocess.run(["mount", loop, mount], check=True)
    try:
        done = gdsctl(loop, "--engine", "posix", "--size", "4M", "--rw", "write", "--i-know-this-destroys-data", loop)
        assert done.returncode == 5
        assert "in use" in done.stderr
    finally:
        subprocess.run(["umount", mount], check=True)


def test_a_full_disk(tmp_path: Path) -> None:
    image, mount = tmp_path / "image", tmp_path / "mount"
    mount.mkdir()
    with image.open("wb") as stream:
        stream.truncate(32 << 20)
    made = subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], capture_output=True, check=False) if _root() else None
    if made is None or made.returncode or subprocess.run(["mount", "-o", "loop", image, mount], check=False).returncode:
        pytest.skip("no loop mounts here")
    try:
        done = gdsctl(mount, "--size", "1G", "--rw", "write", "--engine", "posix")
        assert done.returncode == 5
        assert "must stay free" in done.stderr
        done = gdsctl(mount, "--size", "4M", "--rw", "write", "--engine", "posix", "--require-path", "host-direct")
        assert done.returncode == 1, done.stderr
        assert "loop device" in done.stderr  # mount -o loop: without direct I/O on the image
        assert os.listdir(mount) == ["lost+found"]
    finally:
        subprocess.run(["umount", mount], check=True)


def _root() -> bool:
    return os.geteuid() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted(folder: Path, number: signal.Signals) -> None:
    with _started(
        *(folder, "--size", "16M", "--rw", "write", "--duration", "60", "--engine", "posix"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        _until_it_works(process)
        process.send_signal(number)
        out, said = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")
    assert said == b"gdsctl: interrupted\n"
    assert os.listdir(folder) == []


@contextlib.contextmanager
def _started(*arguments: object, stdout: int, stderr: int) -> Iterator[subprocess.Popen[bytes]]:
    """A probe that a failed test does not leave running, for the next test to find."""
    with subprocess.Popen([*COMMAND, *map(str, arguments)], stdout=stdout, stderr=stderr) as process:
        try:
            yield process
        finally:
            process.kill()


def _until_it_works(process: subprocess.Popen[bytes]) -> None:
    """Until its transfers show: it holds a deleted file open, and has a worker."""
    for _ in range(600):
        workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        if workers and any("(deleted)" in link for link in _open_files(process.pid)):
            return
        time.sleep(0.05)
    pytest.fail("the probe never began")


def _open_files(process: int) -> list[str]:
    links = []
    for name in os.listdir(f"/proc/{process}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            links.append(os.readlink(f"/proc/{process}/fd/{name}"))
    return links


KILLS = int(os.environ.get("GDSCTL_KILLS", "8"))
SHAPES = (
    ["--rw", "read"],
    ["--rw", "write", "--threads", "4"],
    ["--rw", "randrw", "--threads", "2", "--files", "2", "--verify"],
    ["--rw", "randwrite", "--iodepth", "8"],
    ["--workload", "kv-cache", "--bs", "256k"],
)
ENDS = (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGINT)


@pytest.mark.parametrize("seed", range(KILLS))
def test_ended_at_any_moment_nothing_stays(folder: Path, seed: int) -> None:
    """SIGKILL, which nobody can handle, and those that one can. GDSCTL_KILLS=200 for more.

    The kernel frees a file without a name; the workload's folder goes soon after, with the process that keeps it.
    """
    data = folder / "data"
    data.mkdir()
    with _started(
        *(data, "--size", "16M", "--engine", "posix", "--duration", "9", *SHAPES[seed % len(SHAPES)]),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        time.sleep(random.Random(seed).uniform(0, 2.5))  # noqa: S311 -- any moment will do
        process.send_signal(ENDS[seed // len(SHAPES) % len(ENDS)])
        process.wait(timeout=60)
    for _ in range(200):
        if not os.listdir(data) and not _at_work(str(data)):
            return
        time.sleep(0.05)
    pytest.fail(f"left behind: {os.listdir(data)}, processes {_at_work(str(data))}")


def _at_work(path: str) -> list[str]:
    """Processes with this path on their command line."""
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if path.encode() in words:
                found.append(pid)
    return found


@pytest.mark.parametrize("files", [5, 6, 8])
def test_few_open_files_leave_nothing(folder: Path, files: int) -> None:
    """Cleaning up needs some, too."""
    work = folder / "work"
    work.mkdir()
    gdsctl(
        *(work, "--workload", "kv-cache", "--bs", "64k", "--size", "2M"),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files)),
    )
    assert os.listdir(work) == []


def test_closed_streams_are_not_taken_by_files(folder: Path) -> None:
    """What a library prints to standard error would else go into the probe's own file, or tell the keeper to begin."""
    work, result = folder / "work", folder / "result"
    work.mkdir()
    closed = f"exec {' '.join(COMMAND)} '{work}' --size 4M --format json --output '{result}' \"$@\" <&- >&- 2>&-"
    for arguments in (["--rw", "randrw", "--verify"], ["--workload", "kv-cache", "--bs", "64k"]):
        done = subprocess.run(["bash", "-c", closed, "bash", *arguments], check=False, timeout=120)
        assert done.returncode == 0
        found = json.loads(result.read_text())
        assert found["verify"] is None or found["verify"]["ok"]
        assert os.listdir(work) == []


def test_a_name_that_is_not_utf_8(folder: Path) -> None:
    work = os.path.join(os.fsencode(folder), b"bad\xff")
    os.mkdir(work)
    done = gdsctl(os.fsdecode(work), "--engine", "posix", "--size", "1M", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["path"] == f"{folder}/bad\\xff"

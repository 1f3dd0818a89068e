"""Standard streams that are closed, full or of another locale, and --output to odd places: from outside, by a shell."""

from __future__ import annotations

import json
import os
import shlex
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

MODULES = "nvme 65536 3 - Live 0x0\n"
COMMAND = f"{shlex.quote(sys.executable)} -m gdsctl"
PARSE = f"{COMMAND} parse proc-modules"


def bash(script: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[bytes]:
    (cwd / "modules").write_text(MODULES)
    environment = {"PATH": os.environ["PATH"], "TMPDIR": str(cwd), **env}
    return subprocess.run(
        ["bash", "-c", script], capture_output=True, check=False, cwd=cwd, env=environment, input=b"", timeout=60
    )


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("parse proc-modules modules >&-", 5),
        ("parse proc-modules - <&-", 5),
        ("--version >&-", 5),
        ("explain nfs.tcp >&-", 5),
        ("explain nfs.tcp >/dev/full", 5),
        ("inspect --snapshot nosuch 2>&-", 4),
        ("inspect --snapshot nosuch 2>/dev/full", 4),
        ("plan -S example:vm-flattened -o plan 2>/dev/full", 1),
        ("plan -S example:vm-flattened -o plan 2> >(:)", 1),
        ("plan -S example:hgx-h100-vast --emit all --output-dir all 2>/dev/full", 0),
        ("snapshot node.tar -S example:nvme-unpatched 2>/dev/full", 0),
        ("parse proc-modules modules -o out <&- >&- 2>&-", 0),
    ],
)
def test_closed_and_full_streams(arguments: str, code: int, tmp_path: Path) -> None:
    done = bash(f"{COMMAND} {arguments}", tmp_path)
    assert done.returncode == code
    assert done.stderr.count(b"\n") == (1 if code == 5 else 0)
    assert not list(tmp_path.glob("gdsctl-fault-*"))
    if "-o out" in arguments:
        assert list(json.loads((tmp_path / "out").read_text())["modules"]) == ["nvme"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("parse proc-modules modules >&-", 5),
        ("parse proc-modules - <&-", 5),
        ("parse proc-modules modules 2>&- | true", 0),
        ("schema inspect | true", 0),
        ("--version >full", 5),
        ("parse proc-modules modules -o out <&- >&- 2>&-", 0),
        ("probe . --engine posix --size 1M --format json >probed", 0),
        ("inspect --format json >whole", 0),
    ],
)
def test_without_dev_null(arguments: str, code: int, tmp_path: Path) -> None:
    """As in some chroots and containers: /dev is empty but for a device that is always full."""
    if bash("unshare --mount --map-root-user true", tmp_path).returncode:
        pytest.skip("no namespace of mounts here")
    prepare = "touch full; mount --bind /dev/full full; mount -t tmpfs none /dev"
    done = bash(
        f"exec unshare --mount --map-root-user bash -c {shlex.quote(f'{prepare}; set -o pipefail; {COMMAND} {arguments}')}",
        tmp_path,
    )
    if arguments.startswith("probe") and b"O_DIRECT" in done.stderr:
        pytest.skip("the temporary folder's file system has no O_DIRECT")
    assert done.returncode == code, done.stderr
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr
    assert done.stderr.count(b"\n") == (1 if code == 5 else 0)
    assert not list(tmp_path.glob("gdsctl-fault-*"))


@pytest.mark.parametrize("place", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_output_to_what_is_open_already(place: str, tmp_path: Path) -> None:
    assert json.loads(bash(f"{PARSE} modules -o {place} | cat", tmp_path).stdout)
    (tmp_path / "log").write_text("old\n")
    bash(f"{PARSE} modules -o {place} >>log", tmp_path)
    first, _, rest = (tmp_path / "log").read_text().partition("\n")
    assert first == "old"
    assert json.loads(rest)


def test_a_new_file_gets_what_the_umask_leaves(tmp_path: Path) -> None:
    bash(f"umask 027; {PARSE} modules -o out", tmp_path)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o640


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_an_old_file_keeps_its_owner(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.touch()
    os.chown(out, 1234, 5678)
    assert bash(f"{PARSE} modules -o out", tmp_path).returncode == 0
    assert (out.stat().st_uid, out.stat().st_gid) == (1234, 5678)
    assert json.loads(out.read_text())


@pytest.mark.parametrize("out", ["modules/", "new/", "."])
def test_a_folder_is_no_output(out: str, tmp_path: Path) -> None:
    assert bash(f"{PARSE} modules -o {out}", tmp_path).returncode == 5
    assert (tmp_path / "modules").read_text() == MODULES
    assert [path.name for path in tmp_path.iterdir()] == ["modules"]


@pytest.mark.parametrize(
    "arguments",
    [
        "parse proc-modules modules -o modules",
        "parse proc-modules modules -o ../{name}/modules",
        "lint modules -o link",
        "app modules -o modules",
        "inspect -S modules -o modules",
        "verify -S example:nvme-unpatched -i modules -o modules",
        "diff example:nvme-unpatched modules -o modules",
    ],
)
def test_what_is_read_is_never_written_over(arguments: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("modules")
    done = bash(f"{COMMAND} {arguments.format(name=tmp_path.name)}", tmp_path)
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
    assert b"is what is read" in done.stderr
    assert (tmp_path / "modules").read_text() == MODULES


@pytest.mark.parametrize(
    "arguments", ["inspect -S ''", "parse lspci ''", "diff '' ''", "plan -i ''", "snapshot ''", "probe ''"]
)
def test_an_empty_name_is_a_usage_error(arguments: str, tmp_path: Path) -> None:
    done = bash(f"{COMMAND} {arguments}", tmp_path)
    assert done.returncode == 2
    assert b"is empty" in done.stderr


def test_a_locale_of_ascii(tmp_path: Path) -> None:
    """The folder's name has a letter that ASCII lacks: escaped in a report, as UTF-8 in JSON."""
    (tmp_path / "n\u00e9" / "proc").mkdir(parents=True)
    table = bash(f"{COMMAND} inspect -S n\u00e9", tmp_path, PYTHONIOENCODING="ascii", PYTHONUTF8="1")
    assert (table.returncode, table.stderr) == (0, b"")
    assert table.stdout.isascii()
    document = bash(f"{COMMAND} inspect -S n\u00e9 -f json", tmp_path, PYTHONIOENCODING="ascii", PYTHONUTF8="1")
    assert json.loads(document.stdout.decode())["source"]["path"] == "n\u00e9"


def test_out_of_memory_is_the_system_and_no_fault(tmp_path: Path) -> None:
    script = (
        "import sys; from gdsctl import cli; from gdsctl.cli import app\n"
        "def invoke(argv): raise MemoryError\n"
        "app.invoke = invoke; sys.exit(cli.run(['inspect']))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False, cwd=tmp_path, timeout=60)
    assert (done.returncode, done.stdout) == (5, b"")
    assert done.stderr == b"gdsctl: the system gives no more: out of memory\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("out", ["node.tar", "node"])
def test_no_signal_leaves_a_part_of_a_snapshot(number: signal.Signals, out: str, tmp_path: Path) -> None:
    """The signal comes once the temporary name stands."""
    script = (
        "import os, time\n"
        "from gdsctl import cli\n"
        "from gdsctl.source import writing\n"
        "members = writing._members\n"
        "def slow(capture):\n"
        "    yield from members(capture)\n"
        "    time.sleep(30)\n"
        "writing._members = slow\n"
        f"cli.main(['snapshot', {out!r}, '-S', 'example:nvme-unpatched'])\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path, stderr=subprocess.PIPE) as running:
        deadline = time.monotonic() + 30
        while not list(tmp_path.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert list(tmp_path.iterdir())
        running.send_signal(number)
        assert running.communicate(timeout=30)[1] == b"gdsctl: interrupted\n"
    assert running.returncode == 130
    assert list(tmp_path.iterdir()) == []


def test_numbers_beyond_any_float(tmp_path: Path) -> None:
    done = bash(f"{COMMAND} size --tokens-per-gib 1 --tokens {'9' * 400}", tmp_path)
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1

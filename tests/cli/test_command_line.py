"""The installed command from outside: a subprocess, a scrubbed environment, bytes in and bytes out."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from gdsctl.cli import run
from tests.builders import Machine

EXAMPLE = "example:nvme-unpatched"
ENVIRONMENT = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": "/nonexistent"}


def gdsctl(*arguments: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
    env = {**ENVIRONMENT, **more.pop("env", {})}
    return subprocess.run(
        [sys.executable, "-m", "gdsctl", *arguments], capture_output=True, check=False, env=env, timeout=120, **more
    )


def _one_line(stderr: bytes) -> str:
    text = stderr.decode()
    assert text.endswith("\n")
    assert text.count("\n") == 1
    return text


# --- usage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspekt"],
        ["inspect", "--formatt", "json"],
        ["inspect", "--format", "xml"],
        ["inspect", "--snapshot"],
        ["inspect", "surplus"],
        ["explain", "nothing"],
        ["explain", "acs.redirect-on-pat"],
        ["schema", "nothing"],
        ["parse", "gdschek", "-"],
        ["plan", "--mode", "magic"],
        ["plan", "--emit", "cufile.jsn"],
        ["snapshot", "assemble"],
        ["inspect", "--snapshot", "example:no-such-node"],
    ],
    ids=" ".join,
)
def test_usage_errors_are_one_line_and_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    stdout, stderr = capsys.readouterr()
    assert stdout == ""
    assert _one_line(stderr.encode()).startswith("gdsctl: ")


def test_a_usage_error_from_outside() -> None:
    done = gdsctl("inspect", "--formatt", "json")
    assert (done.returncode, done.stdout) == (2, b"")
    assert "--format" in _one_line(done.stderr)


def test_what_is_misspelt_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, meant in (
        (["explain", "acs.redirect-on-pat"], "acs.redirect-on-path"),
        (["explain", "multipath"], "nvme.native-multipath"),
        (["explain", "xyzzy"], "gdsctl explain lists them"),
        (["parse", "gdschek", "-"], "gdscheck"),
        (["inspekt"], "inspect"),
    ):
        assert run(arguments) == 2
        assert meant in capsys.readouterr().err


def test_explain_without_an_id_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split()[:2] == ["nvme.unpatched", "error"] for line in lines)
    assert run(["explain", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {"acs.redirect-on-path", "app.dram-staged"} <= {row["id"] for row in rows}
    assert all(row["problem"] for row in rows)


def _commands() -> list[list[str]]:
    import typer.main

    from gdsctl.cli.app import app

    found: list[list[str]] = []
    waiting: list[tuple[list[str], Any]] = [([], typer.main.get_command(app))]
    while waiting:
        words, command = waiting.pop()
        found.append(words)
        waiting += [([*words, name], below) for name, below in getattr(command, "commands", {}).items()]
    return found


@pytest.mark.parametrize("words", _commands(), ids=lambda words: " ".join(words) or "gdsctl")
def test_every_command_has_help(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*words, "--help"]) == 0
    stdout, stderr = capsys.readouterr()
    assert stdout.startswith(f"Usage: {' '.join(['gdsctl', *words])} ")
    assert stderr == ""
    assert run([*words, "-h"]) == 0
    assert capsys.readouterr().out == stdout


def test_version_the_same_by_every_way() -> None:
    done = gdsctl("--version")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"gdsctl ")
    beside = Path(sys.executable).with_name("gdsctl")
    if beside.exists():
        assert subprocess.run([beside, "--version"], capture_output=True, check=True).stdout == done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion_prints_a_script(shell: str) -> None:
    done = gdsctl("--show-completion", shell)
    if done.returncode:  # where the option takes no value it looks at the parent process, which may be no shell
        done = gdsctl(env={"_GDSCTL_COMPLETE": f"source_{shell}"})
    assert done.returncode == 0
    assert b"_GDSCTL_COMPLETE" in done.stdout or b"gdsctl" in done.stdout


# --- input -----------------------------------------------------------------------------------------------------------


def test_what_is_no_snapshot_is_exit_code_4(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    text = tmp_path / "text.tar.gz"
    text.write_text("no archive\n")
    for place in (tmp_path / "missing", empty, text):
        done = gdsctl("inspect", "--snapshot", str(place))
        assert (done.returncode, done.stdout) == (4, b"")
        assert _one_line(done.stderr).startswith(f"gdsctl: {place}: ")


def test_pasted_text_of_another_tool_is_exit_code_4_with_its_line(tmp_path: Path) -> None:
    paste = tmp_path / "paste.txt"
    paste.write_text("hello\n")
    done = gdsctl("parse", "gdscheck", str(paste))
    assert (done.returncode, done.stdout) == (4, b"")
    assert _one_line(done.stderr).startswith(f"gdsctl: {paste}:")


def test_parse_reads_standard_input() -> None:
    done = gdsctl("parse", "kernel-cmdline", "-", input=b"BOOT_IMAGE=/vmlinuz iommu=pt quiet\n")
    assert (done.returncode, done.stderr) == (0, b"")
    assert "iommu" in json.dumps(json.loads(done.stdout))


# --- output ----------------------------------------------------------------------------------------------------------


def test_one_document_on_stdout_and_nothing_on_stderr() -> None:
    as_json = gdsctl("inspect", "-S", EXAMPLE, "--format", "json")
    as_yaml = gdsctl("inspect", "-S", EXAMPLE, "--format", "yaml")
    assert (as_json.returncode, as_json.stderr) == (0, b"")
    assert (as_yaml.returncode, as_yaml.stderr) == (0, b"")
    document = json.loads(as_json.stdout)
    assert yaml.safe_load(as_yaml.stdout) == document
    assert document["schema_version"] == "1"
    assert gdsctl("inspect", "-S", EXAMPLE, "--format", "json").stdout == as_json.stdout


def test_a_pipe_gets_plain_text() -> None:
    done = gdsctl("inspect", "-S", EXAMPLE, env={"TERM": "xterm-256color", "COLORTERM": "truecolor"})
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\x1b" not in done.stdout
    assert max(map(len, done.stdout.decode().splitlines())) <= 100


def _on_terminal(arguments: Sequence[str], **environment: str) -> bytes:
    ours, theirs = pty.openpty()
    env = {**ENVIRONMENT, "TERM": "xterm-256color", **environment}
    with subprocess.Popen(
        [sys.executable, "-m", "gdsctl", *arguments], stdin=subprocess.DEVNULL, stdout=theirs, env=env
    ) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # EIO: the other end is closed
                break
            if not chunk:
                break
            shown += chunk
    os.close(ours)
    assert process.returncode == 0
    return shown


def test_colour_only_where_it_is_wanted() -> None:
    command = ["explain", "acs.redirect-on-path"]
    assert b"\x1b[1m" in _on_terminal(command)
    assert b"\x1b" not in _on_terminal(command, NO_COLOR="1")
    assert b"\x1b" not in _on_terminal([*command, "--no-color"])


def test_output_file_holds_the_same_document(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    done = gdsctl("inspect", "-S", EXAMPLE, "--format", "json", "--output", str(target))
    assert (done.returncode, done.stdout) == (0, b"")
    assert target.read_bytes() == gdsctl("inspect", "-S", EXAMPLE, "--format", "json").stdout
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_the_old_output_file_outlives_a_failure(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    target.write_text("old")
    bad = gdsctl("inspect", "-S", str(tmp_path / "missing"), "--output", str(target))
    assert bad.returncode == 4
    assert target.read_text() == "old"


def test_a_refused_output_is_exit_code_5(tmp_path: Path) -> None:
    for target in (tmp_path / "no" / "such" / "folder.json", tmp_path):
        done = gdsctl("inspect", "-S", EXAMPLE, "--format", "json", "--output", str(target))
        assert (done.returncode, done.stdout) == (5, b"")
        assert str(target) in _one_line(done.stderr)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_exit_code_5() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gdsctl", "inspect", "-S", EXAMPLE, "--format", "json"],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            env=ENVIRONMENT,
        )
    assert done.returncode == 5
    _one_line(done.stderr)


@pytest.mark.parametrize(
    "arguments", [["inspect", "-S", EXAMPLE], ["inspect", "-S", EXAMPLE, "-f", "json"], ["--help"]]
)
def test_a_reader_that_stops_early_is_no_error(arguments: list[str]) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "gdsctl", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        stderr = process.stderr.read()
    assert (process.wait(), stderr) == (0, b"")


def test_interrupt_is_exit_code_130(tmp_path: Path) -> None:
    """The input is a FIFO: opening its other end waits until gdsctl reads, so the signal finds it at work."""
    fifo, target = tmp_path / "fifo", tmp_path / "out.json"
    os.mkfifo(fifo)
    with subprocess.Popen(
        [sys.executable, "-m", "gdsctl", "parse", "gdscheck", str(fifo), "--output", str(target)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    ) as process:
        try:
            with open(fifo, "wb"):
                process.send_signal(signal.SIGINT)
                stdout, stderr = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, stdout) == (130, b"")
    assert stderr.decode().splitlines()[-1] == "gdsctl: interrupted"
    assert [path.name for path in tmp_path.iterdir()] == ["fifo"]


# --- hostile text ----------------------------------------------------------------------------------------------------

HOSTILE = "\x1b]0;owned\x07\x1b[31mred\x9b2J[red]bold[/red]\u202egnp\u2066\u200b\x7f\r"
_RAW = "\x1b\x07\x9b\u202e\u2066\u200b\x7f\r"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A node whose every free text is an attack on the terminal."""
    machine = Machine()
    switch = machine.switch(machine.root_port(machine.root("0000:17", numa=0)), ports=2)
    machine.gpu(switch.down[0])
    disk = machine.nvme(switch.down[1])
    folder = machine.write(tmp_path_factory.mktemp("hostile"))
    controller = (folder / "sys/bus/pci/devices" / disk.address).resolve() / "nvme/nvme0"
    escaped = "".join(f"\\{byte:03o}" if byte < 33 else chr(byte) for byte in f"/mnt/{HOSTILE}\n".encode()[:5])
    escaped += HOSTILE.replace("\x1b", "\\033").replace("\r", "\\012")
    files = {
        controller / "model": HOSTILE,
        controller / "transport": "pcie",
        controller / "nvme0n1/dev": "259:0",
        controller / "nvme0n1/size": "1000",
        folder / "proc/sys/kernel/osrelease": f"6.8.0-{HOSTILE}",
        folder / "proc/sys/kernel/hostname": HOSTILE,
        folder / "proc/cmdline": f"quiet {HOSTILE}",
        folder / "proc/self/mountinfo": f"30 1 259:0 / {escaped} rw - xfs /dev/nvme0n1 rw\n"
        f"31 1 0:40 / /nfs rw - nfs4 {HOSTILE}:/x rw,proto=tcp\n",
        folder / "proc/driver/nvidia/version": f"NVRM version: NVIDIA UNIX Open Kernel Module {HOSTILE}",
        folder / "etc/cufile.json": json.dumps({"properties": {HOSTILE: HOSTILE}}),
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() + b"\n")
    for link, target in (
        ("sys/class/nvme/nvme0", controller),
        ("sys/class/block/nvme0n1", controller / "nvme0n1"),
        ("sys/block/nvme0n1", controller / "nvme0n1"),
    ):
        place = folder / link
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(os.path.relpath(target, place.parent))
    return folder


@pytest.mark.parametrize("form", ["table", "json", "yaml"])
@pytest.mark.parametrize("command", ["inspect", "plan", "verify", "lint"])
def test_hostile_text_never_reaches_the_terminal_raw(hostile: Path, command: str, form: str) -> None:
    done = gdsctl(command, "-S", str(hostile), "--format", form)
    assert done.returncode in {0, 1, 3, 4}, done.stderr
    for stream in (done.stdout.decode(), done.stderr.decode()):
        assert sorted({hex(ord(character)) for character in _RAW if character in stream}) == []
    if command == "inspect":
        text = done.stdout.decode()
        assert "owned" in text
        if form == "table":
            assert "[red]bold[/red]" in "".join(line.strip() for line in text.splitlines())
        else:
            document = json.loads(text) if form == "json" else yaml.safe_load(text)
            assert document["nvme"][0]["model"] == HOSTILE.strip()


def test_hostile_names_on_the_command_line(tmp_path: Path) -> None:
    name = str(tmp_path / "\x1b[31m\u202e")
    done = gdsctl("inspect", "-S", name)
    assert done.returncode == 4
    assert "\x1b" not in done.stderr.decode()
    assert "\u202e" not in done.stderr.decode()
    done = gdsctl("explain", "\x1b[31m")
    assert done.returncode == 2
    assert b"\x1b" not in done.stderr

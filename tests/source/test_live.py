"""The running machine: never waits for ever, never fails on a path."""

# mypy: disable-error-code="union-attr,no-untyped-call,index"
# An answer of another kind than the expected one fails the test by itself.

from __future__ import annotations

import os
import time

import pytest

from gdsctl.source import commands, live
from gdsctl.source.base import Missing
from gdsctl.source.commands import Command
from gdsctl.source.live import LiveSource


@pytest.fixture
def source():
    return LiveSource()


def test_reads_this_machine(source):
    assert source.read("/proc/sys/kernel/ostype") == b"Linux\n"
    assert "self" in source.names("/proc")
    assert source.exists("/proc/self/status") is True
    assert source.real("/proc/mounts") == "/proc/self/mounts"
    assert source.real("/proc/self") == "/proc/self"
    assert source.info.host == os.uname().nodename


def test_what_is_not_there(source, tmp_path):
    for path in ("/sys/none", f"{tmp_path}/none", "/proc/a\0b", "/proc/\ud800"):
        assert (
            source.exists(path) in (False, Missing(status="absent", detail="embedded null byte"))
            or path[-1] == "\ud800"
        )
        for verb in (source.read, source.names, source.real):
            assert verb(path).status == "absent"


def test_links_are_followed_all_the_way(source, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "a" / "c").symlink_to("../nothing")
    assert source.real(f"{tmp_path}/b/c") == os.path.realpath(tmp_path) + "/nothing"
    assert source.real(f"{tmp_path}/b") == os.path.realpath(tmp_path) + "/a"


def test_a_dead_server_costs_the_deadline(source, monkeypatch):
    monkeypatch.setattr(live, "_PATIENCE_S", 0.1)
    monkeypatch.setattr(live, "read_file", lambda _: time.sleep(2))
    assert source.read("/mnt/dead/file").status == "timeout"


@pytest.fixture
def tool(monkeypatch, tmp_path):
    def make(script, timeout_s=5.0):
        path = tmp_path / "tool"
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(0o755)
        monkeypatch.setitem(commands.COMMANDS, "tool", Command(argvs=((str(path), "-x"),), timeout_s=timeout_s))

    return make


def test_commands(source, tool, tmp_path):
    tool('echo "$1 $LC_ALL"; echo oops >&2; exit 3')
    output = source.run("tool")
    assert (output.stdout, output.stderr, output.exit_code) == ("-x C\n", "oops\n", 3)
    tool("sleep 30 & sleep 30", 0.2)
    start = time.monotonic()
    assert LiveSource().run("tool").status == "timeout"
    assert time.monotonic() - start < 5
    tool("exec yes")
    assert LiveSource().run("tool") == Missing(
        status="error", detail=f"{tmp_path}/tool printed more than {live._OUTPUT_LIMIT} bytes"
    )


def test_commands_that_cannot_run(source, monkeypatch, tmp_path):
    monkeypatch.setitem(commands.COMMANDS, "tool", Command(argvs=(("no-such-tool-at-all",),)))
    assert source.run("tool").status == "no_tool"
    assert source.run("lsmod").status == "not_captured"  # only snapshots hold it

"""Lines in the form libcufile 1.20 wrote them; expectations read by eye."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdsctl.assess.rules import ids
from gdsctl.cli import run
from gdsctl.errors import InputError
from gdsctl.parse.cufile_log import MOST_ENTRIES, LogEntry, meaning, messages, parse

LOG = """\
 02-12-2026 09:05:11:7 [pid=4711 tid=4712] NOTICE  cufio-drv:847 running in compatible mode
 02-12-2026 09:05:11:120 [pid=4711 tid=4712] ERROR  cufio-drv:716 nvidia-fs.ko driver not loaded

 02-12-2026 09:05:12:0 [pid=4711 tid=4713] WARN   0:140 unable to load,  liburcu-bp.so.6
"""


def test_reads_lines() -> None:
    log = parse(LOG)
    assert log.lines == 3
    assert log.entries[0] == LogEntry(
        time="2026-12-02T09:05:11.007",
        pid=4711,
        tid=4712,
        level="NOTICE",
        where="cufio-drv:847",
        text="running in compatible mode",
        meaning="compat-mode",
    )
    assert [(entry.level, entry.where, entry.meaning) for entry in log.entries[1:]] == [
        ("ERROR", "cufio-drv:716", "nvidia-fs-not-loaded"),
        ("WARN", "0:140", None),
    ]
    assert log.levels == {"NOTICE": 1, "ERROR": 1, "WARN": 1}
    assert log.meanings == {"compat-mode": 1, "nvidia-fs-not-loaded": 1}
    assert (log.omitted, log.truncated, log.warnings) == (0, False, ())


def test_pasted_and_cut() -> None:
    log = parse("> \x1b[31m" + LOG.splitlines()[1].strip() + "\x1b[0m\n> some chatter\n 02-12-2026 09:0")
    assert [entry.text for entry in log.entries] == ["nvidia-fs.ko driver not loaded"]
    assert [warning.line for warning in log.warnings] == [2, 3]
    assert log.truncated


def test_counts_go_on_where_entries_are_omitted() -> None:
    lines = LOG.splitlines()
    log = parse("\n".join([lines[0]] + [lines[3]] * (MOST_ENTRIES + 5)))
    assert log.lines == MOST_ENTRIES + 6
    assert len(log.entries) == MOST_ENTRIES
    assert log.omitted == 6
    assert log.meanings == {"compat-mode": 1}


def test_empty_is_a_log_and_other_text_is_not() -> None:
    assert parse("\n").lines == 0
    with pytest.raises(InputError) as caught:
        parse("\nhello\nworld\n")
    assert caught.value.line == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cuFile using P2PDMA and compatible mode", "p2pdma-and-compat-configured"),
        ("cuFile using (NVME P2PDMA) and compatible mode", "p2pdma-and-compat-configured"),
        ("cuFile enabled with P2PDMA mode", "p2pdma-mode"),
        ("Kernel does not support PCIP2PDMA", "p2pdma-kernel-unsupported"),
        ("udev property not found: ID_FS_USAGE", "udev-property-missing"),
        ("nvidia_peermem.ko is not loaded. Disabling UserSpace RDMA access.", "peermem-not-loaded"),
        ("cuFile support has been disabled for block dev", "denied-by-configuration"),
        ("Loaded successfully CKIT library", None),
    ],
)
def test_meanings(text: str, expected: str | None) -> None:
    assert meaning(text) == expected


def test_meanings_are_named_once() -> None:
    names = [row.meaning for row in messages()]
    assert len(set(names)) == len(names)
    assert all(row.text and row.source for row in messages())


@settings(deadline=None, max_examples=60)
@given(st.text(max_size=200) | st.lists(st.sampled_from([*LOG.splitlines(), "x", "\0", "\ud800", ""])).map("\n".join))
def test_nothing_but_input_errors(text: str) -> None:
    try:
        log = parse(text)
    except InputError:
        return
    assert len(log.entries) + log.omitted + len(log.warnings) == log.lines


# What libcufile 1.11 to 1.20 says of the path it takes, each in a sentence of its own.
SAID = """\
running in compatible mode
forcing cufile into compatible mode
nvidia-fs.ko driver not loaded
nvidia-fs.ko driver access denied
nvidia-fs.ko driver not initialized
nvidia_fs driver version mismatch.
PCIP2PDMA is not enabled in the configuration
Kernel does not support PCIP2PDMA
Not all GPUs support PCIP2PDMA
NVMe Driver not registered with nvidia-fs!!!
detected compat-only file system
unknown NVMe transport type for device: nvme0n1
RAID level not supported by cuFile for RAID group : md0
md0 has P2PDMA flag but RAID PCI P2PDMA is disabled: 0
cuFile support has been disabled for filesystem
cuFile support has been disabled for block dev
cuFile support has been disabled for module
cuFile support has been disabled for current-mount
nvme0n1 with drive integrity check capalibility not supported!!
udev property not found: ID_FS_USAGE nvme0n1
No valid ip addresses specified for RDMA devices. Disabling GDS userspace RDMA access
nvidia_peermem.ko is not loaded. Disabling UserSpace RDMA access.
unable to load libcufile_rdma.so.1, libcufile_rdma.so.1: cannot open shared object file
cuFile property rdma_dev_addr_list not set,cannot compute best gpus for volume
cufile IO mode: POSIX
"""


def test_every_message_that_tells_a_path_is_known() -> None:
    assert [line for line in SAID.splitlines() if meaning(line) is None] == []
    log = parse("".join(f" 02-12-2026 09:05:11:7 [pid=1 tid=1] WARN  cufio:1 {line}\n" for line in SAID.splitlines()))
    assert sum(log.meanings.values()) == len(SAID.splitlines())


def test_messages_name_findings_that_exist() -> None:
    assert {name for row in messages() for name in row.findings} <= set(ids())
    assert meaning("udev property not found: MD_LEVEL md0") == "md-property-missing"


TWICE = """\
 01-12-2026 08:00:00:1 [pid=100 tid=100] ERROR  cufio-drv:716 nvidia-fs.ko driver not loaded
 01-12-2026 08:00:00:2 [pid=100 tid=100] NOTICE  cufio-drv:847 running in compatible mode
 02-12-2026 09:00:00:5 [pid=200 tid=201] INFO  cufio-drv:9 started
 02-12-2026 09:00:01:0 [pid=100 tid=100] INFO  cufio-drv:9 closing
 02-12-2026 09:00:02:0 [pid=200 tid=201] ERROR  cufio-udev:67 udev property not found: ID_FS_USAGE nvme0n1
"""


def test_the_state_is_what_the_last_process_wrote() -> None:
    log = parse(TWICE)
    assert [(run.pid, run.lines, run.first, run.last) for run in log.runs] == [
        (100, 3, "2026-12-01T08:00:00.001", "2026-12-02T09:00:01.000"),
        (200, 2, "2026-12-02T09:00:00.005", "2026-12-02T09:00:02.000"),
    ]
    assert log.runs[-1].meanings == {"udev-property-missing": 1}
    assert log.runs[-1].findings == ("container.no-udev",)
    assert log.runs[0].findings == ("nvidia-fs.not-loaded",)
    assert log.stale == 0


def test_stale_lines_are_left_out() -> None:
    by_process, by_time = parse(TWICE, pid=200), parse(TWICE, since="2026-12-02")
    for log in (by_process, by_time):
        assert log.meanings == {"udev-property-missing": 1}
        assert "nvidia-fs.ko driver not loaded" not in [entry.text for entry in log.entries]
    assert (by_process.lines, by_process.stale, len(by_process.entries)) == (5, 3, 2)
    assert (by_time.lines, by_time.stale, len(by_time.entries)) == (5, 2, 3)
    assert parse(TWICE, since="2027-01-01").stale == 5
    assert parse(TWICE, pid=200, since="2026-12-02T09:00:01").levels == {"ERROR": 1}


def test_many_processes_are_bounded() -> None:
    line = " 02-12-2026 09:05:11:7 [pid={0} tid=1] WARN  cufio:1 running in compatible mode\n"
    log = parse("".join(line.format(number) for number in range(500)))
    assert [run.pid for run in log.runs] == list(range(400, 500))
    assert log.meanings == {"compat-mode": 500}


def test_the_command_takes_a_process_and_a_time(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "cufile.log").write_text(TWICE)
    path = str(tmp_path / "cufile.log")
    assert run(["parse", "cufile-log", path, "--pid", "200", "--since", "2026-12-02T09:00:01"]) == 0
    assert json.loads(capsys.readouterr().out)["stale"] == 4
    assert run(["parse", "cufile-log", path, "--since", "yesterday"]) == 2
    assert run(["parse", "lsmod", path, "--pid", "1"]) == 2

"""Lines in the form libcufile 1.20 wrote them; expectations read by eye."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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

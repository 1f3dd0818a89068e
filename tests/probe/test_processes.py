"""Workers in processes: results in order, one start for all, and none that outlives its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from gdsctl.errors import RefusedError
from gdsctl.probe.processes import Line, together


def never(_: Any) -> bool:
    return False


def silent(_: int) -> None:
    return


def test_results_in_order_and_one_start() -> None:
    def work(connection: Connection) -> tuple[int, int]:
        line = Line(connection, lambda: None)
        return line.go(), os.getpid()

    before = time.perf_counter_ns()
    found = together([work] * 3, ended=never, moved=silent, patience_s=20)
    starts, processes = zip(*found, strict=True)
    assert len(set(starts)) == 1
    assert before < starts[0] < time.perf_counter_ns()
    assert len({*processes, os.getpid()}) == 4


def test_a_sum_of_what_was_moved_and_the_word_to_stop() -> None:
    heard: list[int] = []

    def fails(connection: Connection) -> None:
        Line(connection, lambda: None).go()
        raise RefusedError("no more")

    def goes_on(connection: Connection) -> str:
        told: list[bool] = []
        line = Line(connection, lambda: told.append(True))
        line.go()
        while not told:
            line.moved(7)
            time.sleep(0.01)
        return "stopped"

    found = together(
        [fails, goes_on], ended=lambda result: isinstance(result, Exception), moved=heard.append, patience_s=20
    )
    assert str(found[0]) == "no more"
    assert found[1] == "stopped"
    assert max(heard) == 7


def test_one_that_never_begins_ends_the_others() -> None:
    def refuses(_: Connection) -> None:
        raise RefusedError("no memory")

    def waits(connection: Connection) -> None:
        Line(connection, lambda: None).go()

    started = time.monotonic()
    found = together([waits, refuses], ended=lambda result: result is not None, moved=silent, patience_s=20)
    assert str(found[1]) == "no memory"
    assert time.monotonic() - started < 10


def test_a_worker_that_is_killed_is_told() -> None:
    began: list[set[int]] = []

    def killed(connection: Connection) -> None:
        Line(connection, lambda: None).go()
        os.kill(os.getpid(), signal.SIGKILL)

    before = _children()
    with pytest.raises(RefusedError, match="a worker process was ended by SIGKILL"):
        together([killed], ended=never, moved=silent, patience_s=20, begin=lambda: began.append(_children()))
    assert len(began[0] - before) == 1
    assert _children() == before  # it was reaped


def _children() -> set[int]:
    thread = threading.get_native_id()
    return {int(child) for child in Path(f"/proc/self/task/{thread}/children").read_text().split()}


def test_workers_end_with_their_parent() -> None:
    script = """
import os, sys, time
from gdsctl.probe.processes import together
def work(connection):
    os.write(1, f"{os.getpid()}\\n".encode())
    time.sleep(60)
together([work] * 2, ended=lambda _: False, moved=lambda _: None, patience_s=60)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        try:
            assert parent.stdout is not None
            workers = [int(parent.stdout.readline()) for _ in range(2)]
        finally:
            parent.kill()
    until = time.monotonic() + 30
    while any(map(_runs, workers)) and time.monotonic() < until:
        time.sleep(0.01)
    assert not any(map(_runs, workers))


def _runs(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


FOLDERS = """
import contextlib, os, signal, sys, time
from gdsctl.probe.target import own_folder

def children(process):
    return [int(child) for child in open(f"/proc/{process}/task/{process}/children").read().split()]

for number in range(1, signal.SIGRTMAX + 1):
    if number not in signal.valid_signals() or number in (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU):
        continue
    reading, writing = os.pipe()
    process = os.fork()
    if not process:
        for one in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(one, signal.SIG_DFL)
        with own_folder(sys.argv[1]) as folder:
            open(os.path.join(folder, "file"), "w").close()
            os.write(writing, b"x")
            time.sleep(20)
        os._exit(0)
    os.read(reading, 1)
    assert len(os.listdir(sys.argv[1])) == 1
    keepers = children(process)
    assert len(keepers) == 1
    for one in [process] if number == signal.SIGKILL else [*keepers, process]:
        os.kill(one, number)
    time.sleep(0.01)
    os.kill(process, signal.SIGKILL)  # those that are ignored by default
    os.waitpid(process, 0)
    until = time.monotonic() + 10
    while time.monotonic() < until and (os.listdir(sys.argv[1]) or os.path.exists(f"/proc/{keepers[0]}/fd/0")):
        time.sleep(0.01)
    print(number, os.listdir(sys.argv[1]))
"""


def test_a_folder_is_gone_whatever_signal_is_sent_to_all_processes(tmp_path: Path) -> None:
    """As `killall -s NAME gdsctl` does, the one that cleans up included; SIGKILL to the others, in turn."""
    done = subprocess.run([sys.executable, "-c", FOLDERS, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) > 50
    assert [line for line in lines if not line.endswith(" []")] == []

"""Time in which a run did not run is told apart from the storage's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gdsctl.errors import RefusedError
from gdsctl.probe.pauses import Pauses
from gdsctl.probe.target import create


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What time.perf_counter says, in its one place."""
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


@pytest.mark.parametrize(("took", "lost"), [(0.2, 0.0), (1.0, 0.0), (1.9, 0.0), (2.5, 2.5), (60.0, 60.0)])
def test_a_wait_of_a_second_that_took_longer(clock: list[float], took: float, lost: float) -> None:
    pauses = Pauses()
    clock[0] += took
    assert pauses.after(1.0) == pytest.approx(lost)
    clock[0] += 1.0
    assert pauses.after(1.0) == 0.0
    assert pauses.seconds == pytest.approx(lost)


def test_many_threads_make_each_other_late(clock: list[float]) -> None:
    pauses = Pauses(threads=500)
    clock[0] += 9.0
    assert pauses.after(1.0) == 0.0


def test_a_short_stop_shows_by_its_signal(clock: list[float]) -> None:
    pauses = Pauses()
    clock[0] += 0.4
    os.kill(os.getpid(), signal.SIGCONT)
    assert pauses.after(1.0) == pytest.approx(0.4)


@pytest.mark.parametrize("whole_group", [True, False], ids=["all", "a worker"])
def test_a_run_that_was_stopped_says_so(tmp_path: Path, whole_group: bool) -> None:
    try:
        os.close(create(str(tmp_path))[0])
    except RefusedError:
        pytest.skip("the temporary folder's file system has no O_DIRECT")
    arguments = ["--engine", "posix", "--size", "4M", "--duration", "2.5", "--rw", "write", "--format", "json"]
    command = [sys.executable, "-m", "gdsctl", "probe", str(tmp_path), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            worker = at_work(process.pid)
            if whole_group:
                os.killpg(process.pid, signal.SIGSTOP)
            else:
                os.kill(worker, signal.SIGSTOP)
            time.sleep(0.4)
            os.killpg(process.pid, signal.SIGCONT)
            found = json.loads(process.communicate(timeout=60)[0])
        finally:
            os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None
    assert process.returncode == 0
    assert any("was stopped" in note for note in found["notes"])


def at_work(process: int) -> int:
    """A child that has used some CPU time, as one has that moves blocks."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        for child in Path(f"/proc/{process}/task/{process}/children").read_text().split():
            fields = Path(f"/proc/{child}/stat").read_text().rpartition(") ")[2].split()
            if int(fields[11]) + int(fields[12]) >= 10:
                return int(child)
        time.sleep(0.02)
    pytest.fail("no worker began")

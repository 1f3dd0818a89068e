"""A FIFO or a terminal that nobody writes to: the user is told, and Ctrl-C ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

COMMANDS = (["lint"], ["parse", "lsmod"], ["plan", "-S", "example:nvme-unpatched", "--intent"], ["app"])


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_fifo_without_a_writer_is_told_and_ctrl_c_ends_it(command: list[str], tmp_path: Path) -> None:
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    line = [sys.executable, "-m", "gdsctl", *command, str(fifo)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        killer = threading.Timer(60, process.kill)
        killer.start()
        try:
            assert process.stderr is not None
            assert process.stderr.readline() == (
                f"gdsctl: waiting for {fifo}: nobody has written to it yet (Ctrl-C ends this)\n"
            )
            process.send_signal(signal.SIGINT)
            assert process.wait() == 130
        finally:
            killer.cancel()
            process.kill()


def test_a_fifo_with_a_writer_is_read(tmp_path: Path) -> None:
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    writer = threading.Thread(target=fifo.write_text, args=("Module Size Used by\nnvme 61440 3\n",), daemon=True)
    writer.start()
    line = [sys.executable, "-m", "gdsctl", "parse", "lsmod", str(fifo)]
    done = subprocess.run(line, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert '"nvme"' in done.stdout

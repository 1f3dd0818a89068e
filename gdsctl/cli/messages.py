"""What is told on standard error. A stream that takes nothing is no reason for a command to end otherwise."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO


def say(message: str) -> None:
    """One line, escaped. Where standard error is full or closed the exit code still tells."""
    from gdsctl.render.safe_text import safe

    try:
        sys.stderr.write(f"gdsctl: {safe(message)}\n")
        sys.stderr.flush()
    except OSError:
        swallow(sys.stderr)


def swallow(stream: TextIO) -> None:
    """A stream takes no more (`| head`, a full disk): keep the interpreter from complaining when it flushes at exit."""
    with contextlib.suppress(OSError):  # where the system gives no descriptor, either, the interpreter complains
        os.dup2(nowhere(), stream.fileno())


def nowhere() -> int:
    """A descriptor that takes everything and keeps nothing; in a root without /dev/null, memory that goes with it."""
    try:
        return os.open(os.devnull, os.O_WRONLY)
    except OSError:
        return os.memfd_create("gdsctl-nowhere")

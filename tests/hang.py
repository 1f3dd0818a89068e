"""A guard against code that would take for ever: by processor time, so that a busy machine does not matter."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def no_hang(cpu_seconds: float = 30.0) -> Iterator[None]:
    """Fails the test when the block burns that much processor time: quadratic work on the inputs used here does."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise AssertionError(f"still running after {cpu_seconds:g} s of processor time")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, cpu_seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)

"""Time in which a process did not run: stopped by a signal, frozen with its control group, or without a CPU.

The clock of a run, CLOCK_MONOTONIC, goes on meanwhile; only while the machine sleeps it stands still, too.
"""

from __future__ import annotations

import signal
import threading
import time

_LATE_S = 1.0
_TURN_S = 0.02


class Pauses:
    """Notices that a wait took longer than it should. `seconds`: of such waits, the most that can have
    been lost in them.
    """

    def __init__(self, threads: int = 0) -> None:
        """`threads`: that share the interpreter with the one that waits, and make it late by a turn each."""
        self.seconds = 0.0
        self._late_s = _LATE_S + threads * _TURN_S
        self._last = time.perf_counter()
        self._continued = False
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGCONT, self._sigcont)  # sent to whoever is to go on after SIGSTOP or SIGTSTP

    def _sigcont(self, *_: object) -> None:
        self._continued = True

    def begin(self) -> None:
        """From here on."""
        self._last = time.perf_counter()

    def after(self, wait_s: float) -> float:
        """Called after each wait of at most `wait_s`: how long it took, if something held it up, else 0."""
        now = time.perf_counter()
        took = now - self._last
        held_up = self._continued or took > wait_s + self._late_s
        self._last, self._continued = now, False
        if not held_up:
            return 0.0
        self.seconds += took
        return took


def slept_seconds() -> float:
    """That the machine has slept since it was started; the difference of two tells of the time between."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)

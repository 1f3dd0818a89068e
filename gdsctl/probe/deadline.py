"""System calls that a vanished server may hold for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from gdsctl.errors import RefusedError

T = TypeVar("T")

PATIENCE_S = 30.0


class Worker(threading.Thread):
    """A thread that does not keep the process from ending, and can be waited for after a signal's handler has raised.

    Thread.join cannot, before Python 3.13: interrupted, it takes a thread that still runs for one that has ended (what was
    done about bpo-45274).
    """

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self._done = threading.Event()

    def run(self) -> None:
        try:
            self._work()
        finally:
            self._done.set()

    def ended(self, within_s: float = 0.0) -> bool:
        return self._done.wait(within_s)


def within(what: str, function: Callable[[], T], seconds: float = PATIENCE_S) -> T:
    """The function's answer or exception. RefusedError where neither comes in time; the thread is then left behind."""
    answers: list[T] = []
    errors: list[BaseException] = []

    def attempt() -> None:
        try:
            answers.append(function())
        except BaseException as error:  # noqa: BLE001 -- handed to the caller, who waits
            errors.append(error)

    worker = Worker(attempt)
    worker.start()
    try:
        worker.ended(seconds)
    except BaseException:
        worker.ended(2.0)  # interrupted: let it finish what it began, such as taking a name away again
        raise
    if answers:
        return answers[0]
    if errors:
        raise errors[0]
    raise RefusedError(f"{what}: no answer within {seconds:g} s; is the storage still there?")

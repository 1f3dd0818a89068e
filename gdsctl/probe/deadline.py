"""System calls that a vanished server may hold for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from gdsctl.errors import RefusedError

T = TypeVar("T")

PATIENCE_S = 30.0


def within(what: str, function: Callable[[], T], seconds: float = PATIENCE_S) -> T:
    """The function's answer or exception. RefusedError where neither comes in time; the thread is then left behind."""
    answers: list[T] = []
    errors: list[BaseException] = []

    def attempt() -> None:
        try:
            answers.append(function())
        except BaseException as error:  # noqa: BLE001 -- handed to the caller, who waits
            errors.append(error)

    worker = threading.Thread(target=attempt, daemon=True)
    worker.start()
    try:
        worker.join(seconds)
    except BaseException:
        worker.join(2.0)  # interrupted: let it finish what it began, such as taking a name away again
        raise
    if answers:
        return answers[0]
    if errors:
        raise errors[0]
    raise RefusedError(f"{what}: no answer within {seconds:g} s; is the storage still there?")

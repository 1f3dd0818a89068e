"""Libraries that may never answer, asked in a thread that is left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from gdsctl.source.base import Missing

T = TypeVar("T")


def within(seconds: float, name: str, function: Callable[[], T | Missing]) -> T | Missing:
    """The function's answer; its exception as Missing(error); Missing(timeout) where none of both comes in time."""
    box: list[T | Missing] = []

    def attempt() -> None:
        try:
            box.append(function())
        except Exception as error:  # noqa: BLE001 - a driver's library may raise anything, and no answer is an answer
            box.append(Missing(status="error", detail=f"{name}: {type(error).__name__}: {error}"))

    worker = threading.Thread(target=attempt, daemon=True)
    worker.start()
    worker.join(seconds)
    return box[0] if box else Missing(status="timeout", detail=f"{name} gave no answer within {seconds:g} s")

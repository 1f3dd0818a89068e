"""cuFileBatchIOSubmit: one call for several blocks, cuFileBatchIOGetStatus for those that are done."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence

from gdsctl.probe.libcufile import (
    BATCH,
    COMPLETE,
    PENDING,
    READ,
    UNFINISHED,
    WRITE,
    Caller,
    Error,
    IOEvents,
    IOParams,
    Timespec,
)
from gdsctl.probe.queued import Move


class BatchQueue:
    """A batch of its own for each thread. More than io_batchsize blocks (128, at most 256) are refused by the library."""

    def __init__(self, caller: Caller, handle: ctypes.c_void_p, devices: Sequence[int], block: int) -> None:
        """`devices`: GPU memory of one block for each slot."""
        self._caller = caller
        self._library = caller.library
        self._devices = devices
        self._batch = ctypes.c_void_p()
        caller.must("cuFileBatchIOSetUp", ctypes.byref(self._batch), len(devices))
        self._params = (IOParams * len(devices))()
        for params in self._params:
            params.mode, params.fh, params.size = BATCH, handle, block
        self._events = (IOEvents * len(devices))()
        self._count = ctypes.c_uint()

    def submit(self, moves: Sequence[Move]) -> None:
        for params, move in zip(self._params, moves, strict=False):
            params.devPtr_base = self._devices[move.slot]
            params.file_offset = move.offset
            params.opcode = READ if move.reads else WRITE
            params.cookie = move.slot
        self._check(self._library.cuFileBatchIOSubmit(self._batch, len(moves), self._params, 0))

    def done(self, until_ns: int | None) -> list[tuple[int, int | OSError]]:
        found: list[tuple[int, int | OSError]] = []
        while not found:
            timeout = None
            if until_ns is not None:
                left = max(0, until_ns - time.perf_counter_ns())
                timeout = ctypes.byref(Timespec(*divmod(left, 1_000_000_000)))
            self._count.value = len(self._events)
            self._check(
                self._library.cuFileBatchIOGetStatus(self._batch, 1, ctypes.byref(self._count), self._events, timeout)
            )
            found = [
                (event.cookie, self._result(event))
                for event in self._events[: self._count.value]
                if not event.status & PENDING
            ]
            if until_ns is not None and time.perf_counter_ns() >= until_ns:
                break
        return found

    def close(self) -> None:
        self._library.cuFileBatchIOCancel(self._batch)
        self._library.cuFileBatchIODestroy(self._batch)

    def _check(self, error: Error) -> None:
        if error.err:
            raise self._caller.failed(-abs(error.err))

    def _result(self, event: IOEvents) -> int | OSError:
        if event.status == COMPLETE:
            return self._caller.failed(event.ret) if event.ret < 0 else int(event.ret)
        name = UNFINISHED.get(event.status, f"status {event.status}")
        why = self._caller.failed(event.ret) if event.ret < -1 else None
        return OSError(why.errno if why else 0, f"{name}{f': {why.strerror}' if why else ''}")

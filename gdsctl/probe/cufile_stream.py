"""cuFileReadAsync and cuFileWriteAsync: each block in a CUDA stream of its own, as a program's own copies would be."""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections import deque
from collections.abc import Sequence

from gdsctl.probe.cuda import Cuda
from gdsctl.probe.libcufile import FIXED, PAGE_ALIGNED, Caller
from gdsctl.probe.queued import Move

_PAGE = 4096
_LOOK_EVERY_S = 20e-6


class StreamQueue:
    """The stream that was given work first is waited for, then the others are asked: a block that overtook it is seen
    to be done when it is.
    """

    def __init__(self, caller: Caller, cuda: Cuda, handle: ctypes.c_void_p, devices: Sequence[int], block: int) -> None:
        """`devices`: GPU memory of one block for each slot."""
        self._caller = caller
        self._library = caller.library
        self._cuda = cuda
        self._handle = handle
        self._devices = devices
        # The library reads the size and both offsets, and writes the result, while the stream runs: they must stay.
        self._size = ctypes.c_size_t(block)
        self._none = ctypes.c_int64(0)
        self._offsets = (ctypes.c_int64 * len(devices))()
        self._moved = (ctypes.c_ssize_t * len(devices))()
        self._streams: list[ctypes.c_void_p] = []
        self._under_way: deque[int] = deque()
        for _ in devices:
            self._streams.append(cuda.new_stream())
            caller.must("cuFileStreamRegister", self._streams[-1], FIXED | (0 if block % _PAGE else PAGE_ALIGNED))

    def submit(self, moves: Sequence[Move]) -> None:
        for slot, offset, reads in moves:
            self._offsets[slot], self._moved[slot] = offset, 0
            call = self._library.cuFileReadAsync if reads else self._library.cuFileWriteAsync
            at = slot * 8
            result = call(
                self._handle,
                self._devices[slot],
                ctypes.byref(self._size),
                ctypes.byref(self._offsets, at),
                ctypes.byref(self._none),
                ctypes.byref(self._moved, at),
                self._streams[slot],
            )
            if result.err:
                raise self._caller.failed(-abs(result.err))
            self._under_way.append(slot)

    def done(self, until_ns: int | None) -> list[tuple[int, int | OSError]]:
        if until_ns is None:
            self._cuda.wait_for(self._streams[self._under_way[0]])
        while True:
            found = [slot for slot in self._under_way if self._cuda.idle(self._streams[slot])]
            if found or (until_ns is not None and time.perf_counter_ns() >= until_ns):
                break
            time.sleep(_LOOK_EVERY_S)
        for slot in found:
            self._under_way.remove(slot)
        return [
            (slot, self._caller.failed(self._moved[slot]) if self._moved[slot] < 0 else self._moved[slot])
            for slot in found
        ]

    def close(self) -> None:
        for stream in self._streams:
            with contextlib.suppress(OSError):
                self._cuda.wait_for(stream)
            self._library.cuFileStreamDeregister(stream)
            self._cuda.end_stream(stream)

"""O_DIRECT between the file and aligned host memory: preadv and pwritev, or io_uring for a queue of blocks."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import os

from gdsctl.probe import uring
from gdsctl.probe.engine import Job, Lane, OneAtATime, Uncounted


class HostBuffer:
    """Pages of our own: aligned as every device wants it, and filled, so that the first transfer does not fault them in."""

    def __init__(self, size_bytes: int) -> None:
        self._pages = mmap.mmap(-1, size_bytes)
        with contextlib.suppress(OSError):  # a kernel without huge pages
            self._pages.madvise(mmap.MADV_HUGEPAGE)
        for page in range(0, size_bytes, mmap.PAGESIZE):
            self._pages[page] = 1
        self.view = memoryview(self._pages)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._pages))

    def load(self, content: bytearray) -> None:
        self.view[: len(content)] = content

    def address(self) -> int:
        return self._address


class PosixEngine(Uncounted):
    """Host memory only: tells what the storage gives, not what a GPU gets."""

    name = "posix"
    forks = True
    mixes_in_queue = True

    def __init__(self, iodepth: int) -> None:
        found = uring.support() if iodepth > 1 else uring.Support(usable=False)
        self.queues, self.why_no_queue = found.usable, found.why
        self.how = "io_uring" if found.usable else "preadv/pwritev"

    def lane(self, job: Job) -> Lane:
        if job.iodepth > 1 and self.queues:
            return uring.QueueLane(job, HostBuffer(job.block_bytes * job.iodepth))
        buffer = HostBuffer(job.block_bytes)
        call = os.preadv if job.direction == "read" else os.pwritev
        return OneAtATime(job, functools.partial(call, job.descriptor, [buffer.view]), buffer)

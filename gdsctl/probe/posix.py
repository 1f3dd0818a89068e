"""O_DIRECT between the file and aligned host memory: preadv and pwritev, or io_uring for a queue of blocks."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import os
from collections.abc import Callable, Sequence

from gdsctl.probe import uring
from gdsctl.probe.engine import Job, Joined, Lane, OneAtATime, Uncounted

_HUGE_PAGE = 2 << 20
"""Of x86-64, and of Arm with 4 KiB pages; elsewhere only an alignment."""


def memory_bytes(size_bytes: int) -> int:
    """What a buffer of this size takes: whole huge pages."""
    return -(-size_bytes // _HUGE_PAGE) * _HUGE_PAGE


class HostBuffer:
    """Pages of our own: aligned as every device wants it, and filled, so that the first transfer does not fault them in.

    Private and on a huge page's boundary: only there does the kernel give huge pages by default, and it pins one of
    them for each transfer instead of hundreds, which is most of what a large block costs in CPU.
    """

    def __init__(self, size_bytes: int) -> None:
        self._pages = mmap.mmap(-1, memory_bytes(size_bytes) + _HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with contextlib.suppress(OSError):  # a kernel without huge pages
            self._pages.madvise(mmap.MADV_HUGEPAGE)
        first = ctypes.addressof(ctypes.c_char.from_buffer(self._pages))
        start = -first % _HUGE_PAGE
        for page in range(start, start + size_bytes, mmap.PAGESIZE):
            self._pages[page] = 1
        self.view = memoryview(self._pages)[start : start + size_bytes]
        self._address = first + start

    def load(self, content: bytearray) -> None:
        self.view[: len(content)] = content

    def address(self) -> int:
        return self._address


class PosixEngine(Uncounted):
    """Host memory only: tells what the storage gives, not what a GPU gets."""

    name = "posix"
    forks = True
    mixes_in_queue = True

    def __init__(self, iodepth: int, *, shared: bool = False) -> None:
        """`shared`: are there threads that share a process?"""
        found = uring.support()
        self.queues, self.why_no_queue = found.usable, found.why
        self.how = "io_uring" if found.usable and iodepth > 1 else "preadv/pwritev"
        if found.usable and iodepth == 1 and shared:
            self.how += ", io_uring for threads that share a CPU"

    def lane(self, job: Job) -> Lane:
        if job.iodepth > 1 and self.queues:
            return uring.QueueLane(job, HostBuffer(job.block_bytes * job.iodepth))
        buffer = HostBuffer(job.block_bytes)
        call = os.preadv if job.direction == "read" else os.pwritev
        return OneAtATime(job, functools.partial(call, job.descriptor, [buffer.view]), buffer)

    def joined(self, jobs: Sequence[Job]) -> Callable[[], Joined] | None:
        """Threads of one process wait for its interpreter between two blocks, and wake up to caches gone cold."""
        alike = all(job.plain and job.iodepth == 1 and not job.after_ns and job.cpus == jobs[0].cpus for job in jobs)
        if len(jobs) == 1 or not alike or not self.queues:
            return None
        return lambda: uring.StreamsLane(jobs, HostBuffer(jobs[0].block_bytes * len(jobs)))

"""O_DIRECT into page-locked host memory, then a copy to the GPU: what cuFile has to beat."""

from __future__ import annotations

import functools
import os

from gdsctl.probe.cuda import Cuda, GpuBuffer
from gdsctl.probe.engine import Job, Lane, OneAtATime, Uncounted


class BounceEngine(Uncounted):
    name = "bounce"
    how = "preadv/pwritev and cuMemcpyAsync through page-locked memory, a stream a thread"
    queues = False
    why_no_queue = "each thread copies its own block"

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda

    def lane(self, job: Job) -> Lane:
        self._cuda.use(job.gpu or 0)
        return _BounceLane(job, GpuBuffer(self._cuda, job.block_bytes, pinned=True))


class _BounceLane(OneAtATime):
    def __init__(self, job: Job, buffer: GpuBuffer) -> None:
        self._gpu = buffer
        call = os.preadv if job.direction == "read" else os.pwritev
        self._move = functools.partial(call, job.descriptor, [buffer.host.view])
        super().__init__(job, self._in if job.direction == "read" else self._out, buffer)

    def _in(self, offset: int) -> int:
        moved = self._move(offset)
        self._gpu.push()
        return moved

    def _out(self, offset: int) -> int:
        self._gpu.pull()
        return self._move(offset)

    def close(self) -> None:
        self._gpu.close()

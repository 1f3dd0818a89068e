"""NVIDIA's libcufile, run with a private configuration so that it tells what it did."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gdsctl.errors import GdsctlError, RefusedError, UndecidedError
from gdsctl.probe.cuda import Cuda, GpuBuffer
from gdsctl.probe.cufile_batch import BatchQueue
from gdsctl.probe.cufile_settings import STATS_LEVEL, CufileSettings
from gdsctl.probe.cufile_stream import StreamQueue
from gdsctl.probe.deadline import within
from gdsctl.probe.engine import CufileCounts, Direction, Job, Lane, OneAtATime
from gdsctl.probe.libcufile import (
    CALLS,
    MAX_GPUS,
    OPAQUE_FD,
    Api,
    Descr,
    Error,
    Handle,
    Level1,
    failed,
    level3,
    load,
    named,
)
from gdsctl.probe.queued import Queue, QueuedLane, one_by_one

_OPEN_PATIENCE_S = 120.0  # it looks at all PCI functions, and opens RDMA devices


class NotDirectError(GdsctlError):
    """Compat mode was forbidden and the library would not go on: the bytes cannot take the path demanded."""

    exit_code = 1


class CufileEngine:
    """libcufile's synchronous, batch or stream calls. Raises UndecidedError where there is no library, or one too old,
    RefusedError where it refuses.

    `strict`: without compat mode; `compat`: in nothing but compat mode, the baseline of the other; unless `registered`
    the library moves blocks through buffers of its own.
    """

    forks = False
    why_no_queue = "the synchronous calls of libcufile take one block each"

    def __init__(
        self,
        cuda: Cuda,
        gpu: int,
        configuration: dict[str, Any],
        library: str | None,
        *,
        strict: bool,
        api: Api = "sync",
        registered: bool = True,
        compat: bool = False,
    ) -> None:
        """`configuration`: merged values of the node's cufile.json; `library`: where the node has it."""
        _require_modules_file()
        self.name = "compat" if compat else "cufile"
        self.queues = self.mixes_in_queue = api != "sync"
        self._cuda = cuda
        self._api = api
        self._registered = registered
        self._lock = threading.Lock()
        self._handles: dict[int, ctypes.c_void_p] = {}
        self._before: ctypes.Structure | None = None
        self._gpu = gpu
        self.strict = strict
        self._settings = CufileSettings(configuration, strict=strict, compat=compat)
        try:
            for name, value in self._settings.environment.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
            self.compat_allowed: bool | None = self._settings.compat_allowed
            self.library, release = load(library, api)
            buffers = "registered buffers" if registered else "buffers not registered"
            self.how = ", ".join([release, CALLS[api], buffers, *(["compat mode forced"] if compat else [])])
            with _stdout_aside():
                within("cuFileDriverOpen", self._open, _OPEN_PATIENCE_S)
            self._count()
        except BaseException:
            self._settings.close()
            raise

    def _open(self) -> None:
        """In one thread: the library takes the context that is current there."""
        self._cuda.use(self._gpu)
        self.must("cuFileDriverOpen")

    def _count(self) -> None:
        """Statistics at their full level; before 1.15 the library cannot be asked for them."""
        self._level3 = None
        if hasattr(self.library, "cuFileGetStatsL3"):
            self.library.cuFileSetStatsLevel.restype = self.library.cuFileStatsStart.restype = Error
            self.library.cuFileGetStatsL3.restype = Error
            if not (self.library.cuFileSetStatsLevel(STATS_LEVEL).err or self.library.cuFileStatsStart().err):
                self._level3 = level3(vectored=hasattr(self.library, "cuFileReadv"))

    def must(self, name: str, *arguments: Any) -> None:
        result = getattr(self.library, name)(*arguments)
        if result.err:
            cuda = f", CUDA error {result.cu_err}" if result.cu_err else ""
            what = f"{name}: {named(result.err)}{cuda}{self._said()}"
            if self.strict:
                raise NotDirectError(f"not the path demanded; compat mode forbidden, libcufile refuses: {what}")
            raise RefusedError(what)

    def failed(self, result: int) -> OSError:
        error = failed(result)
        return OSError(error.errno, f"{error.strerror}{self._said()}")

    def _said(self) -> str:
        """The last error of the library's log, or warning where there is none."""
        lines = sorted(self.log_lines(), key=lambda line: line.startswith("ERROR"))
        return f"; cufile.log: {lines[-1]}" if lines else ""

    def lane(self, job: Job) -> Lane:
        self._cuda.use(job.gpu or 0)
        handle, block = self._handle(job.descriptor), job.block_bytes
        with contextlib.ExitStack() as stack:
            buffers = [stack.enter_context(self._buffer(block)) for _ in range(job.iodepth if self.queues else 1)]
            devices = [buffer.device for buffer in buffers]
            if self._api == "sync":
                return _Lane(job, self._transfer(job, handle, devices[0]), buffers[0], stack.pop_all().close)
            queue: Queue
            if self._api == "batch":
                queue = BatchQueue(self, handle, devices, block)
            else:
                queue = StreamQueue(self, self._cuda, handle, devices, block)
            stack.callback(queue.close)
            if job.iodepth == 1:
                waits = one_by_one(queue, reads=job.direction == "read")
                return _Lane(job, waits, buffers[0], stack.pop_all().close)
            return QueuedLane(job, queue, buffers, stack.pop_all().close)

    @contextlib.contextmanager
    def _buffer(self, size_bytes: int) -> Iterator[GpuBuffer]:
        """Each block has memory of its own: a part of a larger buffer may go through the library's own buffers."""
        with contextlib.closing(GpuBuffer(self._cuda, size_bytes, pinned=False)) as buffer:
            if not self._registered:
                yield buffer
                return
            self.must("cuFileBufRegister", buffer.device, size_bytes, 0)
            try:
                yield buffer
            finally:
                self.library.cuFileBufDeregister(buffer.device)

    def _transfer(self, job: Job, handle: ctypes.c_void_p, address: int) -> Callable[[int], int]:
        call = self.library.cuFileRead if job.direction == "read" else self.library.cuFileWrite
        device, block = ctypes.c_void_p(address), ctypes.c_size_t(job.block_bytes)

        def transfer(offset: int) -> int:
            moved: int = call(handle, device, block, offset, 0)
            if moved < 0:
                raise self.failed(moved)
            return moved

        return transfer

    def joined(self, jobs: Sequence[Job]) -> None:
        """A thread each."""

    def introduce(self, descriptor: int) -> None:
        """Register a file. The library opens it a second time, by the name that /proc/self/fd has for it (else 5031)."""
        self._cuda.use(self._gpu)
        self._handle(descriptor)

    def _handle(self, descriptor: int) -> ctypes.c_void_p:
        """A file is registered once; a second time is an error."""
        with self._lock:
            if descriptor not in self._handles:
                handle = ctypes.c_void_p()
                wanted = Descr(type=OPAQUE_FD, handle=Handle(fd=descriptor), fs_ops=None)
                self.must("cuFileHandleRegister", ctypes.byref(handle), ctypes.byref(wanted))
                self._handles[descriptor] = handle
            return self._handles[descriptor]

    def begin(self) -> None:
        self._before = self._statistics()

    def _statistics(self) -> Any:
        if self._level3 is None:
            return None
        found = self._level3()
        return None if self.library.cuFileGetStatsL3(ctypes.byref(found)).err else found

    def counts(self, direction: Direction) -> CufileCounts | None:
        """Blocks by path since begin(), all GPUs together; None where the library does not tell.

        A batch is counted apart from the GPUs' calls (seen in 1.15 to 1.20), and both directions together.
        """
        now, before = self._statistics(), self._before
        if now is None or before is None:
            return None
        if self._api == "batch":
            return _batch_counts(before.basic, now.basic)
        row = "reads" if direction == "read" else "writes"

        def added(name: str) -> int:
            sums = [
                sum(getattr(gpu, f"{row}_{name}") for gpu in found.per_gpu[: min(found.num_gpus, MAX_GPUS)])
                for found in (now, before)
            ]
            return int(sums[0] - sums[1])

        return CufileCounts(nvidia_fs=added("nvfs"), p2p=added("p2p"), posix=added("posix"), total=added("total"))

    def log_lines(self) -> tuple[str, ...]:
        return self._settings.log_lines()

    def close(self) -> None:
        with _stdout_aside():
            for handle in self._handles.values():
                self.library.cuFileHandleDeregister(handle)
            close = getattr(self.library, "cuFileDriverClose_v2", None) or self.library.cuFileDriverClose
            close()
        self._settings.close()


def _batch_counts(before: Level1, now: Level1) -> CufileCounts | None:
    """Libaio and io_uring carry what goes through host memory. None where the paths' counts overlap."""

    def added(name: str) -> int:
        return int(getattr(now, f"batch_{name}_submit").ok - getattr(before, f"batch_{name}_submit").ok)

    counts = CufileCounts(
        nvidia_fs=added("nvfs"), p2p=added("p2p"), posix=added("aio") + added("iouring"), total=added("total")
    )
    return counts if counts.nvidia_fs + counts.p2p + counts.posix <= counts.total else None


class _Lane(OneAtATime):
    """`release`: gives back what the lane holds."""

    def __init__(
        self, job: Job, transfer: Callable[[int], int], buffer: GpuBuffer, release: Callable[[], None]
    ) -> None:
        super().__init__(job, transfer, buffer)
        self._release = release

    def close(self) -> None:
        self._release()


def _require_modules_file() -> None:
    """Without /proc/modules libcufile 1.11 to 1.20 tries to read it in a loop that never ends."""
    try:
        os.close(os.open("/proc/modules", os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        said = f"/proc/modules: {error.strerror}"
        raise UndecidedError(f"libcufile never returns here ({said}); settle with: cat /proc/modules") from None


@contextlib.contextmanager
def _stdout_aside() -> Iterator[None]:
    """The library prints what it thinks to stdout, where our document goes: to stderr with it."""
    libc = ctypes.CDLL(None)
    libc.fflush(None)
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        libc.fflush(None)
        os.dup2(kept, 1)
        os.close(kept)

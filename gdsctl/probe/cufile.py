"""NVIDIA's libcufile, run with a private configuration so that it tells what it did.

Signatures, structures and error codes: cufile.h of nvidia-cufile 1.15 to 1.20. The configuration is the node's own with
statistics and a log of its own; `/etc/cufile.json` is merged below it by the library itself.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import glob
import json
import os
import shutil
import sysconfig
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

from gdsctl.errors import GdsctlError, InputError, RefusedError, UndecidedError
from gdsctl.parse import cufile_log
from gdsctl.probe.cuda import Cuda, GpuBuffer
from gdsctl.probe.deadline import within
from gdsctl.probe.engine import CufileCounts, Direction, Job, Lane, OneAtATime

_OPAQUE_FD = 1
_STATS_LEVEL = 3
_MAX_GPUS = 16
_OPEN_PATIENCE_S = 120.0  # it looks at all PCI functions, and opens RDMA devices


class _Error(ctypes.Structure):
    _fields_ = (("err", ctypes.c_int), ("cu_err", ctypes.c_int))


class _Handle(ctypes.Union):
    _fields_ = (("fd", ctypes.c_int), ("handle", ctypes.c_void_p))


class _Descr(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("handle", _Handle), ("fs_ops", ctypes.c_void_p))


class _PerGpu(ctypes.Structure):
    """CUfilePerGpuStats_t."""

    _fields_ = (
        ("uuid", ctypes.c_char * 16),
        *((f"{name}", ctypes.c_uint64) for name in ("read_bytes", "read_bw", "read_utilization", "read_duration_us")),
        *((f"reads_{name}", ctypes.c_uint64) for name in ("total", "p2p", "nvfs", "posix", "unaligned", "dr")),
        *((name, ctypes.c_uint64) for name in ("sparse_regions", "inline_regions", "reads_err")),
        *(
            (f"{name}", ctypes.c_uint64)
            for name in ("write_bytes", "write_bw", "write_utilization", "write_duration_us")
        ),
        *((f"writes_{name}", ctypes.c_uint64) for name in ("total", "p2p", "nvfs", "posix", "unaligned", "dr", "err")),
        *((name, ctypes.c_uint64) for name in ("mmap", "mmap_ok", "mmap_err", "mmap_free", "reg_bytes")),
    )


def _level3(*, vectored: bool) -> type[ctypes.Structure]:
    """CUfileStatsLevel3_t: 64 words of level 1, 14 more since the library has cuFileReadv (1.19), 64 of level 2."""

    class Level3(ctypes.Structure):
        _fields_ = (
            ("basic", ctypes.c_uint64 * (78 if vectored else 64)),
            ("sizes", ctypes.c_uint64 * 64),
            ("num_gpus", ctypes.c_uint32),
            ("per_gpu", _PerGpu * _MAX_GPUS),
        )

    return Level3


_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "cuFileDriverOpen": (_Error, ()),
    "cuFileHandleRegister": (_Error, (ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(_Descr))),
    "cuFileHandleDeregister": (None, (ctypes.c_void_p,)),
    "cuFileBufRegister": (_Error, (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)),
    "cuFileBufDeregister": (_Error, (ctypes.c_void_p,)),
    "cuFileRead": (
        ctypes.c_ssize_t,
        (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64, ctypes.c_int64),
    ),
    "cuFileWrite": (
        ctypes.c_ssize_t,
        (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64, ctypes.c_int64),
    ),
}
_OVERRULING = ("CUFILE_ALLOW_COMPAT_MODE", "CUFILE_FORCE_COMPAT_MODE", "CUFILE_LOGGING_LEVEL", "CUFILE_STATS_LEVEL")


class NotDirectError(GdsctlError):
    """Compat mode was forbidden and the library would not go on: the bytes cannot take the path demanded."""

    exit_code = 1


class CufileEngine:
    """cuFileRead and cuFileWrite, one block a thread, buffers registered. `strict`: without compat mode.

    Raises UndecidedError where there is no library, RefusedError where it refuses.
    """

    name = "cufile"
    queues = False
    forks = False
    why_no_queue = "the synchronous calls of libcufile take one block each"

    def __init__(
        self, cuda: Cuda, gpu: int, configuration: dict[str, Any], library: str | None, *, strict: bool
    ) -> None:
        """`configuration`: merged values of the node's cufile.json; `library`: where the node has it."""
        _require_modules_file()
        self._cuda = cuda
        self._lock = threading.Lock()
        self._handles: dict[int, ctypes.c_void_p] = {}
        self._before: ctypes.Structure | None = None
        self._gpu = gpu
        self.strict = strict
        self._folder = tempfile.mkdtemp(prefix="gdsctl-cufile-")
        self._log = os.path.join(self._folder, "cufile.log")
        try:
            merged = private_configuration(configuration, self._folder, strict=strict)
            path = os.path.join(self._folder, "cufile.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(merged, file)
            for name in _OVERRULING:
                os.environ.pop(name, None)
            os.environ |= {"CUFILE_ENV_PATH_JSON": path, "CUFILE_LOGFILE_PATH": self._log}
            self.compat_allowed: bool | None = merged["properties"]["allow_compat_mode"]
            self._library, self.how = _load(library)
            with _stdout_aside():
                within("cuFileDriverOpen", self._open, _OPEN_PATIENCE_S)
            self._count()
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def _open(self) -> None:
        """In one thread: the library takes the context that is current there."""
        self._cuda.use(self._gpu)
        self._must("cuFileDriverOpen")

    def _count(self) -> None:
        """Statistics at their full level; before 1.15 the library cannot be asked for them."""
        self._level3 = None
        if hasattr(self._library, "cuFileGetStatsL3"):
            self._library.cuFileSetStatsLevel.restype = self._library.cuFileStatsStart.restype = _Error
            self._library.cuFileGetStatsL3.restype = _Error
            if not (self._library.cuFileSetStatsLevel(_STATS_LEVEL).err or self._library.cuFileStatsStart().err):
                self._level3 = _level3(vectored=hasattr(self._library, "cuFileReadv"))

    def _must(self, name: str, *arguments: Any) -> None:
        result = getattr(self._library, name)(*arguments)
        if result.err:
            last = [line for line in self.log_lines() if line]
            said = f"; cufile.log: {last[-1]}" if last else ""
            cuda = f", CUDA error {result.cu_err}" if result.cu_err else ""
            what = f"{name}: cuFile error {result.err}{cuda}{said}"
            if self.strict:
                raise NotDirectError(f"not the path demanded; compat mode forbidden, libcufile refuses: {what}")
            raise RefusedError(what)

    def lane(self, job: Job) -> Lane:
        self._cuda.use(job.gpu or 0)
        buffer = GpuBuffer(self._cuda, job.block_bytes, pinned=False)
        self._must("cuFileBufRegister", buffer.device, job.block_bytes, 0)
        return _CufileLane(self._library, self._handle(job.descriptor), job, buffer)

    def introduce(self, descriptor: int) -> None:
        """Register a file. The library opens it a second time, by the name that /proc/self/fd has for it (else 5031)."""
        self._cuda.use(self._gpu)
        self._handle(descriptor)

    def _handle(self, descriptor: int) -> ctypes.c_void_p:
        """A file is registered once; a second time is an error."""
        with self._lock:
            if descriptor not in self._handles:
                handle = ctypes.c_void_p()
                wanted = _Descr(type=_OPAQUE_FD, handle=_Handle(fd=descriptor), fs_ops=None)
                self._must("cuFileHandleRegister", ctypes.byref(handle), ctypes.byref(wanted))
                self._handles[descriptor] = handle
            return self._handles[descriptor]

    def begin(self) -> None:
        self._before = self._statistics()

    def _statistics(self) -> Any:
        if self._level3 is None:
            return None
        found = self._level3()
        return None if self._library.cuFileGetStatsL3(ctypes.byref(found)).err else found

    def counts(self, direction: Direction) -> CufileCounts | None:
        """Blocks by path since begin(), all GPUs together; None where the library does not tell."""
        now, before = self._statistics(), self._before
        if now is None or before is None:
            return None
        row = "reads" if direction == "read" else "writes"

        def added(name: str) -> int:
            sums = [
                sum(getattr(gpu, f"{row}_{name}") for gpu in found.per_gpu[: min(found.num_gpus, _MAX_GPUS)])
                for found in (now, before)
            ]
            return int(sums[0] - sums[1])

        return CufileCounts(nvidia_fs=added("nvfs"), p2p=added("p2p"), posix=added("posix"), total=added("total"))

    def log_lines(self) -> tuple[str, ...]:
        """Errors and warnings of the library's log of this run."""
        try:
            with open(self._log, encoding="utf-8", errors="backslashreplace") as file:
                entries = cufile_log.parse(file.read(1 << 24)).entries
        except (OSError, InputError):
            return ()
        return tuple(
            dict.fromkeys(f"{entry.level} {entry.text}" for entry in entries if entry.level in ("ERROR", "WARN"))
        )

    def close(self) -> None:
        with _stdout_aside():
            for handle in self._handles.values():
                self._library.cuFileHandleDeregister(handle)
            close = getattr(self._library, "cuFileDriverClose_v2", None) or self._library.cuFileDriverClose
            close()
        shutil.rmtree(self._folder, ignore_errors=True)


class _CufileLane(OneAtATime):
    def __init__(self, library: Any, handle: ctypes.c_void_p, job: Job, buffer: GpuBuffer) -> None:
        self._library = library
        self._gpu = buffer
        call = library.cuFileRead if job.direction == "read" else library.cuFileWrite
        device, block = ctypes.c_void_p(buffer.device), ctypes.c_size_t(job.block_bytes)

        def transfer(offset: int) -> int:
            moved: int = call(handle, device, block, offset, 0)
            if moved < 0:
                raise _failed(moved)
            return moved

        super().__init__(job, transfer, buffer)

    def close(self) -> None:
        self._library.cuFileBufDeregister(self._gpu.device)
        self._gpu.close()


def _failed(result: int) -> OSError:
    """-1 is the system's error, in errno; what lies below -5000 is cuFile's own."""
    if result == -1:
        code = ctypes.get_errno()
        return OSError(code, os.strerror(code))
    return OSError(-result, f"cuFile error {-result}" if result < -5000 else os.strerror(-result))


def private_configuration(merged: dict[str, Any], folder: str, *, strict: bool) -> dict[str, Any]:
    """The node's configuration with statistics and a log for this run; `strict`: compat mode forbidden, not forced."""
    values = copy.deepcopy(merged)
    for section in ("profile", "logging", "properties"):
        values.setdefault(section, {})
    values["profile"]["cufile_stats"] = _STATS_LEVEL
    values["logging"] |= {"dir": folder, "level": "INFO"}
    values["properties"].setdefault("allow_compat_mode", True)
    if strict:
        values["properties"] |= {"allow_compat_mode": False}
        values["properties"].pop("force_compat_mode", None)
    return values


def _require_modules_file() -> None:
    """Without /proc/modules libcufile 1.11 to 1.20 tries to read it in a loop that never ends."""
    try:
        os.close(os.open("/proc/modules", os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        said = f"/proc/modules: {error.strerror}"
        raise UndecidedError(f"libcufile never returns here ({said}); settle with: cat /proc/modules") from None


def _load(named: str | None) -> tuple[Any, str]:
    """The node's libcufile, else the loader's, else that of the nvidia-cufile wheel beside this Python."""
    wheels = sorted(glob.glob(os.path.join(sysconfig.get_path("platlib"), "nvidia", "*", "lib", "libcufile.so.0")))
    errors = []
    for path in [*([named] if named else []), "libcufile.so.0", *wheels[::-1]]:
        try:
            library = ctypes.CDLL(path, use_errno=True)
            for name, (result, arguments) in _SIGNATURES.items():
                function = getattr(library, name)
                function.restype, function.argtypes = result, arguments
        except (OSError, AttributeError) as error:
            errors.append(str(error))
            continue
        version = ctypes.c_int()
        if hasattr(library, "cuFileGetVersion"):
            library.cuFileGetVersion(ctypes.byref(version))
        release = f" {version.value // 1000}.{version.value % 1000 // 10}" if version.value else ""
        return library, f"libcufile{release}, synchronous calls, registered buffers"
    raise UndecidedError(f"no libcufile here ({errors[0]}); settle with: ldconfig -p | grep libcufile")


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

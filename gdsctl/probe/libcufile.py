"""The calls and structures of NVIDIA's libcufile, for ctypes: cufile.h of nvidia-cufile 1.11 to 1.20."""

from __future__ import annotations

import ctypes
import glob
import os
import sysconfig
from typing import Any, Literal, Protocol

from gdsctl.data import cufile_errors
from gdsctl.errors import UndecidedError

Api = Literal["sync", "batch", "stream"]

OPAQUE_FD = 1  # CU_FILE_HANDLE_TYPE_OPAQUE_FD
BATCH = 1  # CUFILE_BATCH
READ, WRITE = 0, 1  # CUfileOpcode_t
PENDING = 0x1 | 0x2  # CUFILE_WAITING, CUFILE_PENDING
COMPLETE = 0x10  # CUFILE_COMPLETE
UNFINISHED = {0x4: "CUFILE_INVALID", 0x8: "CUFILE_CANCELED", 0x20: "CUFILE_TIMEOUT", 0x40: "CUFILE_FAILED"}
FIXED, PAGE_ALIGNED = 1 | 2 | 4, 8  # CU_FILE_STREAM_FIXED_*, CU_FILE_STREAM_PAGE_ALIGNED_INPUTS
MAX_GPUS = 16
_BASE = 5000  # CUFILEOP_BASE_ERR


class Error(ctypes.Structure):
    """CUfileError_t."""

    _fields_ = (("err", ctypes.c_int), ("cu_err", ctypes.c_int))


class Handle(ctypes.Union):
    _fields_ = (("fd", ctypes.c_int), ("handle", ctypes.c_void_p))


class Descr(ctypes.Structure):
    """CUfileDescr_t."""

    _fields_ = (("type", ctypes.c_int), ("handle", Handle), ("fs_ops", ctypes.c_void_p))


class IOParams(ctypes.Structure):
    """CUfileIOParams_t; its union has one member. `cookie`: ours to choose."""

    _fields_ = (
        ("mode", ctypes.c_int),
        ("devPtr_base", ctypes.c_void_p),
        ("file_offset", ctypes.c_int64),
        ("devPtr_offset", ctypes.c_int64),
        ("size", ctypes.c_size_t),
        ("fh", ctypes.c_void_p),
        ("opcode", ctypes.c_int),
        ("cookie", ctypes.c_size_t),
    )


class IOEvents(ctypes.Structure):
    """CUfileIOEvents_t. `ret`: bytes moved, or below zero an error, though the header has it unsigned."""

    _fields_ = (("cookie", ctypes.c_size_t), ("status", ctypes.c_int), ("ret", ctypes.c_ssize_t))


class Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


class OpCounter(ctypes.Structure):
    """CUfileOpCounter_t."""

    _fields_ = (("ok", ctypes.c_uint64), ("err", ctypes.c_uint64))


class Level1(ctypes.Structure):
    """CUfileStatsLevel1_t up to 1.18; since then 14 words more, for cuFileReadv and cuFileWritev."""

    _fields_ = (
        ("read_write_and_register", ctypes.c_uint64 * 22),
        *((f"batch_{name}", OpCounter) for name in ("submit", "complete", "setup", "cancel", "destroy")),
        *((f"batch_{name}", OpCounter) for name in ("enqueued", "posix_enqueued", "processed", "posix_processed")),
        *((f"batch_{name}_submit", OpCounter) for name in ("nvfs", "p2p", "aio", "iouring", "mixed_io", "total")),
        ("batch_bytes_and_times", ctypes.c_uint64 * 12),
    )


class PerGpu(ctypes.Structure):
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


def level3(*, vectored: bool) -> type[ctypes.Structure]:
    """CUfileStatsLevel3_t; `vectored`: the library has cuFileReadv (1.19)."""

    class Level3(ctypes.Structure):
        _fields_ = (
            ("basic", Level1),
            ("vectored", ctypes.c_uint64 * (14 if vectored else 0)),
            ("sizes", ctypes.c_uint64 * 64),
            ("num_gpus", ctypes.c_uint32),
            ("per_gpu", PerGpu * MAX_GPUS),
        )

    return Level3


_ONE_BLOCK = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64, ctypes.c_int64)
_IN_STREAM = (ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_void_p] * 4, ctypes.c_void_p)
_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "cuFileDriverOpen": (Error, ()),
    "cuFileHandleRegister": (Error, (ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(Descr))),
    "cuFileHandleDeregister": (None, (ctypes.c_void_p,)),
    "cuFileBufRegister": (Error, (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)),
    "cuFileBufDeregister": (Error, (ctypes.c_void_p,)),
    "cuFileRead": (ctypes.c_ssize_t, _ONE_BLOCK),
    "cuFileWrite": (ctypes.c_ssize_t, _ONE_BLOCK),
}
_BATCH: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "cuFileBatchIOSetUp": (Error, (ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint)),
    "cuFileBatchIOSubmit": (Error, (ctypes.c_void_p, ctypes.c_uint, ctypes.POINTER(IOParams), ctypes.c_uint)),
    "cuFileBatchIOGetStatus": (
        Error,
        (
            ctypes.c_void_p,
            ctypes.c_uint,
            ctypes.POINTER(ctypes.c_uint),
            ctypes.POINTER(IOEvents),
            ctypes.POINTER(Timespec),
        ),
    ),
    "cuFileBatchIOCancel": (Error, (ctypes.c_void_p,)),
    "cuFileBatchIODestroy": (None, (ctypes.c_void_p,)),
}
_STREAM: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "cuFileStreamRegister": (Error, (ctypes.c_void_p, ctypes.c_uint)),
    "cuFileStreamDeregister": (Error, (ctypes.c_void_p,)),
    "cuFileReadAsync": (Error, _IN_STREAM),
    "cuFileWriteAsync": (Error, _IN_STREAM),
}
# Which release of GDS first has each; RAPIDS KvikIO, cpp/src/shim/cufile.cpp, draws the same lines.
_SINCE: dict[Api, tuple[dict[str, tuple[Any, tuple[Any, ...]]], str]] = {
    "sync": ({}, ""),
    "batch": (_BATCH, "1.6 (CUDA 12.1)"),
    "stream": (_STREAM, "1.7 (CUDA 12.2)"),
}
CALLS: dict[Api, str] = {"sync": "synchronous calls", "batch": "batch calls", "stream": "stream calls"}


class Caller(Protocol):
    """Who calls the library. `must`: raises where the call fails; `failed`: the error behind a result below zero."""

    library: Any

    def must(self, name: str, *arguments: Any) -> None: ...

    def failed(self, result: int) -> OSError: ...


def load(named: str | None, api: Api) -> tuple[Any, str]:
    """The library and its name with the release: the node's, else the loader's, else that of the nvidia-cufile wheel
    beside this Python.

    Raises UndecidedError where there is none, or one that is older than the calls wanted.
    """
    wheels = sorted(glob.glob(os.path.join(sysconfig.get_path("platlib"), "nvidia", "*", "lib", "libcufile.so.0")))
    errors = []
    for path in [*([named] if named else []), "libcufile.so.0", *wheels[::-1]]:
        try:
            library = ctypes.CDLL(path, use_errno=True)
            _declare(library, _SIGNATURES)
        except (OSError, AttributeError) as error:
            errors.append(str(error))
            continue
        version = ctypes.c_int()
        if hasattr(library, "cuFileGetVersion"):
            library.cuFileGetVersion(ctypes.byref(version))
        release = f"{version.value // 1000}.{version.value % 1000 // 10}" if version.value else ""
        calls, since = _SINCE[api]
        try:
            _declare(library, calls)
        except AttributeError as error:
            here = f"this is {release or 'older than 1.8'}"
            missing = f"the {CALLS[api]} of libcufile need {since}, {here} ({error})"
            raise UndecidedError(f"{missing}; settle with: ldconfig -p | grep libcufile") from None
        return library, f"libcufile {release}".rstrip()
    raise UndecidedError(f"no libcufile here ({errors[0]}); settle with: ldconfig -p | grep libcufile")


def _declare(library: Any, signatures: dict[str, tuple[Any, tuple[Any, ...]]]) -> None:
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments


def failed(result: int) -> OSError:
    """A result below zero: the code with its sign changed; -1 says that errno tells, which may hold such a code, too."""
    code = ctypes.get_errno() if result == -1 else -result
    return OSError(code, named(code) if code > _BASE else os.strerror(code))


def named(code: int) -> str:
    """`cuFile error 5030, INTERNAL_ERROR`."""
    row = cufile_errors.error(str(code))
    return f"cuFile error {code}" + (f", {row.name}" if row is not None else "")

"""The little of the CUDA driver API that a probe needs, from libcuda.so.1. Signatures: cuda.h."""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any

from gdsctl.errors import RefusedError, UndecidedError
from gdsctl.model.pci import canonical_address
from gdsctl.probe.posix import HostBuffer

_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (ctypes.c_uint,),
    "cuDeviceGetCount": (ctypes.POINTER(ctypes.c_int),),
    "cuDeviceGet": (ctypes.POINTER(ctypes.c_int), ctypes.c_int),
    "cuDeviceGetPCIBusId": (ctypes.c_char_p, ctypes.c_int, ctypes.c_int),
    "cuDevicePrimaryCtxRetain": (ctypes.POINTER(ctypes.c_void_p), ctypes.c_int),
    "cuCtxSetCurrent": (ctypes.c_void_p,),
    "cuCtxSynchronize": (),
    "cuMemAlloc_v2": (ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t),
    "cuMemFree_v2": (ctypes.c_uint64,),
    "cuMemHostRegister_v2": (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint),
    "cuMemHostUnregister": (ctypes.c_void_p,),
    "cuMemcpyHtoD_v2": (ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t),
    "cuMemcpyDtoH_v2": (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t),
    "cuMemcpyHtoDAsync_v2": (ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p),
    "cuMemcpyDtoHAsync_v2": (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p),
    "cuStreamCreate": (ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint),
    "cuStreamSynchronize": (ctypes.c_void_p,),
    "cuStreamQuery": (ctypes.c_void_p,),
    "cuStreamDestroy_v2": (ctypes.c_void_p,),
    "cuGetErrorName": (ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)),
}
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
_NOT_READY = 600  # CUDA_ERROR_NOT_READY


class Cuda:
    """Primary contexts, one a GPU, and the calls. Raises UndecidedError where there is no driver or no GPU."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
            for name, arguments in _SIGNATURES.items():
                getattr(self._library, name).argtypes = arguments
        except (OSError, AttributeError) as error:
            raise UndecidedError(f"no CUDA driver here ({error}); settle with: nvidia-smi") from None
        count = ctypes.c_int()
        for name, arguments in (("cuInit", (0,)), ("cuDeviceGetCount", (ctypes.byref(count),))):
            code = getattr(self._library, name)(*arguments)
            if code:
                raise UndecidedError(
                    f"the CUDA driver finds no GPU ({name}: {self._named(code)}); settle with: nvidia-smi"
                )
        if not count.value:
            raise UndecidedError("the CUDA driver finds no GPU; settle with: nvidia-smi")
        self.count = count.value
        self._contexts: dict[int, ctypes.c_void_p] = {}
        self._lock = threading.Lock()

    def _named(self, code: int) -> str:
        name = ctypes.c_char_p()
        self._library.cuGetErrorName(code, ctypes.byref(name))
        return name.value.decode("ascii", "replace") if name.value else str(code)

    def call(self, name: str, *arguments: Any) -> None:
        """Raises RefusedError with the driver's name of the error."""
        code = getattr(self._library, name)(*arguments)
        if code:
            raise RefusedError(f"{name}: {self._named(code)}")

    def address(self, gpu: int) -> str:
        """Of the PCI function behind an index: CUDA's order (CUDA_DEVICE_ORDER) is not the bus's."""
        device, text = ctypes.c_int(), ctypes.create_string_buffer(32)
        self.call("cuDeviceGet", ctypes.byref(device), gpu)
        self.call("cuDeviceGetPCIBusId", text, len(text), device)
        said = text.value.decode("ascii", "replace")
        return canonical_address(said) or said

    def new_stream(self) -> ctypes.c_void_p:
        """One that does not wait for the default stream, on the current GPU."""
        stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(stream), _NON_BLOCKING)
        return stream

    def wait_for(self, stream: ctypes.c_void_p) -> None:
        """Raises OSError with the driver's name of the error."""
        if code := self._library.cuStreamSynchronize(stream):
            raise OSError(0, f"cuStreamSynchronize: {self._named(code)}")

    def idle(self, stream: ctypes.c_void_p) -> bool:
        """Is all of it done? Raises OSError with the driver's name of the error."""
        code = self._library.cuStreamQuery(stream)
        if code not in (0, _NOT_READY):
            raise OSError(0, f"cuStreamQuery: {self._named(code)}")
        return not code

    def end_stream(self, stream: ctypes.c_void_p) -> None:
        self._library.cuStreamDestroy_v2(stream)

    def use(self, gpu: int) -> None:
        """Make a GPU's primary context that of this thread."""
        with self._lock:
            if gpu not in self._contexts:
                device, context = ctypes.c_int(), ctypes.c_void_p()
                self.call("cuDeviceGet", ctypes.byref(device), gpu)
                self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
                self._contexts[gpu] = context
        self.call("cuCtxSetCurrent", self._contexts[gpu])


class GpuBuffer:
    """Memory on the current GPU, and host memory of the same size to fill and compare it from.

    `pinned`: the host memory is page-locked and copied in a stream of its own, as a bounce buffer has to be to be worth
    comparing with: copies in the default stream wait for those of every other thread.
    """

    def __init__(self, cuda: Cuda, size_bytes: int, *, pinned: bool) -> None:
        self._cuda = cuda
        self._size = size_bytes
        self.host = HostBuffer(size_bytes)
        self._stream: ctypes.c_void_p | None = None
        if pinned:
            cuda.call("cuMemHostRegister_v2", self.host.address(), size_bytes, 0)
            self._stream = cuda.new_stream()
        device = ctypes.c_uint64()
        cuda.call("cuMemAlloc_v2", ctypes.byref(device), size_bytes)
        self.device = device.value

    def load(self, content: bytearray) -> None:
        self.host.load(content)
        self.push()
        if self._stream is None:
            self._cuda.call("cuCtxSynchronize")  # a copy from pageable memory may be under way when it returns

    def address(self) -> int:
        self.pull()
        return self.host.address()

    def push(self) -> None:
        """Host to GPU. Raises RefusedError, or OSError where the copy itself fails."""
        if self._stream is None:
            self._cuda.call("cuMemcpyHtoD_v2", self.device, self.host.address(), self._size)
        else:
            self._cuda.call("cuMemcpyHtoDAsync_v2", self.device, self.host.address(), self._size, self._stream)
            self._cuda.wait_for(self._stream)

    def pull(self) -> None:
        """GPU to host. Raises as `push` does."""
        if self._stream is None:
            self._cuda.call("cuMemcpyDtoH_v2", self.host.address(), self.device, self._size)
        else:
            self._cuda.call("cuMemcpyDtoHAsync_v2", self.host.address(), self.device, self._size, self._stream)
            self._cuda.wait_for(self._stream)

    def close(self) -> None:
        self._cuda.call("cuMemFree_v2", self.device)
        if self._stream is not None:
            self._cuda.end_stream(self._stream)
            self._cuda.call("cuMemHostUnregister", self.host.address())


def gpus_wanted(cuda: Cuda, gpus: tuple[int, ...]) -> tuple[int, ...]:
    """The GPUs asked for, by the driver's index; raises UndecidedError for one that is not there."""
    for gpu in gpus:
        if not 0 <= gpu < cuda.count:
            shown = os.environ.get("CUDA_VISIBLE_DEVICES")
            hidden = f" (CUDA_VISIBLE_DEVICES is {shown})" if shown is not None else ""
            raise UndecidedError(
                f"no GPU {gpu}: the CUDA driver shows {cuda.count}{hidden}; settle with: nvidia-smi -L"
            )
    return gpus or (0,)

"""What NVML says of the GPUs: the only module that imports pynvml."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from gdsctl.source.base import Missing
from gdsctl.source.deadline import within

_PATIENCE_S = 10.0  # a GPU that fell off the bus holds NVML's lock for as long as the driver retries
_GENERATIONS: dict[Any, int] = {1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 4, 7: 5, 8: 6}
"""nvml.h, nvmlNvlinkVersion_t: 1.0, 2.0, 2.2, 3.0, 3.1, 4.0, 5.0, 6.0 are numbered from 1 on."""


def ask() -> dict[str, Any] | Missing:
    """All GPUs, or why not: no_tool (no pynvml or libnvidia-ml), absent (no driver), denied, error, timeout.

    {driver_version, cuda_version "12.4", gpus [{index, pci_address, name, uuid, memory_bytes, bar1_bytes,
    compute_capability "9.0", mig, c2c, nvlinks [{link, active, version, remote_pci: address | "switch"}],
    pcie {gen, width, max_gen, max_width}}], errors [words]}. What one GPU does not tell is null; nvlinks null: not known.
    """
    return within(_PATIENCE_S, "NVML", _asked)


def _asked() -> dict[str, Any] | Missing:
    try:
        import pynvml as nvml  # noqa: TID251 - here and nowhere else
    except ImportError as error:
        return Missing(status="no_tool", detail=f"pynvml: {error}")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return _why(nvml, error)
    try:
        return _node(nvml)
    except nvml.NVMLError as error:
        return _why(nvml, error)
    finally:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def pcie_bytes(addresses: Sequence[str], *, received: bool) -> int | None:
    """Bytes that these GPUs (PCI addresses) have received or sent over PCIe, together; None where that is not told.

    nvml.h, NVML_FI_DEV_PCIE_COUNT_RX_BYTES and _TX_BYTES: they may wrap around; not of every GPU.
    """
    found = within(_PATIENCE_S, "NVML", lambda: _pcie_bytes(addresses, received=received))
    return found if isinstance(found, int) else None


def _pcie_bytes(addresses: Sequence[str], *, received: bool) -> int | Missing:
    try:
        import pynvml as nvml  # noqa: TID251 - here and nowhere else

        field = nvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES if received else nvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES
    except (ImportError, AttributeError) as error:
        return Missing(status="no_tool", detail=f"pynvml: {error}")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return _why(nvml, error)
    try:
        total = 0
        for address in addresses:
            (told,) = nvml.nvmlDeviceGetFieldValues(nvml.nvmlDeviceGetHandleByPciBusId(address), [field])
            if told.nvmlReturn != nvml.NVML_SUCCESS:
                return Missing(status="absent", detail=f"{address} counts no bytes")
            total += int(told.value.ullVal)
        return total  # noqa: TRY300 -- the exceptions are NVML's
    except nvml.NVMLError as error:
        return _why(nvml, error)
    finally:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def _why(nvml: Any, error: Any) -> Missing:
    status = {
        nvml.NVML_ERROR_LIBRARY_NOT_FOUND: "no_tool",
        nvml.NVML_ERROR_DRIVER_NOT_LOADED: "absent",
        nvml.NVML_ERROR_NO_PERMISSION: "denied",
    }.get(error.value, "error")
    return Missing(status=status, detail=f"NVML: {error}")  # type: ignore[arg-type]  # the four words are statuses


class _Asker:
    """Single questions; what fails is null, and told in `errors` unless the device merely does not support it."""

    def __init__(self, nvml: Any) -> None:
        self.nvml = nvml
        self.errors: list[str] = []
        self._silent = {
            nvml.NVML_ERROR_NOT_SUPPORTED,
            nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            nvml.NVML_ERROR_INVALID_ARGUMENT,
        }

    def __call__(self, what: str, function: str, *arguments: Any) -> Any:
        try:
            return getattr(self.nvml, function)(*arguments)
        except self.nvml.NVMLError as error:
            if error.value not in self._silent:
                self.errors.append(f"{what}: {error}")
        except AttributeError:  # an older pynvml
            pass
        return None


def _node(nvml: Any) -> dict[str, Any]:
    asked = _Asker(nvml)
    cuda = asked("CUDA version", "nvmlSystemGetCudaDriverVersion_v2")
    gpus = []
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = asked(f"GPU {index}", "nvmlDeviceGetHandleByIndex", index)
        if handle is not None:
            gpus.append(_gpu(asked, index, handle))
    return {
        "driver_version": _text(asked("driver version", "nvmlSystemGetDriverVersion")),
        "cuda_version": None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        "gpus": gpus,
        "errors": asked.errors,
    }


def _gpu(asked: _Asker, index: int, handle: Any) -> dict[str, Any]:
    def of(what: str, function: str) -> Any:
        return asked(f"GPU {index} {what}", function, handle)

    pci = of("PCI address", "nvmlDeviceGetPciInfo")
    memory = of("memory", "nvmlDeviceGetMemoryInfo")
    bar1 = of("BAR1", "nvmlDeviceGetBAR1MemoryInfo")
    capability = of("compute capability", "nvmlDeviceGetCudaComputeCapability")
    mig = of("MIG mode", "nvmlDeviceGetMigMode")
    c2c = of("C2C", "nvmlDeviceGetC2cModeInfoV1")
    return {
        "index": index,
        "pci_address": None if pci is None else _address(pci),
        "name": _text(of("name", "nvmlDeviceGetName")),
        "uuid": _text(of("UUID", "nvmlDeviceGetUUID")),
        "memory_bytes": None if memory is None else int(memory.total),
        "bar1_bytes": None if bar1 is None else int(bar1.bar1Total),
        "compute_capability": None if capability is None else "{}.{}".format(*capability),
        "mig": None if mig is None else bool(mig[0]),
        "c2c": None if c2c is None else bool(c2c.isC2cEnabled),
        "nvlinks": _links(asked, index, handle),
        "pcie": {
            "gen": of("PCIe", "nvmlDeviceGetCurrPcieLinkGeneration"),
            "width": of("PCIe", "nvmlDeviceGetCurrPcieLinkWidth"),
            "max_gen": of("PCIe", "nvmlDeviceGetMaxPcieLinkGeneration"),
            "max_width": of("PCIe", "nvmlDeviceGetMaxPcieLinkWidth"),
        },
    }


def _links(asked: _Asker, index: int, handle: Any) -> list[dict[str, Any]] | None:
    """The links a GPU has, none for one without; None where NVML failed on the first question."""
    nvml = asked.nvml
    links: list[dict[str, Any]] = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        words = f"GPU {index} NVLink {link}"
        try:
            active = bool(nvml.nvmlDeviceGetNvLinkState(handle, link))
        except nvml.NVMLError as error:
            if error.value in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_INVALID_ARGUMENT):
                break  # beyond the last link of this model
            asked.errors.append(f"{words}: {error}")
            if not links:
                return None
            continue
        version = asked(words, "nvmlDeviceGetNvLinkVersion", handle, link) if active else None
        links.append(
            {
                "link": link,
                "active": active,
                "version": _GENERATIONS.get(version),
                "remote_pci": _remote(asked, words, handle, link) if active else None,
            }
        )
    return links


def _remote(asked: _Asker, words: str, handle: Any, link: int) -> str | None:
    """The other end; drivers before 470 do not tell that it is a switch, which then shows its PCI address."""
    if asked(words, "nvmlDeviceGetNvLinkRemoteDeviceType", handle, link) == asked.nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
        return "switch"
    pci = asked(words, "nvmlDeviceGetNvLinkRemotePciInfo", handle, link)
    return None if pci is None else _address(pci)


def _address(pci: Any) -> str | None:
    """As sysfs writes it: NVML has eight digits of domain, in capitals."""
    domain, _, rest = (_text(pci.busId) or "").lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}" if re.fullmatch(r"[0-9a-f]{4,8}", domain) else None


def _text(value: str | bytes | None) -> str | None:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value

"""/proc/driver/nvidia/version and /proc/driver/nvidia/gpus/*/information; open-gpu-kernel-modules, kernel-open/nvidia/nv-procfs.c."""

from __future__ import annotations

import re
from typing import Literal

from gdsctl.errors import InputError
from gdsctl.model.pci import canonical_address
from gdsctl.record import Record


class NvidiaVersion(Record, frozen=True, kw_only=True):
    version: str | None
    kind: Literal["open", "proprietary", "unknown"]
    gcc: str | None = None


class GpuInformation(Record, frozen=True, kw_only=True):
    """`device_minor`: N of /dev/nvidiaN. None: not printed, or printed as `?` or N/A (GPU not initialised)."""

    model: str | None = None
    uuid: str | None = None
    address: str | None = None
    device_minor: int | None = None
    video_bios: str | None = None
    firmware: str | None = None
    excluded: bool | None = None


_NVRM = re.compile(r"NVRM version:\s*(.{1,300})")
_KERNEL_MODULE = re.compile(
    r"NVIDIA UNIX (?P<open>Open )?.{0,40}?Kernel Module\s+(?:for \S{1,20}\s+)?(?P<version>\d{2,4}(?:\.\d{1,4}){1,3})",
    re.IGNORECASE,
)
_GCC = re.compile(r"GCC version:\s*(.{1,300})")


def parse_version(text: str) -> NvidiaVersion:
    """Raises InputError where there is no `NVRM version` line."""
    nvrm = _NVRM.search(text)
    if nvrm is None:
        raise InputError("not the text of /proc/driver/nvidia/version", line=1)
    gcc = _GCC.search(text)
    module = _KERNEL_MODULE.search(nvrm[1])
    return NvidiaVersion(
        version=module["version"] if module else None,
        kind="unknown" if module is None else "open" if module["open"] else "proprietary",
        gcc=gcc[1].strip() if gcc else None,
    )


def parse_gpu_information(text: str) -> GpuInformation:
    """Raises InputError where neither a model nor a bus location is found."""
    cells: dict[str, str] = {}
    for line in text.split("\n"):
        label, colon, value = line.partition(":")
        value = value.strip()
        if colon and value and value != "N/A" and "??" not in value:
            cells.setdefault(label.strip(), value)
    if not cells.keys() & {"Model", "Bus Location"}:
        raise InputError("not the information file of an NVIDIA GPU", line=1)
    minor = cells.get("Device Minor", "")
    return GpuInformation(
        model=cells.get("Model"),
        uuid=cells.get("GPU UUID"),
        address=canonical_address(cells.get("Bus Location", "")),
        device_minor=int(minor) if re.fullmatch(r"[0-9]{1,6}", minor) else None,
        video_bios=cells.get("Video BIOS"),
        firmware=cells.get("GPU Firmware"),
        excluded={"Yes": True, "No": False}.get(cells.get("GPU Excluded", "")),
    )

"""`nvidia-smi --query-gpu=... --format=csv,noheader` with the fields of gdsctl's own call, in its order.

0, 00000000:1B:00.0, NVIDIA H100 80GB HBM3, GPU-5f1c..., 81559 MiB, 550.54.15, 9.0
"""

from __future__ import annotations

import re

from gdsctl.errors import InputError
from gdsctl.model.pci import canonical_address
from gdsctl.parse import pasted
from gdsctl.record import Record, Warned


class QueriedGpu(Record, frozen=True, kw_only=True):
    """None: nvidia-smi printed `[N/A]` or the like."""

    index: int
    pci_address: str | None = None
    name: str | None = None
    uuid: str | None = None
    memory_bytes: int | None = None
    driver_version: str | None = None
    compute_capability: str | None = None


class NvidiaSmiQuery(Record, frozen=True, kw_only=True):
    gpus: tuple[QueriedGpu, ...]
    warnings: tuple[Warned, ...] = ()


_INDEX = re.compile(r"\d{1,4}", re.ASCII)
_MEMORY = re.compile(r"(\d{1,9}) MiB", re.ASCII)
_VERSION = re.compile(r"\d{1,4}(?:\.\d{1,4}){1,3}", re.ASCII)
_UUID = re.compile(r"(?:GPU|MIG)-\S{1,64}", re.ASCII)


def parse(text: str) -> NvidiaSmiQuery:
    """One row a GPU. Raises InputError where no line is one."""
    gpus = []
    warnings = []
    for number, line in enumerate(pasted.lines(text), 1):
        cells = [cell.strip() for cell in line[:4096].split(",")]
        if len(cells) != 7 or not _INDEX.fullmatch(cells[0]):
            if line.strip():
                warnings.append(Warned(line=number, message="not a row of seven fields"))
            continue
        index, address, name, uuid, memory, driver, capability = cells
        size = _MEMORY.fullmatch(memory)
        gpus.append(
            QueriedGpu(
                index=int(index),
                pci_address=canonical_address(address),
                name=name if name and not name.startswith("[") else None,
                uuid=uuid if _UUID.fullmatch(uuid) else None,
                memory_bytes=int(size[1]) << 20 if size else None,
                driver_version=driver if _VERSION.fullmatch(driver) else None,
                compute_capability=capability if _VERSION.fullmatch(capability) else None,
            )
        )
    if not gpus:
        raise InputError("not the rows of nvidia-smi --query-gpu", line=1)
    return NvidiaSmiQuery(gpus=tuple(gpus), warnings=tuple(warnings))

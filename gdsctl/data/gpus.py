"""GPU models that GPUDirect Storage tells apart: rows of `gpus.toml`."""

from __future__ import annotations

import functools
import re
from typing import Literal

from gdsctl.data.tables import load
from gdsctl.record import Record


class GpuModel(Record, frozen=True, kw_only=True):
    """A model or a family of models.

    `pattern`: regular expression found in the name that NVML, nvidia-smi or pci.ids give; `device_ids`: PCI device
    ids, 4 hex digits. `compute_capability` None: differs within the row. `p2pdma_listed`: on NVIDIA's list of GPUs
    for P2PDMA; `force_p2p`: older than Hopper, so that P2PDMA also needs ForceP2P=0; `static_bar1`: the driver can map
    the whole memory at BAR1 (Turing and newer); `c2c`: hangs on a Grace CPU by NVLink-C2C;
    `nvlinks`: how many NVLinks the largest GPU of the row has (NVIDIA's architecture white papers).
    """

    name: str
    pattern: str
    device_ids: tuple[str, ...] = ()
    kind: Literal["datacenter", "workstation", "geforce", "integrated", "vgpu"]
    compute_capability: str | None = None
    p2pdma_listed: bool = False
    force_p2p: bool = False
    static_bar1: bool = True
    c2c: bool = False
    nvlinks: int | None = None
    source: str


class _Table(Record, frozen=True, kw_only=True):
    gpu: tuple[GpuModel, ...]


@functools.cache
def models() -> tuple[GpuModel, ...]:
    """The rows, narrow ones first."""
    return load("gpus.toml", _Table).gpu


@functools.cache
def _patterns() -> tuple[tuple[re.Pattern[str], GpuModel], ...]:
    return tuple((re.compile(model.pattern, re.IGNORECASE), model) for model in models())


def by_name(name: str) -> GpuModel | None:
    """The row of a GPU by its name; None where no row knows it."""
    shown = name[:200]  # names are short; a longer one is no name, and patterns stay cheap
    return next((model for pattern, model in _patterns() if pattern.search(shown)), None)


def by_device_id(device_id: str) -> GpuModel | None:
    """The row of a GPU by its PCI device id (4 hex digits, vendor 10de); None where no row knows it."""
    return next((model for model in models() if device_id.lower() in model.device_ids), None)

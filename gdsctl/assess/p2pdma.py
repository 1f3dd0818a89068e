"""What the rules on the kernel's P2PDMA have in common: when they matter, and for which mounts."""

from __future__ import annotations

from gdsctl.assess.rule import Scope
from gdsctl.assess.view import View
from gdsctl.data import gpus
from gdsctl.model.devices import Gpu


def scope(view: View) -> Scope | None:
    """The mounts that P2PDMA is switched on for, or None where it is off (or not known) or no mount could use it."""
    if view.p2pdma_wanted is not True or not view.p2pdma_storages or not view.gpus:
        return None
    return Scope(mounts=frozenset(storage.mount.target for storage in view.p2pdma_storages))


def model(view: View, gpu: Gpu) -> gpus.GpuModel | None:
    """The table's row for a GPU, by name or else by PCI device id."""
    row = gpus.by_name(gpu.name) if gpu.name else None
    if row is None and gpu.address:
        device = view.device(gpu.address)
        row = gpus.by_device_id(device.device_id) if device and device.device_id else None
    return row

"""What the rules on the kernel's P2PDMA have in common: when they matter, and for which mounts."""

from __future__ import annotations

import msgspec

from gdsctl.assess.cufile_merge import Merged
from gdsctl.assess.rule import Fail, Scope
from gdsctl.assess.view import View, gpu_key
from gdsctl.data import gpus
from gdsctl.data.filesystems import Capability
from gdsctl.data.limits import numbers
from gdsctl.model.devices import Gpu


def scope(view: View) -> Scope | None:
    """The mounts that P2PDMA is switched on for, or None where it is off (or not known) or no mount could use it."""
    if view.p2pdma_wanted is not True or not view.p2pdma_storages or not view.gpus:
        return None
    return Scope(mounts=frozenset(storage.mount.target for storage in view.p2pdma_storages))


_LASTING = (
    "driver.proprietary",
    "kernel.no-p2pdma",
    "kernel.p2pdma-host-bridge",
    "p2pdma.driver-too-old",
    "p2pdma.filesystem-unsupported",
    "p2pdma.gpu-unsupported",
)
_FIRST = (1, 13)


def obstacles(view: View, mounts: frozenset[str]) -> tuple[str, ...]:
    """What would bar P2PDMA on all of these mounts, were it switched on: kernel, driver, GPUs, GDS. () where it may work.

    What settings alone change (registry keys, cufile.json, multipath) does not count.
    """
    from gdsctl.assess.rules import rules  # the rules are built upon this module

    if view.version and numbers(view.version) < _FIRST:
        return (f"GDS {view.version} is older than 1.13, the first with P2PDMA",)
    values = dict(view.config.merged or {})
    values["properties"] = {**values.get("properties", {}), "use_pci_p2pdma": True}
    switched_on = msgspec.structs.replace(view.config, known=True, result=Merged(values=values, origin={}))
    tried = View(view.node, switched_on, view.pairs)
    fails = [
        verdict
        for rule in rules()
        if rule.id in _LASTING
        for verdict in rule.check(tried)
        if isinstance(verdict, Fail) and "p2pdma" in (rule.blocks if verdict.blocks is None else verdict.blocks)
    ]
    wanted = [(gpu_key(gpu), mount) for gpu in view.gpus for mount in mounts]
    if not all(any(fail.scope.covers(*pair) for fail in fails) for pair in wanted):
        return ()
    return tuple(dict.fromkeys(fail.message for fail in fails if any(fail.scope.covers(*pair) for pair in wanted)))


def kernel_too_old(view: View, row: Capability) -> bool | None:
    """Is the kernel older than the first that carries P2PDMA to this storage? None: it is not known."""
    platform = view.node.platform
    if row.p2pdma_kernel is None or platform.arch == "aarch64":
        return False
    return None if platform.kernel_version is None else platform.kernel_version[:2] < row.p2pdma_kernel


def model(view: View, gpu: Gpu) -> gpus.GpuModel | None:
    """The table's row for a GPU, by name or else by PCI device id."""
    row = gpus.by_name(gpu.name) if gpu.name else None
    if row is None and gpu.address:
        device = view.device(gpu.address)
        row = gpus.by_device_id(device.device_id) if device and device.device_id else None
    return row

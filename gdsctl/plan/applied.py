"""A node as it would be with a plan carried out, so that the plan can be judged by the same rules as the node."""

from __future__ import annotations

import msgspec

from gdsctl.model.devices import Block
from gdsctl.model.node import Node
from gdsctl.model.pci import ACS_REDIRECTING, PciDevice
from gdsctl.model.software import Module, NvidiaDriver, NvidiaFs
from gdsctl.plan import cufile, lnet, mounts, static_routing
from gdsctl.plan.cufile import CufilePlan
from gdsctl.plan.driver import MODPROBE, DriverPlan
from gdsctl.plan.lnet import LnetPlan
from gdsctl.plan.mounts import MountPlan

_replace = msgspec.structs.replace
# nvidia-fs makes max_devices of them, 16 by default (NVIDIA/gds-nvidia-fs src/nvfs-core.c).
_DEVICE_NODES = tuple(f"/dev/nvidia-fs{number}" for number in range(16))


def with_mounts(node: Node, plans: tuple[MountPlan, ...]) -> Node:
    return _replace(node, mounts=mounts.mounted(node.mounts, plans))


def with_lnet(node: Node, plan: LnetPlan) -> Node:
    """LNet with the interfaces of the plan. Where it is loaded and was not read, what it has besides stays unknown."""
    if not plan.nics:
        return node
    mounts_then = tuple(
        _replace(mount, backing=_replace(mount.backing, nics=plan.nics[mount.target]))
        if mount.target in plan.nics
        else mount
        for mount in node.mounts
    )
    before = lnet.known(node)
    return _replace(node, mounts=mounts_then, lnet=None if before is None else (*before, *plan.nis))


def with_cufile(node: Node, plan: CufilePlan) -> Node:
    """One file with the planned values, no variable beside it, and the static routing file that it may need."""
    text = msgspec.json.encode(plan.values).decode()
    config = _replace(node.gds.cufile_config, files=(cufile.PATH,), texts={cufile.PATH: text}, env={})
    if plan.static.needed:
        paths = {**config.paths, static_routing.PATH: True}
        config = _replace(config, paths=paths, static_routing=plan.static.text)
    gaps = tuple(g for g in node.gaps if not (g.section == "gds" and g.field.startswith("cufile_config")))
    return _replace(node, gds=_replace(node.gds, cufile_config=config), gaps=gaps)


def with_driver(node: Node, plan: DriverPlan) -> Node:
    node = _replace(
        node,
        modules=_modules(node, plan),
        nvidia_driver=_driver(node.nvidia_driver, plan),
        nvidia_fs=_nvidia_fs(node, plan),
    )
    if plan.multipath_off:
        node = _replace(node, nvme=tuple(_replace(nvme, multipath=False) for nvme in node.nvme))
    if plan.md_arrays:
        blocks = tuple(_known_to_udev(block) if block.name in plan.md_arrays else block for block in node.block)
        node = _replace(node, block=blocks)
    for hook in plan.load:
        if hook in node.nvfs_hooks:
            # Loaded, it may be patched or stock: only the machine can tell.
            unknown = _replace(node.nvfs_hooks[hook], state="unknown")
            node = _replace(node, nvfs_hooks={**node.nvfs_hooks, hook: unknown})
    return _arguments(node, plan)


def _known_to_udev(array: Block) -> Block:
    """As `mdadm --detail --export` tells it."""
    told = {"MD_LEVEL": array.level or "", "MD_DEVICES": str(len(array.slaves))}
    return _replace(array, udev={**(array.udev or {}), **told})


def _driver(driver: NvidiaDriver, plan: DriverPlan) -> NvidiaDriver:
    if plan.registry is None or not (plan.registry_to_write or plan.reboot):
        return driver
    coming = plan.registry if plan.registry_to_write else driver.modprobe_registry_dwords
    written = dict.fromkeys(plan.registry, MODPROBE)
    return _replace(
        driver,
        registry_dwords=plan.registry if coming is None else coming,
        modprobe_registry_dwords=coming,
        modprobe_files=written if plan.registry_to_write else driver.modprobe_files,
    )


def _modules(node: Node, plan: DriverPlan) -> dict[str, Module]:
    modules = dict(node.modules)
    for name in plan.load:
        sure = name not in plan.unsure
        modules[name] = _replace(modules.get(name, Module(loaded=None)), loaded=True if sure else None)
    if plan.multipath_off:
        core = modules.get("nvme_core", Module(loaded=True))
        modules["nvme_core"] = _replace(core, parameters={**(core.parameters or {}), "multipath": "N"})
    return modules


def _nvidia_fs(node: Node, plan: DriverPlan) -> NvidiaFs:
    nvfs = node.nvidia_fs
    if "nvidia_fs" in plan.load:
        if "nvidia_fs" in plan.unsure:
            return _replace(nvfs, loaded=None)
        module = node.modules.get("nvidia_fs")
        version = nvfs.version or (module.version if module else None)
        return _replace(nvfs, loaded=True, version=version, device_nodes=_DEVICE_NODES)
    if plan.reload_nvidia_fs:
        return _replace(nvfs, device_nodes=_DEVICE_NODES)
    return nvfs


def _arguments(node: Node, plan: DriverPlan) -> Node:
    words = [argument.word for argument in plan.arguments if argument.needed]
    if not words:
        return node
    # The kernel takes the last of a word given twice; pci= words add up.
    cmdline = " ".join(filter(None, (node.platform.cmdline, *words)))
    node = _replace(node, platform=_replace(node.platform, cmdline=cmdline))
    for word in words:
        if word == "iommu=pt":
            groups = tuple(_replace(group, type="identity") for group in node.iommu.groups)
            iommu = _replace(node.iommu, state="passthrough", evidence=("iommu=pt on the command line",), groups=groups)
            node = _replace(node, iommu=iommu)
        elif word.startswith("rootflags="):
            options = word.removeprefix("rootflags=").split(",")
            found = tuple(
                _replace(mount, options=(*(o for o in mount.options if o not in options), *options))
                if mount.target == "/"
                else mount
                for mount in node.mounts
            )
            node = _replace(node, mounts=found)
    if plan.clear_acs:
        cleared = frozenset(plan.clear_acs)
        devices = tuple(_without_redirection(d) if d.address in cleared else d for d in node.pci.devices)
        node = _replace(node, pci=_replace(node.pci, devices=devices))
    return node


def _without_redirection(device: PciDevice) -> PciDevice:
    enabled = tuple(bit for bit in device.acs.enabled if bit not in ACS_REDIRECTING)
    state = device.acs.state if enabled else "disabled"
    return _replace(device, acs=_replace(device.acs, enabled=enabled, redirects=False, state=state))

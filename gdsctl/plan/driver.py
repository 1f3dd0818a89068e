"""Modules, their options, the kernel command line and the udev rule for md arrays as they should be."""

from __future__ import annotations

import msgspec

from gdsctl.assess import acs_parameters
from gdsctl.assess.rules.driver_registry_key_missing import needed
from gdsctl.assess.view import Storage
from gdsctl.data.driver_registry import registry_keys
from gdsctl.plan.context import Context
from gdsctl.plan.intent import PlanMode
from gdsctl.plan.mounts import MountPlan
from gdsctl.record import Record

MODPROBE = "/etc/modprobe.d/gdsctl.conf"
_CMDLINE = "/proc/cmdline"  # stands for words nvidia.NAME=VALUE among the files of modprobe.d
_ACS_RISK = (
    "ends the isolation of devices handed to virtual machines; clearing ACS on every bridge has taken drives down, so "
    "clear only these ports, one at a time"
)


class Argument(Record, frozen=True, kw_only=True):
    """A word for the kernel command line. `needed` false: a finding advises it, but no intended path hangs on it."""

    word: str
    why: str
    needed: bool = True
    risk: str | None = None


class DriverPlan(Record, frozen=True, kw_only=True):
    """`registry`: all of NVreg_RegistryDwords, None where the plan needs none; `*_to_write`: modprobe.d lacks it.

    `registry_here`: gdsctl's own file is the one that sets it, since a second definition would replace the first.
    `other_files`: modprobe.d files that set NVreg_RegistryDwords too; `reboot`: what runs is not what is written.
    `load`: modules to load; `unsure`: modules of which it is not known whether the node has them.
    `md_arrays`: arrays of an intended mount of which udev does not know what libcufile asks.
    `redirecting`: ports that redirect on the way of an intended mount; `clear_acs`: those, where it costs a route.
    """

    registry: dict[str, str] | None = None
    registry_to_write: bool = False
    registry_here: bool = False
    other_files: tuple[str, ...] = ()
    multipath_off: bool = False
    multipath_to_write: bool = False
    reboot: bool = False
    load: tuple[str, ...] = ()
    unsure: tuple[str, ...] = ()
    reload_nvidia_fs: bool = False
    arguments: tuple[Argument, ...] = ()
    md_arrays: tuple[str, ...] = ()
    redirecting: tuple[str, ...] = ()
    clear_acs: tuple[str, ...] = ()
    told: tuple[str, ...] = ()


def desire(context: Context, mode: PlanMode, mounts: tuple[MountPlan, ...]) -> DriverPlan:
    storages = tuple(storage for _, storage in context.direct_storages) if mode not in ("compat", "undecided") else ()
    over_p2pdma = tuple(s for s in storages if context.tries_p2pdma(s)) if mode == "p2pdma" else ()
    over_nvfs = tuple(s for s in storages if context.nvidia_fs_able(s) and s not in over_p2pdma)
    registry, registry_to_write, registry_runs, other, told = _registry(context, over_p2pdma)
    multipath_off, behind = _multipath(context, over_p2pdma)
    load, unsure = _modules(context, storages, over_nvfs)
    nvfs = context.node.nvidia_fs
    by_argument = _multipath_argument(context, multipath_off, behind)
    own = MODPROBE in (context.node.nvidia_driver.modprobe_files or {}).values()
    return DriverPlan(
        registry=registry,
        registry_to_write=registry_to_write,
        registry_here=registry is not None and (registry_to_write or own),
        other_files=other,
        multipath_off=multipath_off,
        multipath_to_write=behind and not by_argument,
        reboot=(registry is not None and not registry_runs) or behind,
        load=load,
        unsure=unsure,
        reload_nvidia_fs=bool(over_nvfs) and nvfs.loaded is True and nvfs.device_nodes == (),
        arguments=(*_rootflags(context, mounts), *by_argument),
        md_arrays=_md_arrays(context, (*over_p2pdma, *over_nvfs)),
        told=told,
    )


def _registry(
    context: Context, over_p2pdma: tuple[Storage, ...]
) -> tuple[dict[str, str] | None, bool, bool, tuple[str, ...], tuple[str, ...]]:
    """(all keys, to be written, running already, other files that set some, sentences)."""
    keys = needed(context.view) if over_p2pdma else ()
    if not keys:
        return None, False, True, (), ()
    driver = context.node.nvidia_driver
    running, coming = driver.registry_dwords, driver.modprobe_registry_dwords
    base = coming if coming is not None else running
    spelled = {key.name.lower(): key.name for key in registry_keys()}
    told = []
    merged: dict[str, str] = {}
    for name, value in (base or {}).items():
        if spelled.get(name.lower(), name) != name:
            told.append(f"{name}={value} is dropped: the driver knows only {spelled[name.lower()]}")
        else:
            merged[name] = value
    for key in keys:
        if not key.satisfied_by(merged.get(key.name)):
            if key.name in merged:
                told.append(f"{key.name} changes from {merged[key.name]} to {key.set_to}: {key.meaning}")
            merged[key.name] = key.set_to
    if base is None:
        told.append(
            "which RegistryDwords are set today is not known: add what else you need to the line before you install it"
        )
    satisfied = [
        values is not None and all(key.satisfied_by(values.get(key.name)) for key in keys)
        for values in (running, coming)
    ]
    runs = satisfied[0] if running is not None else False
    to_write = not satisfied[1] if coming is not None else not runs
    files = tuple(sorted(set((driver.modprobe_files or {}).values()) - {MODPROBE, _CMDLINE}))
    if _CMDLINE in (driver.modprobe_files or {}).values():
        told.append(
            "nvidia.NVreg_RegistryDwords= stands on the kernel command line and beats modprobe.d: take it out of the boot "
            "loader's file; its keys are in the new line"
        )
    to_write = to_write or (coming is not None and merged != coming) or len(files) > 1
    return merged, to_write, runs and (coming is None or running == merged or satisfied[0]), files, tuple(told)


def _multipath(context: Context, over_p2pdma: tuple[Storage, ...]) -> tuple[bool, bool]:
    """(native multipath must be off, drives of an intended mount sit behind it today)."""
    if context.node.platform.arch == "aarch64":
        return False, False
    strict = [s for s in over_p2pdma if s.direct is not None and not s.direct.p2pdma_multipath]
    behind = any(nvme.multipath for s in strict for nvme in context.view.controllers(s.mount))
    core = context.node.modules.get("nvme_core")
    off = (core.parameters or {}).get("multipath") == "N" if core else False
    return bool(strict) and (behind or off), behind


def _multipath_argument(context: Context, wanted: bool, behind: bool) -> list[Argument]:
    """A built-in nvme_core reads no modprobe.d, and the command line beats it."""
    core = context.node.modules.get("nvme_core")
    built_in = core is not None and core.loaded is True and core.size is None
    named = "nvme_core.multipath=" in (context.node.platform.cmdline or "")
    if not wanted or not behind or not (built_in or named):
        return []
    why = "nvme_core is built into the kernel" if built_in else "the command line names nvme_core.multipath already"
    return [Argument(word="nvme_core.multipath=N", why=f"{why}, so modprobe.d does not decide")]


def _md_arrays(context: Context, storages: tuple[Storage, ...]) -> tuple[str, ...]:
    """Inside a container the host's udev decides."""
    found: dict[str, None] = {}
    for storage in () if context.view.in_container else storages:
        if storage.mount.backing.kind != "md" or not storage.mount.device or storage.target is None:
            continue
        array = next((block for block in context.view.stack(storage.mount.device) if block.kind == "md"), None)
        if array is None or (array.udev is None and context.node.gds.udev_rule_md is not False):
            continue
        if any(name not in (array.udev or {}) for name in storage.target.udev_properties):
            found[array.name] = None
    return tuple(found)


def _rootflags(context: Context, mounts: tuple[MountPlan, ...]) -> list[Argument]:
    """The kernel takes the last rootflags= only, so what stood there is said again."""
    words = (context.node.platform.cmdline or "").split()
    before = [word.removeprefix("rootflags=") for word in words if word.startswith("rootflags=")][-1:]
    found = []
    for plan in mounts:
        names = {option.partition("=")[0] for option in plan.at_boot}
        kept = [option for option in ",".join(before).split(",") if option and option.partition("=")[0] not in names]
        if plan.at_boot:
            word = f"rootflags={','.join((*kept, *plan.at_boot))}"
            found.append(Argument(word=word, why="the root file system takes its options from here"))
    return found


def _modules(
    context: Context, storages: tuple[Storage, ...], over_nvfs: tuple[Storage, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(modules to load, those of them that may not be installed)."""
    modules = context.node.modules
    load: list[str] = []
    unsure: list[str] = []
    if over_nvfs and context.node.nvidia_fs.loaded is False:
        load.append("nvidia_fs")
        found = modules.get("nvidia_fs")
        if found is None or (found.version is None and found.license is None):
            unsure.append("nvidia_fs")
    peermem = modules.get("nvidia_peermem")
    if any(s.takes_user_rdma for s in storages) and peermem is not None and peermem.loaded is False:
        load.append("nvidia_peermem")
    for storage in over_nvfs:
        hook = context.node.nvfs_hooks.get(storage.hook or "")
        if storage.hook and hook is not None and hook.state == "not_loaded" and storage.hook not in load:
            load.append(storage.hook)
            unsure.append(storage.hook)
    return tuple(load), tuple(unsure)


def with_findings(context: Context, plan: DriverPlan) -> DriverPlan:
    """The same, with what the findings on IOMMU and ACS ask of the command line and of ports."""
    judged = context.assessment.verdicts.judged
    targets = {wish.target for wish, _ in context.direct_storages}
    arguments = list(plan.arguments)
    ports: dict[str, None] = {}
    translated = [j for j in judged if j.finding.id == "iommu.translated"]
    if translated and "iommu=pt" not in (context.node.platform.cmdline or "").split():
        arguments.append(
            Argument(
                word="iommu=pt",
                why=translated[0].finding.message,
                needed=any(j.finding.blocks for j in translated),
                risk=translated[0].finding.remedy.risk,
            )
        )
    redirecting = [j for j in judged if j.finding.id == "acs.redirect-on-path"]
    blocking = any(j.finding.blocks for j in redirecting)
    for gpu in context.gpus if redirecting else ():
        for _, storage in context.direct_storages:
            for pair in context.view.pairs_of(gpu, storage.mount):
                if pair.acs_redirect_at and pair.meet == "switch" and (pair.p2p == "blocked" or not blocking):
                    ports.update(dict.fromkeys(pair.acs_redirect_at))
    told: tuple[str, ...] = ()
    if ports and targets:
        word, told = _disable_acs_redir(context, tuple(ports))
        arguments.append(Argument(word=word, why=redirecting[0].finding.message, needed=blocking, risk=_ACS_RISK))
    return msgspec.structs.replace(
        plan,
        arguments=tuple(arguments),
        redirecting=tuple(ports),
        clear_acs=tuple(ports) if blocking else (),
        told=(*plan.told, *told),
    )


def _disable_acs_redir(context: Context, ports: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """The word, and sentences. The kernel takes the last disable_acs_redir only, so what stood there is said again."""
    before = acs_parameters.entries(context.node.platform.cmdline or "")
    kept = tuple(e.text for e in before if e.parameter == "disable_acs_redir" and acs_parameters.readable(e))
    told = []
    if any(e.parameter == "disable_acs_redir" for e in before):
        told.append(
            "the command line has pci=disable_acs_redir= already and the kernel takes the last one only: take the old "
            "one out; its entries are in the new one"
        )
    devices = [device for port in ports if (device := context.view.device(port))]
    topology = context.view.topology
    for entry in before:
        named = [d.address for d in devices if acs_parameters.names(entry, d, topology)]
        if entry.parameter == "config_acs" and named and not entry.void:
            told.append(
                f"pci=config_acs={entry.text} names {', '.join(named)} and beats disable_acs_redir: clear the bits there"
            )
    text = ";".join(dict.fromkeys((*kept, *ports)))
    # A GRUB script ends a command at `;` outside quotes. Where the quotes get through, the kernel takes them off.
    return f'pci="disable_acs_redir={text}"' if ";" in text else f"pci=disable_acs_redir={text}", tuple(told)

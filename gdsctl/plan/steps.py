"""What to do on the node, in order: drivers and boot first, mounts next, cufile.json last. A right node needs nothing."""

from __future__ import annotations

from typing import Any

import msgspec

from gdsctl.assess import cufile_merge
from gdsctl.data import cufile_keys
from gdsctl.model.shell import quoted
from gdsctl.plan import cufile
from gdsctl.plan.context import Context
from gdsctl.plan.cufile import CufilePlan
from gdsctl.plan.documents import Step
from gdsctl.plan.driver import MODPROBE, DriverPlan
from gdsctl.plan.mounts import MountPlan
from gdsctl.record import Record

_LOAD = "/etc/modules-load.d/gdsctl.conf"
_RED_HAT = frozenset({"rhel", "centos", "rocky", "almalinux", "fedora", "ol", "amzn"})
_INITRAMFS = "update-initramfs -u -k all || dracut -f --regenerate-all"
# What becomes of the text that NVreg_RegistryDwords="..." stands in, other options of the line kept.
_TAKE_OUT = r"""s/[[:space:]]+NVreg_RegistryDwords=("[^"]*"|[^[:space:]]+)//g"""


class Difference(Record, frozen=True, kw_only=True):
    """A key whose effective value is not the planned one; `origin`: file or variable that set it, None for a default."""

    key: str
    installed: Any
    planned: Any
    origin: str | None
    why: str
    required: bool


def differences(context: Context, plan: CufilePlan) -> tuple[Difference, ...] | None:
    """Planned against effective, key by key, defaults counted in; None where the installed configuration is not known."""
    config = context.view.config
    if config.result is None:
        return None
    planned = {setting.key: setting for setting in plan.settings}
    found = []
    for key in cufile_keys.known(context.release):
        setting = planned.get(key.key)
        if setting is None and not cufile.governed(key):
            continue
        installed = _effective(context, key)
        wanted = setting.value if setting is not None else key.default_in(context.release)
        if _same(installed, wanted):
            continue
        found.append(
            Difference(
                key=key.key,
                installed=_plain(installed),
                planned=_plain(wanted),
                origin=config.origin_of(key.pointer) or _inner_origin(context, key.pointer),
                why=setting.why if setting else "the plan leaves the key out",
                required=setting.required if setting is not None else key.key not in cufile.ROUTING,
            )
        )
    return tuple(found)


def _effective(context: Context, key: cufile_keys.Key) -> Any:
    result = context.view.config.result
    value = cufile_merge.get(result.values, key.key) if result else None
    if value is None and key.section == "properties" and key.key.startswith("properties.gpu_bounce_buffer_slab_config"):
        return None
    return key.default_in(context.release) if value is None else value


def _inner_origin(context: Context, pointer: str) -> str | None:
    result = context.view.config.result
    inside = (origin for place, origin in (result.origin if result else {}).items() if place.startswith(f"{pointer}/"))
    return next(inside, None)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _same(installed: Any, wanted: Any) -> bool:
    installed, wanted = _plain(installed), _plain(wanted)
    if isinstance(installed, bool) != isinstance(wanted, bool):
        return False
    empty: tuple[Any, ...] = (None, [], {})
    return bool(installed == wanted or (installed in empty and wanted in empty))


def steps(now: Context, file: CufilePlan, modules: DriverPlan, wishes: tuple[MountPlan, ...]) -> tuple[Step, ...]:
    """Numbered from 1. `now`: the node as it is."""
    found = [
        *_module_options(modules),
        *_arguments(now, modules),
        *_reboot(modules),
        *_ports(modules),
        *_load(now, modules),
        *_mounts(wishes),
        *_cufile(now, file),
    ]
    return tuple(msgspec.structs.replace(step, order=number) for number, step in enumerate(found, 1))


def _module_options(plan: DriverPlan) -> list[Step]:
    if not (plan.registry_to_write or plan.multipath_to_write):
        return []
    what = []
    commands = []
    undo = [f"rm {MODPROBE}"]
    risk = []
    if plan.registry_to_write:
        what.append("the driver's registry keys for P2PDMA")
        for path in plan.other_files:
            # One options line for the driver's registry keys: a second one replaces the first.
            commands.append(f"sed -i.before-gdsctl -E {quoted(_TAKE_OUT)} {quoted(path)}")
            undo.append(f"mv {quoted(path + '.before-gdsctl')} {quoted(path)}")
        risk.append("BAR1 then maps all GPU memory: a board or BIOS without room for it leaves the driver unloaded")
    if plan.multipath_to_write:
        what.append("native NVMe multipath off")
        risk.append("drives with two ports lose their second path, and device names can change: mount by UUID")
    commands += [f"install -m 0644 modprobe.conf {MODPROBE}", _INITRAMFS]
    undo.append(_INITRAMFS)
    return [
        Step(
            order=0,
            what=f"Write {' and '.join(what)} into {MODPROBE} and rebuild the initramfs",
            commands=tuple(commands),
            risk="; ".join(risk),
            undo=tuple(undo),
        )
    ]


def _arguments(now: Context, plan: DriverPlan) -> list[Step]:
    needed = [argument for argument in plan.arguments if argument.needed]
    if not needed:
        return []
    words = " ".join(argument.word for argument in needed)
    if (now.node.platform.os_id or "") in _RED_HAT:
        commands: tuple[str, ...] = (f"grubby --update-kernel=ALL --args={quoted(words)}",)
        undo: tuple[str, ...] = (f"grubby --update-kernel=ALL --remove-args={quoted(words)}",)
    else:
        snippet = "/etc/default/grub.d/gdsctl.cfg"
        inside = words.replace('"', '\\"')
        line = f'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {inside}"'
        commands = ("mkdir -p /etc/default/grub.d", f"printf '%s\\n' {quoted(line)} > {snippet}", "update-grub")
        undo = (f"rm {snippet}", "update-grub")
    return [
        Step(
            order=0,
            what=f"Add {words} to the kernel command line: {'; '.join(argument.why for argument in needed)}",
            commands=commands,
            risk="; ".join(argument.risk for argument in needed if argument.risk)
            or "a wrong word can keep the node from booting",
            undo=undo,
        )
    ]


def _reboot(plan: DriverPlan) -> list[Step]:
    arguments = any(argument.needed for argument in plan.arguments)
    if not (plan.reboot or plan.registry_to_write or plan.multipath_to_write or arguments):
        return []
    written = plan.registry_to_write or plan.multipath_to_write
    rebuild = () if written or not plan.reboot else (_INITRAMFS,)
    return [
        Step(
            order=0,
            what="Reboot: module options and the command line count from the next boot on",
            commands=(*rebuild, "systemctl reboot"),
            needs_reboot=True,
            risk="drain the node first",
        )
    ]


def _ports(plan: DriverPlan) -> list[Step]:
    if not plan.clear_acs:
        return []
    return [
        Step(
            order=0,
            what=f"If they still redirect after the boot, end ACS redirection at {', '.join(plan.clear_acs)}",
            commands=("sh acs.sh --dry-run", "sh acs.sh"),
            risk="lost at the next boot; "
            + next((a.risk for a in plan.arguments if a.word.startswith("pci=") and a.risk), ""),
            undo=("sh acs.sh --undo",),
        )
    ]


def _load(now: Context, plan: DriverPlan) -> list[Step]:
    found = []
    for name in plan.load:
        commands = [f"modprobe {name}", f"grep -qx {name} {_LOAD} 2>/dev/null || echo {name} >> {_LOAD}"]
        what = f"Load {name}, now and at every boot"
        if name in plan.unsure and name == "nvidia_fs":
            what += " (install the package nvidia-fs, or nvidia-gds, first where modprobe does not find it)"
        found.append(
            Step(
                order=0,
                what=what,
                commands=tuple(commands),
                undo=(f"sed -i /^{name}$/d {_LOAD}", f"modprobe -r {name}"),
            )
        )
    if plan.reload_nvidia_fs:
        inside = now.node.container.kind not in (None, "none", "unknown")
        found.append(
            Step(
                order=0,
                what="Give the container /dev/nvidia-fs*: start it with the devices"
                if inside
                else "Reload nvidia_fs, whose device nodes are missing",
                commands=() if inside else ("modprobe -r nvidia_fs && modprobe nvidia_fs", "ls /dev/nvidia-fs*"),
                risk="unloading fails while a process uses cuFile",
            )
        )
    return found


def _mounts(wishes: tuple[MountPlan, ...]) -> list[Step]:
    found = []
    for plan in wishes:
        target = quoted(plan.target)
        options = quoted(",".join(plan.options))
        fresh = f"mount -t {plan.fstype} -o {options} -- {quoted(plan.source)} {target}"
        if plan.change == "remount":
            added = quoted(f"remount,{','.join(plan.added)}")
            step = Step(
                order=0,
                what=f"Mount {target} with {','.join(plan.added)} and write that into its line of /etc/fstab",
                commands=(f"mount -o {added} -- {target}",),
                risk="a file system in use may refuse the remount: unmount and mount it then",
                undo=(f"mount -o remount -- {target}",),
            )
        elif plan.change == "again":
            step = Step(
                order=0,
                what=f"Mount {target} again with {','.join(plan.added)}, and write the line of the artifact fstab into /etc/fstab",
                commands=(f"umount -- {target}", fresh),
                risk="processes with open files there keep the unmount from working",
                undo=(f"umount -- {target}", f"mount {target}"),
            )
        elif plan.change == "new":
            step = Step(
                order=0,
                what=f"Mount {target}, and write the line of the artifact fstab into /etc/fstab",
                commands=(f"mkdir -p -- {target}", fresh),
                undo=(f"umount -- {target}",),
            )
        else:
            continue
        found.append(step)
    return found


def _matters(difference: Difference) -> bool:
    key = cufile_keys.key(difference.key)
    return difference.required or (key is not None and cufile.governed(key))


def _cufile(now: Context, plan: CufilePlan) -> list[Step]:
    """Install the file, unless what is installed amounts to the same; then clear what would override it."""
    config = now.view.config
    found = differences(now, plan)
    if found is not None:
        # Without an intent a default is left unwritten; a tuned value in a process's own file is its own affair.
        strict = now.wanted.path is not None
        found = tuple(d for d in found if _matters(d) or (strict and d.origin in (None, cufile.PATH)))
    files = now.node.gds.cufile_config.files
    if found == () and config.fatal is None:
        return []
    backup = f"{cufile.PATH}.before-gdsctl"
    there = files is None or cufile.PATH in files
    overriding = [d for d in found or () if d.origin not in (None, cufile.PATH)]
    steps = []
    if found is None or config.fatal is not None or len(overriding) < len(found):
        changed = [d for d in found or () if d.origin in (None, cufile.PATH)]
        shown = ", ".join(d.key for d in changed[:4]) + (f" and {len(changed) - 4} more" if len(changed) > 4 else "")
        reason = f": {shown}" if shown else ": the installed file is refused by the library" if config.fatal else ""
        steps.append(
            Step(
                order=0,
                what=f"Install {cufile.PATH}{reason}",
                commands=(
                    *((f"test ! -e {cufile.PATH} || cp -a {cufile.PATH} {backup}",) if there else ()),
                    f"install -m 0644 cufile.json {cufile.PATH}",
                ),
                risk="processes that run keep the old values until they start again",
                undo=(f"mv {backup} {cufile.PATH}" if there else f"rm {cufile.PATH}",),
            )
        )
    by_origin: dict[str, list[str]] = {}
    for difference in overriding:
        by_origin.setdefault(str(difference.origin), []).append(difference.key)
    other = [path for path in files or () if path != cufile.PATH]
    if config.fatal is not None and config.fatal.path in other:
        by_origin.setdefault(config.fatal.path, [])
    for origin, keys in by_origin.items():
        if origin in other:
            what = (
                f"Take {', '.join(keys) or 'its mistakes'} out of {quoted(origin)}, which is merged over {cufile.PATH}"
            )
        else:
            what = f"Unset {origin} where cuFile processes start: it overrides {', '.join(keys)}"
        steps.append(Step(order=0, what=what))
    return steps

"""What to do on the node, in order: drivers and boot first, mounts next, cufile.json last. A right node needs nothing."""

from __future__ import annotations

from typing import Any

import msgspec

from gdsctl.assess import cufile_merge
from gdsctl.data import cufile_keys
from gdsctl.data.distributions import distribution
from gdsctl.model.shell import fstab_field, quoted, sed_literal
from gdsctl.plan import cufile, lnet, nvme_of, static_routing
from gdsctl.plan.context import Context
from gdsctl.plan.cufile import CufilePlan
from gdsctl.plan.documents import Step, spelt
from gdsctl.plan.driver import MODPROBE, DriverPlan
from gdsctl.plan.lnet import LnetPlan
from gdsctl.plan.mounts import FSTAB, MountPlan, fstab_line
from gdsctl.plan.nvme_of import NvmeOfPlan
from gdsctl.record import Record

_LOAD = "/etc/modules-load.d/gdsctl.conf"
_SHOWN = 4  # keys in a step's title
_MD_RULE = "/etc/udev/rules.d/63-gdsctl-md.rules"
_MD_IMPORT = (
    'SUBSYSTEM=="block", KERNEL=="md*", ACTION!="remove", IMPORT{program}="/usr/sbin/mdadm --detail --export $devnode"'
)
_COMPAT = "properties.allow_compat_mode"
_BACKUP = ".before-gdsctl"
# For a distribution that no row names.
_ANY_INITRAMFS = "if command -v update-initramfs; then update-initramfs -u -k all; else dracut -f --regenerate-all; fi"
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


def steps(
    now: Context,
    file: CufilePlan,
    modules: DriverPlan,
    wishes: tuple[MountPlan, ...],
    *,
    fabrics: NvmeOfPlan,
    nets: LnetPlan,
    keys: frozenset[str] | None,
    pathless: tuple[str, ...] = (),
) -> tuple[Step, ...]:
    """Numbered from 1. `now`: the node as it is; `keys`: those for which cufile.json is worth a step, None: all.

    `pathless`: mounts that the file would leave without any path.
    """
    reboot = _reboot(now, modules)
    found = [
        *_module_options(now, modules),
        *_arguments(now, modules),
        *(_before_reboot(wishes) if reboot else ()),
        *reboot,
        *_ports(modules),
        *_load(now, modules, nets),
        *_lnet(nets),
        *_connections(fabrics, modules),
        *_md_rule(modules),
        *_mounts(wishes, rebooted=bool(reboot)),
        *(_static_routing(file) if keys is None else ()),
        *(_held(_cufile(now, file, keys), pathless) if (keys is None or keys) and not unread(now) else ()),
    ]
    return tuple(msgspec.structs.replace(step, order=number) for number, step in enumerate(found, 1))


def _initramfs(now: Context) -> str:
    row = distribution(now.node.platform.os_id)
    return row.initramfs if row else _ANY_INITRAMFS


def _module_options(now: Context, plan: DriverPlan) -> list[Step]:
    if not (plan.registry_to_write or plan.multipath_to_write):
        return []
    what = []
    commands = []
    undo = [_restored(MODPROBE)]
    risk = [f"{MODPROBE} is replaced: what else stands in it is kept in {MODPROBE}{_BACKUP} alone"]
    check = []
    if plan.registry_to_write:
        keys = ", ".join(f"{name}={value}" for name, value in (plan.registry or {}).items())
        what.append(f"the driver's registry keys for P2PDMA ({keys})")
        for path in plan.other_files:
            # One options line for the driver's registry keys: a second one replaces the first.
            what.append(f"those of {path}, which are taken out there")
            if not path.startswith("/etc/"):
                # A package's file: one of the same name in /etc takes its place (modprobe.d(5)).
                own = f"/etc/modprobe.d/{path.rpartition('/')[2]}"
                commands.append(f"cp -a {quoted(path)} {quoted(own)}")
                undo.append(f"rm {quoted(own)}")
                commands.append(f"sed -i -E {quoted(_TAKE_OUT)} {quoted(own)}")
            else:
                undo.append(_restored(path))
                commands.append(f"{_backed_up(path)} && sed -i -E {quoted(_TAKE_OUT)} {quoted(path)}")
        risk.append("BAR1 then maps all GPU memory: a board or BIOS without room for it leaves the driver unloaded")
        check.append("modprobe -c | grep NVreg_RegistryDwords")
    if plan.multipath_to_write:
        what.append("native NVMe multipath off")
        risk.append("drives with two ports lose their second path, and device names can change: mount by UUID")
        check.append("modprobe -c | grep 'nvme_core multipath'")
    elif plan.multipath_off:
        what.append("native NVMe multipath off as it is")
    if plan.registry_here and not plan.registry_to_write:
        what.append("the driver's registry keys as they stand there")
    rebuild = _initramfs(now)
    row = distribution(now.node.platform.os_id)
    commands += [f"{_backed_up(MODPROBE)} && install -m 0644 modprobe.conf {MODPROBE}", rebuild]
    undo.append(rebuild)
    return [
        Step(
            order=0,
            what=f"Write {', and '.join(what)}, into {MODPROBE} and rebuild the initramfs",
            commands=tuple(commands),
            risk="; ".join(risk),
            undo=tuple(undo),
            check=(*check, *((row.initramfs_check,) if row else ())),
        )
    ]


def _arguments(now: Context, plan: DriverPlan) -> list[Step]:
    needed = [argument for argument in plan.arguments if argument.needed]
    if not needed:
        return []
    words = " ".join(argument.word for argument in needed)
    row = distribution(now.node.platform.os_id)
    if row is not None and row.boot_loader == "grubby":
        commands: tuple[str, ...] = (f"grubby --update-kernel=ALL --args={quoted(words)}",)
        undo: tuple[str, ...] = (f"grubby --update-kernel=ALL --remove-args={quoted(words)}",)
    elif row is not None and row.boot_loader == "pbl":
        options = [quoted(argument.word) for argument in needed]
        commands = (*(f"pbl --add-option {option}" for option in options), "pbl --config")
        undo = (*(f"pbl --del-option {option}" for option in options), "pbl --config")
    else:
        snippet = "/etc/default/grub.d/gdsctl.cfg"
        inside = words.replace('"', '\\"')
        line = f'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {inside}"'
        # Words of an earlier plan stay: the last of a word given twice holds.
        append = f"grep -qxF {quoted(line)} {snippet} 2>/dev/null || printf '%s\\n' {quoted(line)} >> {snippet}"
        commands = ("mkdir -p /etc/default/grub.d", append, "update-grub")
        without = f"grep -vxF {quoted(line)} {snippet} > {snippet}.new"
        undo = (f"{without}; test -e {snippet} && mv {snippet}.new {snippet}", "update-grub")
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


def _reboot(now: Context, plan: DriverPlan) -> list[Step]:
    arguments = [argument for argument in plan.arguments if argument.needed]
    if not (plan.reboot or plan.registry_to_write or plan.multipath_to_write or arguments):
        return []
    written = plan.registry_to_write or plan.multipath_to_write
    rebuild = () if written or not plan.reboot else (_initramfs(now),)
    check = []
    if plan.registry is not None:
        check.append("grep RegistryDwords: /proc/driver/nvidia/params")
        # Only a GPU that a CUDA process has used shows its memory (seen with driver 580 and 595).
        check.append("cat /sys/bus/pci/drivers/nvidia/*/p2pmem/size  # after a CUDA process: the size of BAR1")
    if plan.multipath_off:
        check.append("cat /sys/module/nvme_core/parameters/multipath  # N")
    if arguments:
        check.append("cat /proc/cmdline")
    return [
        Step(
            order=0,
            what="Reboot: module options and the command line count from the next boot on",
            commands=(*rebuild, "systemctl reboot"),
            needs_reboot=True,
            risk="drain the node first",
            check=tuple(check),
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


def _load(now: Context, plan: DriverPlan, nets: LnetPlan) -> list[Step]:
    found = []
    for name in plan.load:
        if name == lnet.MODULE and nets.adding:
            continue
        commands = [f"modprobe {name}", f"grep -qx {name} {_LOAD} 2>/dev/null || echo {name} >> {_LOAD}"]
        what = f"Load {name}, now and at every boot"
        if name in plan.unsure and name == "nvidia_fs":
            row = distribution(now.node.platform.os_id)
            install = f"{row.install} nvidia-gds" if row else "install the package nvidia-gds"
            what += f" (where modprobe does not find it: {install})"
        found.append(
            Step(
                order=0,
                what=what,
                commands=tuple(commands),
                undo=(f"sed -i /^{name}$/d {_LOAD}", f"modprobe -r {name}"),
                check=("ls /dev/nvidia-fs*",) if name == "nvidia_fs" else (f"lsmod | grep -w ^{name}",),
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
                commands=() if inside else ("modprobe -r nvidia_fs && modprobe nvidia_fs",),
                check=("ls /dev/nvidia-fs*",),
                risk="unloading fails while a process uses cuFile",
            )
        )
    return found


def _lnet(plan: LnetPlan) -> list[Step]:
    """LNet's own service loads the module, sets it up and imports the file at boot (Lustre, lustre/conf/lnet.service)."""
    if not plan.adding:
        return []
    what = ", ".join(f"{one.net} on {one.netdev}" for one in plan.adding)
    return [
        Step(
            order=0,
            what=f"Have LNet use {what}, for {', '.join(map(quoted, plan.nics))}, now and at every boot",
            commands=(
                f"modprobe {lnet.MODULE}",
                "lnetctl lnet configure",
                *(one.add for one in plan.adding),
                f"{_backed_up(lnet.CONF)} && lnetctl export --backup > {lnet.CONF}",
                f"systemctl enable {lnet.SERVICE}",
            ),
            risk=f"{lnet.CONF} is replaced by all that LNet runs with at that moment; LNet has one set-up for every Lustre mount",
            undo=(*(one.delete for one in plan.adding), _restored(lnet.CONF)),
            check=("lnetctl net show", *(f"lnetctl ping {quoted(nid)}" for nid in plan.nids)),
        )
    ]


def _connections(plan: NvmeOfPlan, modules: DriverPlan) -> list[Step]:
    """Before the mounts that rest on them. A script of its own may connect at boot what discovery.conf cannot hold."""
    found = []
    loaded = "nvme_rdma" in modules.load
    for connection, commands in nvme_of.commands(plan):
        line = connection.discovery_line
        by = f" from {connection.host_traddr}" if connection.host_traddr else ""
        boot = nvme_of.at_boot(connection)
        found.append(
            Step(
                order=0,
                what=f"Connect {connection.nqn} at {connection.traddr}{by} over RDMA{', now and at every boot' if boot else ''}",
                commands=tuple(command for command in commands if not (loaded and command == nvme_of.LOAD)),
                risk="at boot every subsystem is connected that this address offers to this host" if boot else None,
                undo=(
                    f"nvme disconnect {quoted(f'--nqn={connection.nqn}')}",
                    *((f"sed -i -E {quoted(_whole_line(line))} {nvme_of.DISCOVERY}",) if line else ()),
                ),
                check=("nvme list-subsys", f"nvme discover --transport=rdma {quoted(f'--traddr={connection.traddr}')}"),
            )
        )
    return found


def _md_rule(plan: DriverPlan) -> list[Step]:
    """RHEL 8.3 and newer ship rules without this import (GDS Troubleshooting Guide, RAID volumes)."""
    if not plan.md_arrays:
        return []
    devices = [quoted(f"/dev/{name}") for name in plan.md_arrays]
    matches = " ".join(f"--sysname-match={quoted(name)}" for name in plan.md_arrays)
    asked = f"udevadm control --reload && udevadm trigger --action=change {matches} && udevadm settle"
    return [
        Step(
            order=0,
            what=f"Let udev ask mdadm about {', '.join(devices)}: libcufile learns an array's level and members from it",
            commands=(f"{_backed_up(_MD_RULE)} && printf '%s\\n' {quoted(_MD_IMPORT)} > {_MD_RULE}", asked),
            risk="none: the rule only reads",
            undo=(_restored(_MD_RULE), asked),
            check=tuple(f"udevadm info --query=property {device} | grep MD_LEVEL" for device in devices),
        )
    ]


def _before_reboot(wishes: tuple[MountPlan, ...]) -> list[Step]:
    """Mounts that the boot itself brings up with their new options, once fstab has them."""
    return [
        Step(
            order=0,
            what=f"Put {','.join(_lacking(plan))} into the line of {quoted(plan.target)} in {FSTAB}, for the boot to mount it so",
            commands=_into_fstab(plan),
            risk=_NO_LINE,
            undo=_out_of_fstab(plan),
            check=("findmnt --verify",),
        )
        for plan in wishes
        if plan.change in ("remount", "again", "rootflags") and _into_fstab(plan)
    ]


_NO_LINE = "a mount without a line there (a systemd unit, autofs) takes the options where it is defined"


def _mounts(wishes: tuple[MountPlan, ...], *, rebooted: bool) -> list[Step]:
    """`rebooted`: a boot has mounted all that stands in fstab anew."""
    found = []
    for plan in wishes:
        target = quoted(plan.target)
        lineless = plan.fstab.known and plan.fstab.entry is None and plan.change != "new"
        shown = f"findmnt -no OPTIONS --mountpoint {target}"
        check = (shown,) if lineless or plan.mount_with else ("findmnt --verify", shown)
        if rebooted and plan.change in ("remount", "again", "rootflags") and not lineless:
            continue
        where = "" if lineless else f", in its line of {FSTAB} first"
        if plan.change == "none" and plan.fstab.lacks:
            step = Step(
                order=0,
                what=f"Put {','.join(plan.fstab.lacks)} into {plan.fstab.place}, for {target} to keep it over a boot",
                commands=_into_fstab(plan),
                undo=_out_of_fstab(plan),
                check=("findmnt --verify",),
            )
        elif plan.change in ("remount", "rootflags") and plan.flags:
            added = quoted(f"remount,{','.join(plan.flags)}")
            step = Step(
                order=0,
                what=f"Mount {target} with {','.join(plan.flags)}{where}",
                commands=(*_into_fstab(plan), f"mount -o {added} -- {target}"),
                risk=f"a file system in use may refuse the remount: unmount and mount it then; {_NO_LINE}",
                undo=(
                    *_out_of_fstab(plan),
                    f"mount -o {quoted(','.join(('remount', *plan.flags_before)))} -- {target}",
                ),
                check=check,
            )
        elif plan.change == "again":
            # What else mounts it may not have done so after the boot.
            before = f"! mountpoint -q -- {target} || " if rebooted else ""
            another = f"; after the boot {plan.source} may be another drive{plan.by_name}" if plan.by_name else ""
            step = Step(
                order=0,
                what=f"Mount {target} anew with {','.join(plan.added)}{where}",
                commands=(*_into_fstab(plan), f"{before}{plan.unmount_command} && {plan.mount_command}"),
                risk="processes with open files there keep the unmount from working; "
                f"{_NO_LINE}{another if rebooted else ''}",
                undo=(*_out_of_fstab(plan), f"{plan.unmount_command} && {plan.mount_as_before}"),
                check=check,
            )
        elif plan.change == "new":
            line = f"printf '%s\\n' {quoted(fstab_line(plan))} >> {FSTAB}"
            own = plan.mount_with is not None
            step = Step(
                order=0,
                what=f"Mount {target}{'' if own else f', and add its line to {FSTAB} where there is none'}",
                commands=(
                    *(() if own else (f"findmnt --fstab --mountpoint {target} || {line}",)),
                    f"mkdir -p -- {target}",
                    plan.mount_command,
                ),
                undo=(plan.unmount_command, *(() if own else (_line_out_of_fstab(plan),))),
                check=check,
            )
        else:
            continue
        found.append(step)
    return found


_OWN_BACKUP = f"{FSTAB}{_BACKUP}"


def _into_fstab(plan: MountPlan) -> tuple[str, ...]:
    """Options that are not there put behind those of the mount's own line: the last of a name holds (mount(8), nfs(5)).

    Source, other options, dump and pass stay as the operator wrote them. A mount without a line is left alone.
    """
    if not _lacking(plan):
        return ()
    own = rf'\"{_own_line(plan)}"'
    missing = []
    for option in map(fstab_field, _lacking(plan)):
        literal = option.replace("\\", "\\\\").replace("&", "\\&")
        missing.append(rf'\"{_holding(plan, option)}"!s"\S+"&,{literal}"4')
    script = f"{own}{{{';'.join(missing)}}}"
    return (_backed_up(FSTAB), f"sed -i -E {quoted(script)} {FSTAB}")


def _out_of_fstab(plan: MountPlan) -> tuple[str, ...]:
    """The reverse of `_into_fstab`, whatever else has changed in the file since; what stood there before it stays."""
    commands = []
    for option in map(fstab_field, _lacking(plan)):
        script = rf'\"{_own_line(plan)}"s"^(\s*\S+\s+\S+\s+\S+\s+\S*),{sed_literal(option)}(,|\s|$)"\1\2"'
        before = f"grep -qE {quoted(_holding(plan, option))} {_OWN_BACKUP}"
        commands.append(f"{before} || sed -i -E {quoted(script)} {FSTAB}")
    return tuple(commands)


def _lacking(plan: MountPlan) -> tuple[str, ...]:
    """What the mount's line lacks; none where it is known to have no line."""
    if plan.fstab.known:
        return plan.fstab.lacks
    return plan.flags if plan.on_root else plan.added


def _holding(plan: MountPlan, option: str) -> str:
    """Matches the mount's own line where the option stands in it."""
    return rf"{_own_line(plan)}+\S+\s+(\S*,)?{sed_literal(option)}(,|\s|$)"


def _line_out_of_fstab(plan: MountPlan) -> str:
    return f"sed -i -E {quoted(_whole_line(fstab_line(plan)))} {FSTAB}"


def _whole_line(line: str) -> str:
    """A script of sed that takes this line out; it holds no double quote."""
    return rf'\"^{sed_literal(line)}$"d'


def _own_line(plan: MountPlan) -> str:
    """Matches the line whose second field is the mount's, up to the first blank behind it."""
    return rf"^\s*[^#[:space:]]\S*\s+{sed_literal(fstab_field(plan.target))}\s"


def _backed_up(path: str) -> str:
    """A command that keeps the file as it was before gdsctl: only the first time; empty where there was none."""
    name, kept = quoted(path), quoted(path + _BACKUP)
    return f"if test ! -e {kept}; then if test -e {name}; then cp -a {name} {kept}; else : > {kept}; fi; fi"


def _restored(path: str) -> str:
    """The reverse: the file as it was, or none where there was none. Done twice it does nothing more."""
    name, kept = quoted(path), quoted(path + _BACKUP)
    return f"if test -s {kept}; then mv {kept} {name}; elif test -e {kept}; then rm -f {name} {kept}; fi"


def _held(steps: list[Step], pathless: tuple[str, ...]) -> list[Step]:
    """The steps for cufile.json, not to be taken where they would take mounts their only path."""
    if not pathless:
        return steps
    why = (
        f"{', '.join(pathless)} would be left without any path: no direct one can be had here, and compat: forbid ends the one "
        "through host memory. Take compat: forbid or the mount out of the intent, or plan again once a direct path can be had"
    )
    return [msgspec.structs.replace(step, held=why, commands=(), undo=(), check=(), risk=None) for step in steps]


def _matters(difference: Difference) -> bool:
    key = cufile_keys.key(difference.key)
    return difference.required or (key is not None and cufile.governed(key))


def _static_routing(plan: CufilePlan) -> list[Step]:
    path, static = static_routing.PATH, plan.static
    if not (static.needed and static.to_write):
        return []
    return [
        Step(
            order=0,
            what=f"Install {path}: {static.why}",
            commands=(f"{_backed_up(path)} && install -m 0644 topology.json {path}",),
            risk="a card that is moved, added or gone makes libcufile pass over the whole file, in silence: write it again then",
            undo=(_restored(path),),
            check=(f"gdsctl lint {path}",),
        )
    ]


def _forbidding(differences: tuple[Difference, ...] | None) -> tuple[str, ...]:
    """What is lost where the file comes to forbid compat mode."""
    forbids = any(d.key == _COMPAT and d.planned is False for d in differences or ())
    said = "a file without a direct path then fails to open with 5001, on every mount and for every cuFile process"
    return (said,) if forbids else ()


def unread(now: Context) -> bool:
    """May there be a cufile.json of which it is not known what it says?"""
    found = now.node.gds.cufile_config
    return found.files is None or (cufile.PATH in found.files and cufile.PATH not in found.texts)


def _cufile(now: Context, plan: CufilePlan, keys: frozenset[str] | None) -> list[Step]:
    """Install the file, unless what is installed amounts to the same; then clear what would override it."""
    config = now.view.config
    found = every = differences(now, plan)
    if found is not None:
        # Without an intent a default is left unwritten; a tuned value in a process's own file is its own affair.
        strict = now.wanted.path is not None
        found = tuple(d for d in found if _matters(d) or (strict and d.origin in (None, cufile.PATH)))
        if keys is not None:
            found = tuple(d for d in found if d.key in keys)
    files = now.node.gds.cufile_config.files
    if found == () and config.fatal is None:
        return []
    overriding = [d for d in found or () if d.origin not in (None, cufile.PATH)]
    steps = []
    if found is None or config.fatal is not None or len(overriding) < len(found):
        # What hangs on a route first, then the rest that the file brings along.
        changed = [d for d in every or () if d.origin in (None, cufile.PATH)]
        changed.sort(key=lambda d: not _matters(d))
        more = len(changed) - _SHOWN
        shown = ", ".join(d.key for d in changed[:_SHOWN])
        shown += f" and {more} more key{'s' * (more > 1)}" if more > 0 else ""
        reason = f": {shown}" if shown else ": the installed file is refused by the library" if config.fatal else ""
        steps.append(
            Step(
                order=0,
                what=f"Install {cufile.PATH}{reason}",
                commands=(f"{_backed_up(cufile.PATH)} && install -m 0644 cufile.json {cufile.PATH}",),
                risk="; ".join(("processes that run keep the old values until they start again", *_forbidding(every))),
                undo=(_restored(cufile.PATH),),
                check=("gdsctl lint", now.wanted.verify),
                changes=tuple(f"{d.key}: {spelt(d.installed)} -> {spelt(d.planned)}" for d in changed),
            )
        )
    by_origin: dict[str, list[str]] = {}
    for difference in overriding:
        by_origin.setdefault(str(difference.origin), []).append(difference.key)
    other = [path for path in files or () if path != cufile.PATH]
    if config.fatal is not None and config.fatal.path in other:
        by_origin.setdefault(config.fatal.path, [])
    for origin, named in by_origin.items():
        if origin in other:
            what = (
                f"Take {', '.join(named) or 'its mistakes'} out of {quoted(origin)}, which is merged over {cufile.PATH}"
            )
        else:
            what = f"Unset {origin} where cuFile processes start: it overrides {', '.join(named)}"
        steps.append(Step(order=0, what=what))
    return steps

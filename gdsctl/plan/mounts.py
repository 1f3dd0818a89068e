"""Mounts as they should be: options that a direct path needs, and mounts that the intent asks for and the node lacks."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Iterable
from typing import Literal

import msgspec

from gdsctl.data import filesystems
from gdsctl.data.mount_advice import advice
from gdsctl.model.devices import Backing, FstabEntry, Mount, Nic, lasts
from gdsctl.model.shell import fstab_field, quoted
from gdsctl.parse import lnet, nfs_options
from gdsctl.plan import nvme_of
from gdsctl.plan.context import Context, addresses
from gdsctl.plan.identity import another
from gdsctl.plan.intent import MountIntent
from gdsctl.record import Record

# Shown by the kernel, not meant for mount(8): nfs(5) takes them from the server; seclabel comes from the LSM.
_SHOWN_ONLY = frozenset(
    {"addr", "clientaddr", "mountaddr", "mountport", "mountproto", "mountvers", "local_lock", "seclabel"}
)
FSTAB = "/etc/fstab"
# Flags of the mount, not of the filesystem: the kernel changes these while mounted (mount(8), FILESYSTEM-INDEPENDENT). A
# filesystem's own option may be taken by a remount without an error and without a change (data= on ext4, Linux 6.18).
_CHANGED_MOUNTED = frozenset(
    {"ro", "rw", "atime", "noatime", "relatime", "norelatime", "strictatime", "diratime", "nodiratime", "lazytime"}
) | frozenset({"suid", "nosuid", "dev", "nodev", "exec", "noexec"})
_ENDED_BY_NAME = frozenset({"nosuid", "nodev", "noexec", "nodiratime"})  # the mount table shows no word for their end
# Read by mount(8), systemd and boot scripts, never shown by the kernel (mount(8), fstab(5), systemd.mount(5)); `x-...` too.
_READ_FROM_FSTAB = frozenset(
    {
        "auto",
        "noauto",
        "user",
        "nouser",
        "users",
        "owner",
        "group",
        "defaults",
        "nofail",
        "_netdev",
        "comment",
        "helper",
    }
)
# Given once for each device (docs.weka.io, stateless clients); of other options the last of a name holds (mount(8)).
_REPEATED = frozenset({"net"})
# Options by name: None: without a value; several values: given as often.
Options = dict[str, "str | tuple[str, ...] | None"]
_NFS_RDMA_PORT = "20049"  # IANA nfsrdma
_VAST_FLOOR = 8  # VAST NFS client documentation: about 2 connections per 100 Gb/s over RDMA, at least 8


def read_from_fstab(name: str) -> bool:
    """Is this option for whoever reads fstab, and of no file system?"""
    return name in _READ_FROM_FSTAB or name.startswith("x-")


class InFstab(Record, frozen=True, kw_only=True):
    """What /etc/fstab says of a mount. `known` false: it was not captured; `entry` None: it has no line there.

    `lacks`: options that count for the path and that the line does not give.
    """

    known: bool = False
    entry: FstabEntry | None = None
    lacks: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """`line 7 of /etc/fstab`."""
        return f"line {self.entry.line} of {FSTAB}" if self.entry else FSTAB

    @property
    def right(self) -> bool:
        return self.entry is not None and not self.lacks


class MountPlan(Record, frozen=True, kw_only=True):
    """A mount as it should be. `change`: none | remount | again (unmount, mount) | new | rootflags.

    `before`: options that stand today, for an undo; `options`: all of them, for fstab; `added`: those that the mount lacks today; `backing`: of a mount that is to come.
    `fstab`: whether the next boot mounts it so; `lasting_name`: of its device, where udev tells one.
    `boot_options`: for a line of its own in fstab besides the others; `mount_with`: the filesystem's own command, which
    keeps its own line there.
    Of the root filesystem (rootflags) `flags` are changed while it is mounted, only `at_boot` are for the kernel.
    """

    target: str
    source: str
    fstype: str
    options: tuple[str, ...]
    added: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    change: Literal["none", "remount", "again", "new", "rootflags"] = "none"
    why: str
    device: str | None = None
    backing: Backing = Backing()
    notes: tuple[str, ...] = ()
    fstab: InFstab = InFstab()
    lasting_name: str | None = None
    boot_options: tuple[str, ...] = ()
    mount_with: str | None = None

    @property
    def mount_command(self) -> str:
        """For a shell."""
        return self._mounting(self.options)

    @property
    def mount_as_before(self) -> str:
        """The mount that stands, for a shell: `mount TARGET` alone fails where fstab has no line for it."""
        return self._mounting(self.before or ("defaults",))

    def _mounting(self, given: tuple[str, ...]) -> str:
        target, source, options = quoted(self.target), quoted(self.named), quoted(",".join(given))
        if self.mount_with is not None:
            also = "" if given == ("defaults",) else f" -o {options}"
            return f"{self.mount_with} {source} {target}{also}"
        return f"mount -t {quoted(self.fstype)} -o {options} -- {source} {target}"

    @property
    def flags_before(self) -> tuple[str, ...]:
        """What a remount must name for `flags` to be as they were: it keeps those that it does not name (mount(8))."""
        there = [option for option in self.before if option in _CHANGED_MOUNTED]
        if "noatime" in self.flags and not {"relatime", "noatime"} & set(there):
            there.append("strictatime")
        ended = {flag: flag.removeprefix("no") for flag in self.flags if flag in _ENDED_BY_NAME}
        return tuple(dict.fromkeys((*there, *(name for flag, name in ended.items() if flag not in there))))

    @property
    def unmount_command(self) -> str:
        return f"mmumount {quoted(self.source)}" if self.mount_with == "mmmount" else f"umount -- {quoted(self.target)}"

    @property
    def flags(self) -> tuple[str, ...]:
        """Of what it lacks the flags of the mount."""
        return tuple(option for option in self.added if option in _CHANGED_MOUNTED)

    @property
    def at_boot(self) -> tuple[str, ...]:
        """Of what the root filesystem lacks, its own options: a filesystem refuses a flag in rootflags (Linux init/do_mounts.c)."""
        return tuple(option for option in self.added if option not in _CHANGED_MOUNTED) if self.on_root else ()

    @property
    def on_root(self) -> bool:
        return self.change == "rootflags"

    @property
    def network(self) -> bool:
        """Is it up after the network and down before it? What has neither a device nor a server is not."""
        if self.backing.kind == "nvme-of":
            return True
        return self.device is None and self.backing.kind not in ("overlay", "tmpfs", "virtiofs", "other")

    @property
    def named(self) -> str:
        """The source as fstab and units name it best: device names can change from boot to boot."""
        return self.lasting_name or self.source

    @property
    def by_name(self) -> str:
        """Why a device stands by its name, empty where it does not."""
        if self.device is None or self.lasting_name or lasts(self.source):
            return ""
        return "; by the device's name, since udev tells no UUID of it: look with blkid"


def desire(context: Context) -> tuple[MountPlan, ...]:
    """Plans for the intended mounts whose options matter, and for those that are to be made."""
    found = [_mounted(context, wish, storage.mount) for wish, storage in context.storages]
    if context.mounts_gap is None:  # else it may stand already
        found += [_new(context, wish) for wish in context.absent]
    return tuple(plan for plan in found if plan is not None)


def mounted(mounts: tuple[Mount, ...], plans: Iterable[MountPlan]) -> tuple[Mount, ...]:
    """The mount table with the plans carried out."""
    by_target = {plan.target: plan for plan in plans if plan.change != "none"}
    changed = [
        msgspec.structs.replace(
            mount, options=_merged(mount.options, by_target[mount.target]), backing=by_target[mount.target].backing
        )
        if mount.target in by_target and by_target[mount.target].change != "new"
        else mount
        for mount in mounts
    ]
    changed += [
        Mount(
            target=plan.target,
            source=plan.source,
            fstype=plan.fstype,
            options=plan.options,
            device=plan.device,
            backing=plan.backing,
        )
        for plan in by_target.values()
        if plan.change == "new"
    ]
    return tuple(changed)


def unchanged(plans: Iterable[MountPlan]) -> tuple[MountPlan, ...]:
    """The same without new options for mounts that stand."""
    return tuple(
        plan
        if plan.change in ("none", "new")
        else msgspec.structs.replace(
            plan,
            change="none",
            options=tuple(option for option in plan.options if option not in plan.added),
            added=(),
            fstab=InFstab(),
            why="left as it is: other options would change no path",
        )
        for plan in plans
    )


def _merged(options: tuple[str, ...], plan: MountPlan) -> tuple[str, ...]:
    names = {_name(option) for option in plan.added}
    return (*(option for option in options if _name(option) not in names), *plan.added)


def _is_shown(name: str, row: filesystems.Filesystem | None) -> bool:
    """Does the mount table tell whether an option is set?"""
    unshown = row.unshown_options if row is not None else ()
    return not read_from_fstab(name) and name.partition(":")[0] not in unshown


def _name(option: str) -> str:
    return option.partition("=")[0]


def _mounted(context: Context, wish: MountIntent, mount: Mount) -> MountPlan | None:
    if any(mismatch.found is not None for mismatch in another(context, wish, mount)):
        return None  # what is mounted there is not the operator's: no option makes it so
    if context.addressless(wish):
        return None  # nothing is built on a NIC that cannot carry
    row = filesystems.filesystem(mount.fstype)
    wanted = _nfs(context, wish, mount) if row is not None and row.name == "nfs" else {}
    notes = _nfs_notes(context, wish, mount) if wanted else ()
    if row is not None and row.required_option and wish.expect in ("direct", "direct-or-routed"):
        name, _, value = row.required_option.partition("=")
        wanted[name] = value
    wanted.update(_pinned(wish))
    if not wanted:
        return None
    present = _pairs(mount.options)
    lacking = {name: v for name, v in wanted.items() if not _same(name, v, present) and _is_shown(name, row)}
    added = _written(lacking)
    why = "the options stand"
    change: Literal["none", "remount", "again", "rootflags"] = "none"
    if added:
        flags = all(option in _CHANGED_MOUNTED for option in added)
        change = "remount" if flags else "rootflags" if mount.target == "/" else "again"
        why = f"{mount.target} lacks {','.join(added)}"
    keep = {name: value for name, value in present.items() if name not in _SHOWN_ONLY and name not in wanted}
    transport = _text(wanted.get("proto")) or mount.backing.transport
    nics = _devices(context.nics(wish, mount)) if "localports" in wanted else mount.backing.nics
    own = row.mount_with if row is not None else None
    fstab = InFstab() if own else _in_fstab(context, mount.target, wanted)
    if change == "none" and fstab.lacks:
        why = f"the options stand, but {fstab.place} lacks {','.join(fstab.lacks)}: the next boot mounts it without"
    return MountPlan(
        target=mount.target,
        source=mount.source or mount.fstype,
        fstype=mount.fstype,
        options=_written({**keep, **wanted}),
        added=added,
        before=tuple(option for option in mount.options if option.partition("=")[0] not in _SHOWN_ONLY),
        change=change,
        why=why,
        device=mount.device,
        backing=msgspec.structs.replace(mount.backing, transport=transport, nics=nics),
        notes=notes + _nowhere(fstab, mount.target, wanted),
        fstab=fstab,
        lasting_name=_lasting_name(context, mount.device),
        boot_options=row.fstab_options if row is not None else (),
        mount_with=own,
    )


def _new(context: Context, wish: MountIntent) -> MountPlan | None:
    """A mount that does not stand yet; None where the intent does not say from where."""
    if wish.source is None or context.addressless(wish):
        return None
    fstype = wish.type or ("nfs" if ":/" in wish.source else None)
    row = filesystems.filesystem(fstype) if fstype else None
    if fstype is None or row is None:
        return None
    wanted: Options = {}
    device = None
    backing = Backing()
    notes: tuple[str, ...] = ()
    # Named NICs are those of the mount only where an option says so; else its client chooses.
    unnamed = msgspec.structs.replace(wish, nics="auto")
    if row.name == "nfs":
        wanted = _nfs(context, wish, None)
        notes = _nfs_notes(context, wish, None)
        backing = Backing(
            kind="nfs",
            nics=_devices(context.nics(wish if "localports" in wanted else unnamed, None)),
            transport=_text(wanted.get("proto")) or "tcp",
            server=wish.source.partition(":/")[0],
        )
    elif row.backing == "block":
        if nvme_of.another(context, wish):
            return None  # a drive of this node has that number today
        device = wish.source.removeprefix("/dev/")
        backing = _block_backing(context, device)
        if wish.nvme_of is not None and not backing.nvme:  # not connected yet
            backing = Backing(
                kind="nvme-of",
                nics=_devices(nvme_of.leaving_by(context, wish)),
                transport="rdma",
                server=wish.nvme_of.traddr[0],
            )
    else:
        if row.name == "wekafs":
            wanted = _weka(context, wish)
        backing = Backing(
            kind=row.backing,
            nics=_devices(context.nics(wish if "net" in wanted else unnamed, None)),
            transport=lnet.transport(wish.source) if row.name == "lustre" else None,
        )
        wanted |= _pairs(row.new_options)
    if row.required_option:
        name, _, value = row.required_option.partition("=")
        wanted[name] = value
    wanted.update(_pinned(wish))
    options = _written(wanted) or ("defaults",)
    fstab = InFstab() if row.mount_with else _in_fstab(context, wish.target, wanted)
    if fstab.entry is not None and fstab.entry.source != wish.source:
        notes += (f"{wish.target}: {fstab.place} mounts {fstab.entry.source} there; the intent names {wish.source}",)
    if wish.nvme_of is None:
        notes += tuple(f"{wish.target}: {told.said}" for told in advice(backing.kind))
    return MountPlan(
        target=wish.target,
        source=wish.source,
        fstype=fstype,
        options=options,
        added=options,
        change="new",
        why=f"nothing is mounted on {wish.target}",
        device=device,
        backing=backing,
        notes=notes,
        fstab=fstab,
        lasting_name=_lasting_name(context, device),
        boot_options=row.fstab_options,
        mount_with=row.mount_with,
    )


def _lasting_name(context: Context, device: str | None) -> str | None:
    block = context.view.block(device) if device else None
    return block.lasting_name if block is not None else None


def _in_fstab(context: Context, target: str, wanted: Options) -> InFstab:
    """Of several lines for one target the first counts, as for mount(8)."""
    lines = context.node.fstab
    if lines is None:
        return InFstab()
    entry = next((line for line in lines if line.target == target), None)
    if entry is None:
        return InFstab(known=True)
    if target == "/":  # mounted before fstab is read, then remounted with the flags that stand there
        wanted = {name: value for name, value in wanted.items() if name in _CHANGED_MOUNTED}
    present = _spelt(entry.options)
    if "vers" in present:
        wanted = {name: value for name, value in wanted.items() if name != "vers"}
    missing = _written({name: value for name, value in wanted.items() if not _same(name, value, present)})
    lacks = tuple(o for o in missing if _name(o) not in _REPEATED or o not in entry.options)
    return InFstab(known=True, entry=entry, lacks=lacks)


def _spelt(options: tuple[str, ...]) -> Options:
    """Options by name, those of NFS under the name that the kernel shows (nfs(5))."""
    present = _pairs(options)
    for word in ("tcp", "udp", "rdma"):
        if word in present:
            present["proto"] = word
    return present | ({"vers": present["nfsvers"]} if "nfsvers" in present else {})


def _nowhere(fstab: InFstab, target: str, wanted: Options) -> tuple[str, ...]:
    if not fstab.known or fstab.entry is not None:
        return ()
    given = ",".join(_written(wanted))
    return (f"{target} has no line in {FSTAB}: whatever else mounts it (a unit, an automounter) must give {given}",)


def _block_backing(context: Context, device: str) -> Backing:
    stack = context.view.stack(device)
    members = tuple(dict.fromkeys(member for block in stack for member in block.members))
    known = [nvme for name in members if (nvme := context.view.nvme(name)) is not None]
    kinds = {block.kind for block in stack}
    if "dm" in kinds:
        return Backing(kind="dm", nvme=tuple(nvme.name for nvme in known))
    if "md" in kinds:
        return Backing(kind="md", nvme=tuple(nvme.name for nvme in known))
    if known and len(known) == len(members):
        transports = {nvme.transport for nvme in known}
        kind: Literal["nvme", "nvme-of"] = "nvme" if transports <= {"pcie", None} else "nvme-of"
        return Backing(kind=kind, nvme=tuple(nvme.name for nvme in known), transport=next(iter(transports)))
    return Backing()


def fstab_line(plan: MountPlan) -> str:
    """Six fields: the line that stands, with what it lacks, or a new one. Local file systems are checked at boot (pass 1 for the root, else 2), network ones wait for the network."""
    entry = plan.fstab.entry
    if entry is not None:  # the operator's own line, with what it lacks
        return " ".join(
            (
                *map(fstab_field, (entry.source, entry.target, entry.fstype)),
                ",".join(map(fstab_field, (*entry.options, *plan.fstab.lacks))) or "defaults",
                str(entry.dump),
                str(entry.passno),
            )
        )
    options = list(plan.options)
    if plan.network and "_netdev" not in options:
        options.append("_netdev")
    options += [option for option in plan.boot_options if option not in options]
    return " ".join(
        (
            fstab_field(plan.named),
            fstab_field(plan.target),
            fstab_field(plan.fstype),
            ",".join(map(fstab_field, options)),
            "0",
            "0" if plan.device is None or plan.network else "1" if plan.target == "/" else "2",
        )
    )


# --- NFS --------------------------------------------------------------------------------------------------------------


def _nfs(context: Context, wish: MountIntent, mount: Mount | None) -> Options:
    """Options that matter for NFS; a mount that need not go direct takes those alone that the intent is plain about."""
    if wish.transport == "tcp" or (wish.transport is None and wish.expect in ("compat", "any")):
        return {"proto": "tcp"} if wish.transport == "tcp" else {}
    present = nfs_options.parse(",".join(mount.options)) if mount is not None else nfs_options.NfsOptions()
    wanted: Options = {} if present.vers else {"vers": "3"}
    wanted |= {"proto": "rdma", "port": _NFS_RDMA_PORT}
    if not _is_vast(wish, present.vast):
        return wanted
    nics = context.nics(wish, mount)
    own = addresses(nics)
    if own:
        wanted["localports"] = ranges(own)
    if wish.vips:
        servers = nfs_options.parse(f"remoteports={wish.vips}").remoteports or ()
        wanted["remoteports"] = wish.vips
        if present.nconnect is None or mount is None:
            wanted["nconnect"] = str(_connections(nics, len(servers)))
        if len(servers) > 1:
            wanted |= {"spread_reads": None, "spread_writes": None}
    return wanted


def _nfs_notes(context: Context, wish: MountIntent, mount: Mount | None) -> tuple[str, ...]:
    present = nfs_options.parse(",".join(mount.options)).vast if mount is not None else False
    notes = []
    if wish.vips and not _is_vast(wish, present):
        notes.append(f"{wish.target}: vips are for the VAST client; the kernel's own NFS client refuses remoteports")
    if _is_vast(wish, present):
        if not addresses(context.nics(wish, mount)):
            notes.append(
                f"{wish.target}: which of this node's NICs reach it is not known, so localports is left out; name nics"
            )
        notes.append(f"{wish.target}: localports holds this node's own addresses; other nodes need their own line")
    return tuple(notes)


def _weka(context: Context, wish: MountIntent) -> Options:
    """`net=` for each device of a stateless client (BACKEND/FILESYSTEM); one that has joined the cluster has its own.

    How they share the client's cores or stand in for each other (net:s1=, net:ha=) is the operator's choice, pinned.
    """
    pinned = any(name.partition(":")[0] == "net" for name in wish.options)
    nics = context.nics(wish, None)
    if wish.nics == "auto" or pinned or "/" not in (wish.source or "") or not all(nic.netdevs for nic in nics):
        return {}
    devices = tuple(dict.fromkeys(nic.netdevs[0] for nic in nics))
    return {"net": devices} if devices else {}


def _devices(nics: tuple[Nic, ...]) -> tuple[str, ...]:
    return tuple(nic.rdma_device for nic in nics if nic.rdma_device)


def _is_vast(wish: MountIntent, seen: bool) -> bool:
    return wish.client == "vast" or (wish.client is None and seen)


def _connections(nics: tuple[Nic, ...], servers: int) -> int:
    """A multiple of the servers' addresses (NVIDIA GDS Troubleshooting Guide, VAST), and not below the client's floor."""
    rate = sum(nic.rate_gbps or 0 for nic in nics)
    floor = max(_VAST_FLOOR, math.ceil(rate / 100) * 2)
    return math.ceil(floor / servers) * servers


def ranges(ips: tuple[str, ...]) -> str:
    """`A-B~C`, as the VAST client takes addresses in order of their numbers; one address stands alone."""
    numbers = [int(ipaddress.IPv4Address(ip)) for ip in ips]
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    ends = [[str(ipaddress.IPv4Address(n)) for n in (part[0], part[-1])] for part in parts]
    return "~".join(low if low == high else f"{low}-{high}" for low, high in ends)


def _pinned(wish: MountIntent) -> Options:
    """`nfsvers` under the name that the kernel shows (nfs(5))."""
    return {
        "vers" if name == "nfsvers" else name: None if value is True else str(value)
        for name, value in wish.options.items()
        if value is not False
    }


def _pairs(options: tuple[str, ...]) -> Options:
    found: Options = {}
    for name, sign, value in (option.partition("=") for option in options):
        if sign and name in _REPEATED:
            before = found.get(name) or ()
            found[name] = (*((before,) if isinstance(before, str) else before), value)
        else:
            found[name] = value if sign else None
    return found


def _same(name: str, value: str | tuple[str, ...] | None, present: Options) -> bool:
    """Is the option there with this value? Addresses are compared as sets, however their ranges are written."""
    if name not in present:
        return False
    there = present[name]
    if name in _REPEATED:
        return _values(there) == _values(value)
    if name in ("localports", "remoteports") and value and there:
        parsed = [nfs_options.parse(f"{name}={text}") for text in (value, there)]
        sets = [set(getattr(options, name) or ()) for options in parsed]
        return sets[0] == sets[1]
    return there == value


def _values(value: str | tuple[str, ...] | None) -> set[str]:
    return set() if value is None else {value} if isinstance(value, str) else set(value)


def _text(value: str | tuple[str, ...] | None) -> str | None:
    return value if isinstance(value, str) else None


def _written(options: Options) -> tuple[str, ...]:
    """As mount(8) takes them, one word an element."""
    found: list[str] = []
    for name, value in options.items():
        found += (
            [name] if value is None else [f"{name}={one}" for one in ((value,) if isinstance(value, str) else value)]
        )
    return tuple(found)

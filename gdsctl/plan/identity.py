"""Is the mount that stands the one that the intent names? Type, source, transport, client, addresses and NICs."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator

from gdsctl.data.filesystems import filesystem
from gdsctl.model.devices import Mount, Nic
from gdsctl.model.shell import quoted
from gdsctl.parse import nfs_options
from gdsctl.plan import nvme_of
from gdsctl.plan.context import Context
from gdsctl.plan.intent import MountIntent
from gdsctl.record import Record

# Two names of one filesystem in the mount table; a mount of type nfs may show as nfs4 (nfs(5)).
_ALIKE = {"nfs": {"nfs4"}, "beegfs": {"fhgfs"}, "fhgfs": {"beegfs"}, "gpfs": {"mmfs"}, "mmfs": {"gpfs"}}


class Mismatch(Record, frozen=True, kw_only=True):
    """`found` None: it cannot be told whether it is what is wanted; `settle_with` then says what would tell."""

    name: str
    wanted: str
    found: str | None
    settle_with: str | None = None

    @property
    def said(self) -> str:
        if self.found is None:
            return f"the intent says {self.name} {self.wanted}; what the node has is not known"
        return f"the intent says {self.name} {self.wanted}, the node says {self.found}"


def mismatches(context: Context, wish: MountIntent, mount: Mount) -> tuple[Mismatch, ...]:
    """What the intent pins and the mount is not; nothing for what it leaves open."""
    found = another(context, wish, mount)
    if any(mismatch.found is not None for mismatch in found):
        return found
    return (*found, *_client(context, wish, mount), *_transport(wish, mount), *_nics(context, wish, mount))


def another(context: Context, wish: MountIntent, mount: Mount) -> tuple[Mismatch, ...]:
    """The part that no option changes: another filesystem is mounted there."""
    return (*_type(wish, mount), *_source(context, wish, mount), *_subsystem(context, wish, mount))


def _type(wish: MountIntent, mount: Mount) -> Iterator[Mismatch]:
    if wish.type and mount.fstype != wish.type and mount.fstype not in _ALIKE.get(wish.type, ()):
        yield Mismatch(name="type", wanted=wish.type, found=mount.fstype or None, settle_with=_look("FSTYPE", mount))


def _source(context: Context, wish: MountIntent, mount: Mount) -> Iterator[Mismatch]:
    wanted, found = (wish.source or "").rstrip("/"), (mount.source or "").rstrip("/")
    if not wanted or wanted == found:
        return
    if not found:
        same: bool | None = None
    elif ":/" in wanted and ":/" in found:
        same = _same_export(wanted, found, mount)
    elif wanted.startswith("/dev/") or wanted.partition("=")[0] in ("UUID", "LABEL", "PARTUUID", "PARTLABEL"):
        same = _same_device(context, wanted, mount)
    else:
        same = False
    if same is not True:
        settle = _look("SOURCE,UUID,LABEL,PARTUUID", mount)
        yield Mismatch(name="source", wanted=wanted, found=None if same is None else found, settle_with=settle)


def _subsystem(context: Context, wish: MountIntent, mount: Mount) -> Iterator[Mismatch]:
    if wish.nvme_of is None:
        return
    below = context.view.controllers(mount)
    if not below and mount.backing.server in wish.nvme_of.traddr:  # to come, with what it rests on
        return
    if _served(mount) or mount.backing.kind in ("virtiofs", "overlay", "tmpfs"):
        yield Mismatch(name="nvme_of", wanted=wish.nvme_of.nqn, found=f"no block storage but {mount.fstype}")
        return
    names = {controller.nqn for controller in below}
    if names != {wish.nvme_of.nqn}:
        unsure = not below or (None in names and all(c.transport not in (None, "pcie") for c in below))
        shown = ", ".join(c.nqn or f"{c.name} ({c.transport})" for c in below)
        yield Mismatch(
            name="nvme_of", wanted=wish.nvme_of.nqn, found=None if unsure else shown, settle_with="nvme list-subsys"
        )


def _same_export(wanted: str, found: str, mount: Mount) -> bool | None:
    """A name and an address may be one server: the option addr= tells, as the kernel resolved it."""
    (server, _, path), (other, _, other_path) = wanted.rpartition(":/"), found.rpartition(":/")
    if path != other_path:
        return False
    numbers = [_address(name) for name in (server, other)]
    if all(numbers) or not any(numbers):
        return numbers[0] == numbers[1] if all(numbers) else server == other
    if numbers[0] is None:
        return None
    resolved = nfs_options.parse(",".join(mount.options)).addr
    return numbers[0] == _address(resolved) if resolved else None


def _address(server: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(server.strip("[]"))
    except ValueError:
        return None


def _same_device(context: Context, wanted: str, mount: Mount) -> bool | None:
    """None where the name is a link or a label of which udev's database does not tell."""
    block = context.view.block(mount.device) if mount.device else None
    if mount.device is None:
        return None if (mount.source or "").startswith("/dev/") else False
    name = wanted.removeprefix("/dev/")
    if wanted.startswith("/dev/") and context.view.block(name) is not None:
        return name == mount.device
    udev = (block.udev if block else None) or {}
    uuid = wanted.removeprefix("UUID=") if wanted.startswith("UUID=") else name.removeprefix("disk/by-uuid/")
    if uuid not in (wanted, name) and "ID_FS_UUID" in udev:
        return uuid.lower() == udev["ID_FS_UUID"].lower()
    if name.startswith("mapper/") and "DM_NAME" in udev:
        return name.removeprefix("mapper/") == udev["DM_NAME"]
    return None


def _client(context: Context, wish: MountIntent, mount: Mount) -> Iterator[Mismatch]:
    seen = nfs_options.parse(",".join(mount.options)) if mount.backing.kind == "nfs" else nfs_options.NfsOptions()
    if wish.client is not None:
        hook, rpcrdma = context.node.nvfs_hooks.get("rpcrdma"), context.node.modules.get("rpcrdma")
        inbox = hook is not None and hook.state == "stock" and rpcrdma is not None and not rpcrdma.version
        found: str | None = "vast" if seen.vast else None
        if mount.backing.kind != "nfs":
            found = f"no NFS but {mount.fstype}"
        elif inbox or (wish.client == "kernel" and not seen.vast):
            found = "kernel"
        if found != wish.client:
            yield Mismatch(name="client", wanted=wish.client, found=found, settle_with="vastnfs-ctl status")
    if wish.vips:
        asked = nfs_options.parse(f"remoteports={wish.vips}").remoteports or ()
        if seen.remoteports is None or set(seen.remoteports) != set(asked):
            shown = next((o.partition("=")[2] for o in mount.options if o.startswith("remoteports=")), "no remoteports")
            yield Mismatch(name="vips", wanted=wish.vips, found=shown)


# What tells how a client whose mount table does not say it reaches its servers.
_ASK_TRANSPORT = {
    "wekafs": "weka cluster processes",
    "gpfs": "mmlsconfig verbsRdma; mmdiag --network",
    "beegfs": "beegfs-net",
    "lustre": "lnetctl net show",
}
_ASK_NICS = {
    "wekafs": "weka local resources --json",
    "gpfs": "mmlsconfig verbsPorts",
    "beegfs": "beegfs-net; grep -i connRDMAInterfacesFile /etc/beegfs/beegfs-client.conf",
    "lustre": "lnetctl net show",
}
_ANY_CLIENT = "ss -tn; rdma resource show cm_id"


def _transport(wish: MountIntent, mount: Mount) -> Iterator[Mismatch]:
    found = mount.backing.transport
    if wish.transport is None or found == wish.transport:
        return
    if found is None and not _served(mount) and mount.backing.kind not in ("nvme", "nvme-of", "md", "dm"):
        found = f"no storage of a server but {mount.backing.kind}"
    settle = _ASK_TRANSPORT.get(mount.backing.kind) or _look("OPTIONS", mount)
    yield Mismatch(name="transport", wanted=wish.transport, found=found, settle_with=settle)


def _nics(context: Context, wish: MountIntent, mount: Mount) -> Iterator[Mismatch]:
    """NICs that the intent names against those that the mount uses; NICs that the node lacks are told elsewhere."""
    named = context.nics(wish, mount)
    if wish.nics == "auto" or not named or context.addressless(wish):  # told elsewhere
        return
    kind, wanted = mount.backing.kind, _names(named)
    without = [nic for nic in named if not nic.ipv4]
    options = nfs_options.parse(",".join(mount.options)) if kind == "nfs" else nfs_options.NfsOptions()
    settle = _ASK_NICS.get(kind) or _ANY_CLIENT
    used = context.view.nics(mount)
    connections = [c for c in nvme_of.desire(context).connections if c.target == wish.target]
    if any(not connection.stands for connection in connections):
        leaving = {connection.host_traddr for connection in connections}
        used = tuple(nic for nic in context.node.nics if leaving.intersection(nic.ipv4))
        if without or set(named) != set(used):
            said = f"{_names(used) or 'none of them'}, by the addresses that the connections leave from"
            yield Mismatch(name="nics", wanted=wanted, found=said)
        return
    if not _served(mount) and kind != "nvme-of" and not used:
        unsure = kind in ("md", "dm") and not mount.backing.nvme
        yield Mismatch(
            name="nics", wanted=wanted, found=None if unsure else f"no NIC but {kind}", settle_with="lsblk -s"
        )
        return
    if options.localports:
        used = tuple(nic for nic in context.node.nics if set(nic.ipv4) & set(options.localports))
    elif kind == "nfs" and options.vast and without:
        yield Mismatch(name="nics", wanted=wanted, found=f"{_names(without)} without an IPv4 address for localports")
        return
    if kind == "lustre" and context.node.lnet is None:
        used = ()  # a guess by the routes of IP, which LNet does not ask
    if not used:
        yield Mismatch(name="nics", wanted=wanted, found=None, settle_with=settle)
    elif not (set(named) == set(used) or (kind in ("wekafs", "gpfs") and set(named) <= set(used))):
        # Of WekaFS and Storage Scale, cuFile takes those that rdma_dev_addr_list names of the client's own.
        yield Mismatch(name="nics", wanted=wanted, found=_names(used))


def _served(mount: Mount) -> bool:
    """Is it storage that a file server gives?"""
    row = filesystem(mount.fstype)
    return mount.backing.kind in ("nfs", "lustre", "wekafs", "gpfs", "beegfs", "network") or bool(
        row is not None and row.backing in ("nfs", "lustre", "wekafs", "gpfs", "beegfs", "network")
    )


def _names(nics: Iterable[Nic]) -> str:
    return ", ".join(nic.rdma_device or next(iter(nic.netdevs), None) or nic.address or "?" for nic in nics)


def _look(columns: str, mount: Mount) -> str:
    return f"findmnt -no {columns} --mountpoint {quoted(mount.target)}"

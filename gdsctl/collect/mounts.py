"""The mount table, and what each mount's bytes rest on."""

from __future__ import annotations

import functools
import re

from gdsctl.collect import addresses, gpfs, lnet
from gdsctl.collect.reader import Reader
from gdsctl.data import filesystems
from gdsctl.data.filesystems import BackingKind
from gdsctl.model.devices import Backing, Block, FstabEntry, LnetNi, Mount, Nic, Nvme
from gdsctl.model.shell import quoted
from gdsctl.parse import beegfs, mounts, nfs_options, weka
from gdsctl.parse import lnet as lnet_text
from gdsctl.parse.fstab import parse as parse_fstab
from gdsctl.parse.storage_text import parse_mountstats
from gdsctl.source.base import Missing, got

_TABLES = ("/proc/self/mountinfo", "/proc/self/mounts", "/proc/mounts", "/etc/mtab")
_KERNELS_OWN = re.compile(r"/(?:proc|sys|dev(?!/shm(?:/|$)))(?:/|$)")
_ADDRESS = re.compile(r"(?<![\w.])(\d{1,3}(?:\.\d{1,3}){3})(?![\w.])")
_NAMESPACE = re.compile(r"nvme\d+n\d+")
_ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - what NFSv4 prints before it knows its own address


def collect(
    reader: Reader, block: tuple[Block, ...], nvme: tuple[Nvme, ...], nics: tuple[Nic, ...]
) -> tuple[Mount, ...]:
    """Every mount in the order of the table. `device` is the name of a record in `block`.

    Of several mounts on one target only the last can be reached; the others cannot hold data.
    """
    table = _table(reader)
    if isinstance(table, Missing):
        reader.gap("mounts", "", table, settle_with="cat /proc/self/mountinfo")
        return ()
    storage = _Storage(reader, block, nvme, nics)
    reachable = {entry.target: number for number, entry in enumerate(table)}
    return tuple(_mount(storage, entry, reachable[entry.target] == number) for number, entry in enumerate(table))


def fstab(reader: Reader) -> tuple[FstabEntry, ...] | None:
    """The lines of /etc/fstab, () where there is no such file; None where that is not known."""
    found = reader.parsed("/etc/fstab", parse_fstab)
    if isinstance(found, Missing):
        return () if found.status == "absent" else None
    return found.entries


def _table(reader: Reader) -> tuple[mounts.MountEntry, ...] | Missing:
    first: Missing | None = None
    for path in _TABLES:
        found = reader.parsed(path, mounts.parse)
        if not isinstance(found, Missing):
            return found.mounts
        first = first or found
    return first or Missing(status="absent")


def _mount(storage: _Storage, entry: mounts.MountEntry, reachable: bool) -> Mount:
    row = filesystems.filesystem(entry.fstype)
    pseudo = bool(_KERNELS_OWN.match(entry.target)) or (row is not None and row.pseudo)
    device = None if pseudo else storage.device(entry, on_block=row is None or row.backing == "block")
    if pseudo:
        backing = Backing()
    elif row is not None and row.backing != "block":
        backing = storage.network(entry, row.backing)
    else:
        backing = storage.local(entry.target, device)
        if backing.kind == "nvme" and not backing.nvme:
            storage.gap(entry.target, "nvme", "nvme list -v")
            storage.gap(entry.target, "transport", "nvme list-subsys")
    return Mount(
        target=entry.target,
        source=entry.source,
        fstype=entry.fstype,
        options=entry.options,
        device=device.name if device else None,
        backing=backing,
        major_minor=entry.major_minor,
        can_hold_data=reachable and not pseudo,
    )


class _Storage:
    """What mounts may rest on, and who reaches a server."""

    def __init__(self, reader: Reader, block: tuple[Block, ...], nvme: tuple[Nvme, ...], nics: tuple[Nic, ...]) -> None:
        self._reader = reader
        self._by_number = {device.major_minor: device for device in block if device.major_minor}
        self._by_name = {device.name: device for device in block}
        self._nvme = {controller.name: controller for controller in nvme}
        self._nics = nics

    @functools.cached_property
    def _addresses(self) -> addresses.Addresses:
        return addresses.collect(self._reader)

    @functools.cached_property
    def _dm_names(self) -> dict[str, Block]:
        """Device-mapper name, as under /dev/mapper -> device."""
        dm = [device for device in self._by_name.values() if device.kind == "dm"]
        named = (
            (self._reader.value(f"/sys/class/block/{d.name}/dm/name") or (d.udev or {}).get("DM_NAME"), d) for d in dm
        )
        return {name: device for name, device in named if name}

    @functools.cached_property
    def _xprts(self) -> dict[str, tuple[str, ...]]:
        stats = self._reader.parsed("/proc/self/mountstats", parse_mountstats)
        return {} if isinstance(stats, Missing) else {mount.target: mount.xprts for mount in stats}

    def device(self, entry: mounts.MountEntry, *, on_block: bool) -> Block | None:
        """By number, for names lie (/dev/root); by name where the number is anonymous (btrfs) or not told."""
        found = self._by_number.get(entry.major_minor or "")
        if found or not on_block:
            return found
        if entry.source.startswith("/dev/"):
            found = self._named(entry.source)
        if found is None:
            detail = f"no block device for {entry.source} ({entry.major_minor or 'no device number'})"
            self._reader.gap(
                "mounts", "device", "absent", key=entry.target, detail=detail, settle_with=f"findmnt {entry.target}"
            )
        return found

    def _named(self, source: str) -> Block | None:
        name = source.removeprefix("/dev/")
        if name in self._by_name:
            return self._by_name[name]
        mapper = name.removeprefix("mapper/") if name.startswith("mapper/") else None
        group, slash, volume = name.partition("/")
        if mapper is None and slash and "/" not in volume:  # LVM doubles the dashes of names; lvm2 libdm/libdm-string.c
            mapper = f"{group.replace('-', '--')}-{volume.replace('-', '--')}"
        if mapper in self._dm_names:
            return self._dm_names[mapper]
        real = self._reader.source.real(source)
        return self._by_name.get(real.removeprefix("/dev/")) if got(real) else None

    def local(self, target: str, device: Block | None) -> Backing:
        """Storage below a filesystem that has a block device."""
        if device is None:
            return Backing()
        top = device
        while top.kind == "part" and top.slaves and top.slaves[0] in self._by_name and top.slaves[0] != device.name:
            top = self._by_name[top.slaves[0]]
        controllers = [self._nvme[name] for name in device.members if name in self._nvme]
        transports = {controller.transport for controller in controllers}
        nics = tuple(
            dict.fromkeys(nic for c in controllers if c.transport != "pcie" for nic in self._fabrics(target, c))
        )
        servers = {controller.traddr for controller in controllers if controller.traddr}
        kind: BackingKind
        if top.kind == "md":
            kind = "md"
        elif top.kind == "dm":
            kind = "dm"
        elif top.kind == "network":
            kind = "network"
        elif controllers and top.kind == "disk":
            kind = "nvme" if transports <= {"pcie", None} else "nvme-of"
        elif top.kind == "disk" and _NAMESPACE.fullmatch(top.name):  # its controller was not captured
            kind = "nvme"
        else:
            kind = "other"
        return Backing(
            kind=kind,
            nvme=tuple(controller.name for controller in controllers),
            nics=nics,
            transport=transports.pop() if len(transports) == 1 else None,
            server=servers.pop() if len(servers) == 1 else None,
        )

    def network(self, entry: mounts.MountEntry, kind: BackingKind) -> Backing:
        """Filesystems that need no block device: those of a server, and those in memory or on other filesystems."""
        if kind not in ("nfs", "lustre", "wekafs", "beegfs", "gpfs", "network"):
            return Backing(kind=kind)
        server, transport = _server(entry, kind), None
        pinned: tuple[str, ...] = ()
        own: tuple[str, ...]
        targets = _ADDRESS.findall(server or "")
        if kind == "nfs":
            options = nfs_options.parse(",".join(entry.options))
            xprt = next(iter(self._xprts.get(entry.target, ())), None)
            transport = (options.proto or xprt or "").removesuffix("6") or None
            if transport is None:
                self.gap(entry.target, "transport", f"grep -A20 {entry.target} /proc/self/mountstats")
            own = (options.clientaddr,) if options.clientaddr and options.clientaddr not in _ANY_ADDRESS else ()
            pinned = options.localports or own
            targets = [*(options.remoteports or ()), *((options.addr,) if options.addr else ())] or targets
        elif kind == "lustre":
            transport = lnet_text.transport(entry.source)
            if self._lnet is not None:
                return self._lustre(entry, transport, server)
        elif kind == "beegfs":
            connections = self._beegfs()
            protocols = {connection.protocol for connection in connections}
            transport = protocols.pop() if len(protocols) == 1 else None
            targets = [connection.server for connection in connections if connection.server] or targets
        elif kind in ("wekafs", "gpfs"):
            own, settle = self._weka(entry) if kind == "wekafs" else self._gpfs()
            if own or not targets:
                return self._named_by_client(entry, kind, own, settle, server)
        found = self._nics_for(pinned, tuple(targets), transport)
        if found is None:
            found = ()
            self.gap(
                entry.target, "nics", f"ip route get {targets[0]}" if targets else "ss -tn; rdma resource show cm_id"
            )
        return Backing(kind=kind, nics=found, transport=transport, server=server)

    # --- who the file system's own client says that it uses -----------------------------------------------------------

    @functools.cached_property
    def _lnet(self) -> tuple[LnetNi, ...] | None:
        return lnet.collect(self._reader)

    def _lustre(self, entry: mounts.MountEntry, transport: str | None, server: str | None) -> Backing:
        """LNet sends by its own interfaces on a server's network, whatever IP's routes say."""
        nets = lnet.networks(self._reader, entry.source)
        local = [ni for ni in self._lnet or () if ni.net in nets and ni.up is not False]
        found: dict[str, None] = {}
        for ni in local:
            address = ni.nid.partition("@")[0]
            for name in ni.interfaces or self._holders(address):
                found.update(dict.fromkeys(self._on(name, rdma=transport == "rdma")))
        if not found:
            routed = "" if local else "; lnetctl route show"
            self.gap(entry.target, "nics", f"lnetctl net show{routed}")
        return Backing(kind="lustre", nics=tuple(found), transport=transport, server=server)

    @functools.cached_property
    def _fstab(self) -> tuple[FstabEntry, ...]:
        return fstab(self._reader) or ()

    def _weka(self, entry: mounts.MountEntry) -> tuple[tuple[str, ...], str]:
        """The devices that it names; the mount table shows its `net=` no more than /proc/wekafs does, fstab may."""
        container = next((o.partition("=")[2] for o in entry.options if o.startswith("container_name=")), "")
        settle = f"weka local resources{f' -C {quoted(container)}' if container else ''} --json"
        told = self._reader.printed("weka-local-resources", weka.parse_resources)
        if isinstance(told, Missing):
            line = next((line for line in self._fstab if line.target == entry.target), None)
            told = weka.of_options((*entry.options, *(line.options if line is not None else ())))
        return (*told.devices, *told.addresses), settle

    def _gpfs(self) -> tuple[tuple[str, ...], str]:
        ports = gpfs.verbs_ports(self._reader)
        devices = () if isinstance(ports, Missing) else tuple(re.split(r"[/:]", port)[0] for port in ports)
        return devices, "mmlsconfig verbsPorts"

    def _named_by_client(
        self, entry: mounts.MountEntry, kind: BackingKind, own: tuple[str, ...], settle: str, server: str | None
    ) -> Backing:
        found: dict[str, None] = {}
        for name in own:
            for interface in self._holders(name) or (name,):
                found.update(dict.fromkeys(self._on(interface, rdma=True)))
        if not found:
            self.gap(entry.target, "nics", settle)
        return Backing(kind=kind, nics=tuple(found), server=server)

    def _beegfs(self) -> tuple[beegfs.Connection, ...]:
        """Of the only client that there is; which of several a mount belongs to is not told."""
        folder = "/proc/fs/beegfs"
        names = self._reader.source.names(folder)
        clients = names if got(names) else ()
        if len(clients) != 1:
            return ()
        told = self._reader.parsed(f"{folder}/{clients[0]}/storage_nodes", beegfs.parse_nodes)
        return () if isinstance(told, Missing) else told

    def _fabrics(self, target: str, controller: Nvme) -> tuple[str, ...]:
        pinned = tuple(name for name in (controller.host_iface, controller.host_traddr) if name)
        targets = (controller.traddr,) if controller.traddr else ()
        found = self._nics_for(pinned, targets, controller.transport)
        if found is None:
            self.gap(target, "nics", f"ip route get {controller.traddr}" if controller.traddr else "nvme list-subsys")
        return found or ()

    def _nics_for(
        self, pinned: tuple[str, ...], targets: tuple[str, ...], transport: str | None
    ) -> tuple[str, ...] | None:
        """NICs named by address or interface, else those with a route to one of the targets. None: not known."""
        interfaces: dict[str, None] = {}
        for name in pinned:
            own = self._holders(name)
            interfaces.update(dict.fromkeys(own or ((name,) if not _ADDRESS.fullmatch(name) else ())))
        if not interfaces:
            for target in targets[:256]:
                interfaces.update(dict.fromkeys(self._addresses.towards(target) or ()))
        if not interfaces:
            return None
        found: dict[str, None] = {}
        for interface in interfaces:
            found.update(dict.fromkeys(self._on(interface, rdma=transport == "rdma")))
        return tuple(found) or (() if set(interfaces) == {"lo"} else None)

    def _holders(self, address: str) -> tuple[str, ...]:
        held = self._addresses.by_interface or {}
        return tuple(name for name, own in held.items() if address in own)

    def _on(self, interface: str, *, rdma: bool) -> list[str]:
        """Names of the NICs under an interface: RDMA devices for RDMA, and rather real adapters for the rest."""
        own = set((self._addresses.by_interface or {}).get(interface, ()))
        fits = [
            nic
            for nic in self._nics
            if interface in (*nic.netdevs, nic.bond, nic.rdma_device, nic.address)
            or (own and not own.isdisjoint(nic.ipv4))
        ]
        better = [nic for nic in fits if (nic.rdma_device if rdma else nic.address)] or fits
        return [nic.rdma_device or (nic.netdevs[0] if nic.netdevs else nic.address or "") for nic in better]

    def gap(self, target: str, field: str, settle_with: str) -> None:
        self._reader.gap("mounts", f"backing/{field}", "unsupported", key=target, settle_with=settle_with)


def _server(entry: mounts.MountEntry, kind: str) -> str | None:
    """Who serves it, as the mount's source says: `host:/path`, `nid@net:nid@net:/fs`, `host/fs`."""
    source = entry.source
    if kind == "wekafs":
        return source.rpartition("/")[0] or None
    host, colon, _ = source.rpartition(":/")
    if colon:
        return host.strip("[]") or None
    return source[2:].partition("/")[0] or None if source.startswith("//") else None

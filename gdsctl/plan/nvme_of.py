"""NVMe over RDMA: the connections that the intended mounts rest on, with the NIC that each is to leave by."""

from __future__ import annotations

import ipaddress
import re

from gdsctl.model.devices import Nic, Nvme
from gdsctl.model.shell import quoted
from gdsctl.plan.context import Context
from gdsctl.plan.intent import MountIntent, NvmeOf, is_nqn
from gdsctl.record import Record

DISCOVERY = "/etc/nvme/discovery.conf"
LOAD = "modprobe nvme-rdma"
AUTOCONNECT = "nvmf-autoconnect.service"
_PORT = "4420"  # IANA nvme; nvme-cli takes it for discovery over RDMA too (fabrics.c, discovery_trsvcid)
_LONGEST_LINE = 255  # nvme-cli reads discovery.conf in pieces of 256 bytes (fabrics.c, discover_from_conf_file)


class Connection(Record, frozen=True, kw_only=True):
    """One path to one subsystem. `host_traddr` None: which NIC reaches it is not known; `stands`: it is connected.

    `hostnqn` None: nvme-cli takes that of /etc/nvme/hostnqn; `ctrl_loss_tmo_s` None: not pinned; `source`: what the mount
    that rests on it names as its device.
    """

    target: str
    nqn: str
    traddr: str
    trsvcid: str = _PORT
    host_traddr: str | None = None
    hostnqn: str | None = None
    ctrl_loss_tmo_s: int | None = None
    nr_io_queues: int | None = None
    stands: bool = False
    source: str | None = None

    @property
    def why(self) -> str:
        """Why it is there, for a comment."""
        by = f" by {self.host_traddr}" if self.host_traddr else ""
        return f"{self.target}: {self.nqn} at {self.traddr}{by}" + (", connected" if self.stands else "")

    @property
    def command(self) -> str:
        """For a shell."""
        return " ".join(("nvme connect", *map(quoted, (*self._where, f"--nqn={self.nqn}", *self._how))))

    @property
    def discovery_line(self) -> str | None:
        """Of discovery.conf, which knows no quotes; None where a line cannot hold it."""
        words = (*self._where, *self._how)
        line = " ".join(words)
        plain = all(word.isprintable() and word.count("=") == 1 and not set(word) & {" ", '"'} for word in words)
        return line if plain and len(line.encode()) < _LONGEST_LINE else None

    @property
    def _where(self) -> tuple[str, ...]:
        own = (f"--host-traddr={self.host_traddr}",) if self.host_traddr else ()
        return ("--transport=rdma", f"--traddr={self.traddr}", f"--trsvcid={self.trsvcid}", *own)

    @property
    def _how(self) -> tuple[str, ...]:
        given = {
            "hostnqn": self.hostnqn,
            "ctrl-loss-tmo": self.ctrl_loss_tmo_s,
            "nr-io-queues": self.nr_io_queues,
        }
        return tuple(f"--{name}={value}" for name, value in given.items() if value is not None)


class NvmeOfPlan(Record, frozen=True, kw_only=True):
    """`told`: sentences on what could not be told and what else to know."""

    connections: tuple[Connection, ...] = ()
    told: tuple[str, ...] = ()


def desire(context: Context) -> NvmeOfPlan:
    """Of mounts to come whose subsystem the intent names, and of those that stand on NVMe over RDMA."""
    found: list[Connection] = []
    told: list[str] = []
    mounted = {wish.target: storage.mount for wish, storage in context.storages}
    for wish in context.mounts:
        mount = mounted.get(wish.target)
        below = [c for c in context.view.controllers(mount) if c.transport == "rdma"] if mount is not None else []
        asked = wish.nvme_of
        told += _numbered(context, wish)
        to_come = asked is not None and (mount is None or (not below and mount.backing.server in asked.traddr))
        if asked is not None and (to_come or any(controller.nqn == asked.nqn for controller in below)):
            _asked(context, wish, asked, found, told)
        else:
            for controller in below:
                _standing(context, wish.target, controller, found, told)
    return NvmeOfPlan(connections=tuple(found), told=tuple(dict.fromkeys((*told, *_boots(context, found)))))


def leaving_by(context: Context, wish: MountIntent) -> tuple[Nic, ...]:
    """The NICs that a mount's connections leave by; none where that is not known of each of them."""
    own = {connection.host_traddr for connection in desire(context).connections if connection.target == wish.target}
    if None in own:
        return ()
    return tuple(nic for nic in context.nics(wish, None) if own.intersection(nic.ipv4))


def another(context: Context, wish: MountIntent) -> tuple[Nvme, ...]:
    """Controllers that the source's device is behind today, of which none is the one that is to be connected."""
    block = context.view.block((wish.source or "").removeprefix("/dev/"))
    if wish.nvme_of is None or block is None:
        return ()
    found = tuple(nvme for name in block.members if (nvme := context.view.nvme(name)) is not None)
    return () if any(nvme.nqn == wish.nvme_of.nqn for nvme in found) else found


def awaited(source: str | None) -> tuple[str, ...]:
    """Shell commands that wait for a mount's device: the kernel looks for namespaces after `nvme connect` has returned."""
    if not source:
        return ()
    there = f"test -e {quoted(source)}" if source.startswith("/") else f"findfs {quoted(source)}"
    return (f"timeout 60 sh -c {quoted(f'until udevadm settle && {there}; do sleep 1; done')}",)


def commands(plan: NvmeOfPlan) -> tuple[tuple[Connection, tuple[str, ...]], ...]:
    """Each connection to be made with its shell commands; the last one of a mount waits for the mount's device."""
    to_make = [connection for connection in plan.connections if not connection.stands]
    last = {connection.target: connection for connection in to_make}
    return tuple(
        (
            connection,
            (
                LOAD,
                connection.command,
                *at_boot(connection),
                *(awaited(connection.source) if connection is last[connection.target] else ()),
            ),
        )
        for connection in to_make
    )


def at_boot(connection: Connection) -> tuple[str, ...]:
    """Shell commands that have it connected at every boot; none where discovery.conf cannot hold it."""
    line = connection.discovery_line
    if line is None:
        return ()
    append = f"printf '%s\\n' {quoted(line)} >> {DISCOVERY}"
    return (
        f"mkdir -p {DISCOVERY.rpartition('/')[0]}",
        f"grep -qxF -e {quoted(line)} {DISCOVERY} 2>/dev/null || {append}",
        f"systemctl enable {AUTOCONNECT}",
    )


def _numbered(context: Context, wish: MountIntent) -> list[str]:
    """Namespaces are numbered as they come."""
    source = wish.source or ""
    if wish.nvme_of is None or not re.fullmatch(r"/dev/nvme\d+n\d+(p\d+)?", source):
        return []
    taken = "".join(
        f", today {nvme.name} ({nvme.transport}), so it is not mounted" for nvme in another(context, wish)[:1]
    )
    return [
        f"{wish.target}: {source} can be another drive after each boot{taken}: name the source by UUID= or /dev/disk/by-id"
    ]


def _asked(context: Context, wish: MountIntent, asked: NvmeOf, found: list[Connection], told: list[str]) -> None:
    nics = context.nics(wish, None)
    queues, cpus = asked.nr_io_queues, _cpus(context)
    if queues and cpus and queues > cpus:
        told.append(
            f"{wish.target}: nr_io_queues {queues} is more than this node's {cpus} CPUs; the kernel makes {cpus}"
        )
        queues = cpus
    if len(asked.traddr) > 1:
        told.append(
            f"{wish.target}: {len(asked.traddr)} addresses of one subsystem are one device only under native multipath, "
            "which P2PDMA must do without"
        )
    for number, traddr in enumerate(asked.traddr):
        own = _own(nics, traddr, number)
        if own is None:
            told.append(
                f"{wish.target}: which of this node's NICs reaches {traddr} is not known, so --host-traddr is left out: name "
                f"nics, or look with ip route get {traddr}"
            )
        found.append(
            Connection(
                target=wish.target,
                source=wish.source,
                nqn=asked.nqn,
                traddr=traddr,
                trsvcid=str(asked.trsvcid),
                host_traddr=own,
                hostnqn=asked.hostnqn,
                ctrl_loss_tmo_s=asked.ctrl_loss_tmo_s,
                nr_io_queues=queues,
                stands=any(
                    (nvme.transport, nvme.nqn, nvme.traddr) == ("rdma", asked.nqn, traddr) for nvme in context.node.nvme
                ),
            )
        )


def _standing(context: Context, target: str, controller: Nvme, found: list[Connection], told: list[str]) -> None:
    if controller.nqn is None or controller.traddr is None or not is_nqn(controller.nqn):
        told.append(
            f"{target}: the subsystem behind {controller.name} is not known, so no connect line is written for it: look with "
            "nvme list-subsys"
        )
        return
    own = context.node.nvme_host.hostnqn
    found.append(
        Connection(
            target=target,
            nqn=controller.nqn,
            traddr=controller.traddr,
            trsvcid=controller.trsvcid or _PORT,
            host_traddr=controller.host_traddr,
            hostnqn=controller.hostnqn if own != controller.hostnqn else None,
            stands=True,
        )
    )


def _own(nics: tuple[Nic, ...], traddr: str, number: int) -> str | None:
    """The address in the port's /24, else that of the NIC in turn, where there is one for it."""
    network = None
    if ":" not in traddr:
        network = ipaddress.IPv4Network(f"{traddr}/24", strict=False)
    addresses = [ip for nic in nics for ip in nic.ipv4]
    near = [ip for ip in addresses if network is not None and ipaddress.IPv4Address(ip) in network]
    in_turn = nics[number % len(nics)].ipv4[:1] if nics and network is not None else ()
    return next(iter((*near[number % len(near) :], *near)), None) if near else next(iter(in_turn), None)


def _cpus(context: Context) -> int | None:
    """How many the node has; None where a NUMA node does not tell."""
    ranges = [part for node in context.node.numa.nodes for part in (node.cpus or "?").split(",")]
    matches = [re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", part) for part in ranges]
    if not matches:
        return None
    return None if None in matches else sum(int(m[2] or m[1]) - int(m[1]) + 1 for m in matches if m)


def _boots(context: Context, found: list[Connection]) -> list[str]:
    """Who connects at boot what is connected now, and what a line of discovery.conf cannot hold."""
    told = [
        f"{c.target}: {DISCOVERY} cannot hold a line for {c.traddr}: connect it at boot by a unit of your own"
        for c in found
        if not c.stands and c.discovery_line is None
    ]
    lines = context.node.nvme_host.discovery
    words = " ".join(lines or ()).replace("=", " ").split()
    told += [
        f"{c.target}: no line of {DISCOVERY} names {c.traddr}: whatever else connects it at boot must give these options"
        for c in found
        if lines is not None and c.stands and c.traddr not in words
    ]
    return told

"""LNet's interfaces for Lustre mounts whose NICs the intent names: `lnetctl net add`, and what keeps it over a boot.

LNet takes its networks from options of its module (networks, ip2nets) or from lnetctl, not from both: with such a line in
modprobe.d the plan leaves it to the operator (Lustre Operations Manual, Configuring LNet).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from gdsctl.model.devices import LnetNi, Mount, Nic
from gdsctl.model.node import Node
from gdsctl.model.shell import quoted, sed_literal
from gdsctl.parse import lnet
from gdsctl.plan.context import Context
from gdsctl.plan.intent import MountIntent
from gdsctl.plan.mounts import MountPlan
from gdsctl.record import Record

CONF = "/etc/lnet.conf"  # lnet.service imports it (Lustre, lustre/conf/lnet.service)
SERVICE = "lnet.service"
# lnet.service starts only where no lnet is loaded (ConditionPathExists=!/proc/sys/lnet/), so modules-load.d must not load it.
MODULE = "lnet"
_BY_LNETCTL = ("o2ib", "tcp")  # networks over a netdev (Lustre Operations Manual, lnetctl net add --if)
_NETWORK = re.compile(r"\b([a-z0-9]{1,17})\(([^()]{0,512})\)")  # `o2ib1(ib0,ib1)` of networks=


class Interface(Record, frozen=True, kw_only=True):
    """One interface to be added to a network; `address`: the one that its NID will have."""

    net: str
    netdev: str
    address: str

    @property
    def add(self) -> str:
        """For a shell; nothing happens where the network has it (lnetctl(8), net show: `0: ib0`)."""
        shown = quoted(rf": {sed_literal(self.netdev)}(\[|$)")
        return f"lnetctl net show --net {self.net} | grep -qE {shown} || lnetctl net add --net {self.net} --if {quoted(self.netdev)}"

    @property
    def delete(self) -> str:
        """For a shell. Without --if the whole network would go (Lustre Operations Manual, lnetctl net del)."""
        return f"lnetctl net del --net {self.net} --if {quoted(self.netdev)}"


class LnetPlan(Record, frozen=True, kw_only=True):
    """`adding`: for lnetctl; `nics`: mount -> the RDMA devices that it then goes by; `nids`: of servers, for a look.

    `nis`: what LNet has besides with the plan carried out; `told`: sentences.
    """

    adding: tuple[Interface, ...] = ()
    nics: dict[str, tuple[str, ...]] = {}
    nids: tuple[str, ...] = ()
    nis: tuple[LnetNi, ...] = ()
    told: tuple[str, ...] = ()


def desire(context: Context) -> LnetPlan:
    """For Lustre mounts of one LNet network whose NICs the intent names and that LNet does not use yet."""
    mounted = {wish.target: storage.mount for wish, storage in context.storages}
    adding: dict[Interface, None] = {}
    nics: dict[str, tuple[str, ...]] = {}
    nids: dict[str, None] = {}
    found: dict[LnetNi, None] = {}
    told: list[str] = []
    for wish in context.mounts:
        source = _source(wish, mounted.get(wish.target))
        named = context.named_nics(wish)
        if source is None or not named or context.addressless(wish):
            continue
        unsure = [nic.rdma_device or nic.address or "?" for nic in named if not (nic.netdevs and nic.ipv4)]
        if unsure:
            told.append(
                f"{wish.target}: no lnetctl step, for the interface and address of {', '.join(unsure)} are not known (look: rdma link; "
                "ip -br address): lnetctl net add --net NET --if NETDEV"
            )
            continue
        nets = lnet.nets(source)
        if len(nets) != 1:
            told.append(
                f"{wish.target}: its source names {len(nets)} LNet networks; which of its NICs is for which is yours to say: lnetctl "
                "net add --net NET --if NETDEV"
            )
            continue
        (net,) = nets
        lacking = _lacking(context, net, named)
        if net.rstrip("0123456789") not in _BY_LNETCTL or not lacking:
            continue
        deciding = [option for option in context.node.lnet_options or () if option.name in ("networks", "ip2nets")]
        wanted = [Interface(net=net, netdev=nic.netdevs[0], address=nic.ipv4[0]) for nic in lacking]
        nis = [LnetNi(nid=f"{one.address}@{net}", net=net, up=True, interfaces=(one.netdev,)) for one in wanted]
        if deciding:
            by_options = all(
                set(_of_options(option.value, net)) == {one.netdev for one in wanted} for option in deciding
            )
            shown = ", ".join(f"{option.name}={option.value} in {option.place}" for option in deciding)
            if by_options and not known(context.node):
                told.append(f"{wish.target}: no lnetctl step, for {shown} brings up the NICs that the intent names")
            else:
                told.append(
                    f"{wish.target}: no lnetctl step, for {shown} configures LNet: have {net} on "
                    f"{','.join(one.netdev for one in wanted)} there, with every Lustre mount unmounted and lnet unloaded"
                )
                continue
        else:
            adding |= dict.fromkeys(wanted)
            nids |= dict.fromkeys(lnet.nids(source)[:1])
            if context.node.lnet_options is None:
                told.append(
                    f"{wish.target}: whether modprobe.d configures LNet is not known: take no lnetctl step where modprobe -c | "
                    "grep -E '^options lnet .*(networks|ip2nets)=' finds a line"
                )
        found |= dict.fromkeys(nis)
        nics[wish.target] = tuple(nic.rdma_device for nic in named if nic.rdma_device)
    return LnetPlan(adding=tuple(adding), nics=nics, nids=tuple(nids), nis=tuple(found), told=tuple(told))


def waiting(wishes: Iterable[MountPlan], plan: LnetPlan) -> tuple[MountPlan, ...]:
    """Mounts to come wait at boot for lnet.service, or the mount itself would bring LNet up as the module has it."""
    requires = f"x-systemd.requires={SERVICE}"
    return tuple(
        msgspec.structs.replace(wish, boot_options=(*wish.boot_options, requires))
        if plan.adding and wish.target in plan.nics
        else wish
        for wish in wishes
    )


def known(node: Node) -> tuple[LnetNi, ...] | None:
    """LNet's interfaces today: none where its module is not loaded; None: not read."""
    module = node.modules.get(MODULE)
    if node.lnet is None and module is not None and module.loaded is False:
        return ()
    return node.lnet


def _source(wish: MountIntent, mount: Mount | None) -> str | None:
    fstype = mount.fstype if mount is not None else wish.type
    source = mount.source if mount is not None else wish.source
    return source if fstype == "lustre" and wish.nics != "auto" else None


def _lacking(context: Context, net: str, named: tuple[Nic, ...]) -> tuple[Nic, ...]:
    """Of the named NICs those that the network lacks; none where it has others, which the plan takes from no mount."""
    there = known(context.node)
    own = {lnet.address_of(ni.nid) for ni in there or () if ni.net == net}
    if own - {address for nic in named for address in nic.ipv4}:
        return ()
    return tuple(nic for nic in named if not own.intersection(nic.ipv4))


def _of_options(value: str | None, net: str) -> tuple[str, ...]:
    """The netdevs of a network in `networks=`."""
    found = [names for name, names in _NETWORK.findall(value or "") if lnet.net_of(f"0@{name}") == net]
    return tuple(name.strip() for names in found for name in names.split(","))

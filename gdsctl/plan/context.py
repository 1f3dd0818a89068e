"""What planning asks again and again: one judged node under one intent."""

from __future__ import annotations

import functools
import ipaddress
import re

import msgspec

from gdsctl.assess.assessment import Assessment
from gdsctl.assess.view import Storage, View, gpu_key
from gdsctl.data import cufile_keys
from gdsctl.data.filesystems import filesystem
from gdsctl.model.devices import Gpu, Mount, Nic
from gdsctl.model.node import Node
from gdsctl.model.unknown import Gap
from gdsctl.parse import lnet
from gdsctl.plan.intent import Intent, MountIntent, Wanted, expected, own_mounts

# An IPv4 address in a mount's source: a server, a NID, one of several.
_ADDRESS = re.compile(r"(?<![\w.])(\d{1,3}(?:\.\d{1,3}){3})(?![\w.])")


class Context:
    """`mounts`: what the intent asks of each mount; `said`: where that came from.

    `carried`: the mounts that P2PDMA carries with all of it switched on, None: not tried yet.
    """

    def __init__(self, assessment: Assessment, wanted: Wanted, *, carried: frozenset[str] | None = None) -> None:
        self.carried = carried
        self.assessment = assessment
        self.node: Node = assessment.node
        self.view = View(assessment.node, assessment.config, assessment.pairs)
        self.wanted = wanted
        self.intent: Intent = wanted.intent
        self.said = wanted.said
        wishes = wanted.intent.mounts or ()
        if wanted.intent.mounts is None:
            wishes, found = own_mounts(self.view)
            if wanted.intent.mode == "compat":
                found += "; mode compat sends them through host memory instead"
            self.said = found if wanted.path is None else f"{wanted.said}; {found}"
        self.mounts = tuple(msgspec.structs.replace(wish, expect=expected(wish, wanted.intent.mode)) for wish in wishes)

    @functools.cached_property
    def version(self) -> str | None:
        """The GDS release whose keys may be written; None where neither intent nor node tells."""
        return self.view.version if self.intent.gds_version == "auto" else self.intent.gds_version

    @property
    def release(self) -> str:
        """The same for look-ups: the newest where it is not known, since older libraries pass over newer keys."""
        return self.version or cufile_keys.releases()[-1].gds

    @functools.cached_property
    def storages(self) -> tuple[tuple[MountIntent, Storage], ...]:
        """The intended mounts that are mounted."""
        by_target = {storage.mount.target: storage for storage in self.view.storages}
        return tuple((wish, by_target[wish.target]) for wish in self.mounts if wish.target in by_target)

    @functools.cached_property
    def mounts_gap(self) -> Gap | None:
        """Why the mount table as a whole is not known."""
        return self._whole("mounts")

    @functools.cached_property
    def gpus_gap(self) -> Gap | None:
        """Why it is not known which GPUs there are, where none was found."""
        return None if self.view.gpus else self._whole("gpus") or self.node.gap("pci", "devices")

    def _whole(self, section: str) -> Gap | None:
        return next((gap for gap in self.node.gaps if gap.section == section and gap.key is None), None)

    @functools.cached_property
    def absent(self) -> tuple[MountIntent, ...]:
        """The intended mounts that are not mounted."""
        there = {wish.target for wish, _ in self.storages}
        return tuple(wish for wish in self.mounts if wish.target not in there)

    @functools.cached_property
    def direct_storages(self) -> tuple[tuple[MountIntent, Storage], ...]:
        """Those of which the intent wants a direct path."""
        return tuple(
            (wish, storage) for wish, storage in self.storages if wish.expect in ("direct", "direct-or-routed")
        )

    @functools.cached_property
    def gpus(self) -> tuple[Gpu, ...]:
        if self.intent.gpus == "all":
            return self.view.gpus
        asked = set(self.intent.gpus)
        return tuple(gpu for gpu in self.view.gpus if {gpu.index, gpu.address} & asked)

    @functools.cached_property
    def gpu_keys(self) -> frozenset[str]:
        return frozenset(gpu_key(gpu) for gpu in self.gpus)

    @functools.cached_property
    def absent_gpus(self) -> tuple[str, ...]:
        """GPUs that the intent names and the node does not have."""
        if self.intent.gpus == "all":
            return ()
        there = {name for gpu in self.view.gpus for name in (gpu.index, gpu.address)}
        return tuple(str(name) for name in self.intent.gpus if name not in there)

    def p2pdma_able(self, storage: Storage) -> bool:
        """Can P2PDMA (C2C) carry it with this kernel and this GDS release? What is not known does not stand against it."""
        row, platform = storage.direct, self.node.platform
        if row is None or not storage.takes_p2pdma:
            return False
        kernel = platform.kernel_version
        if row.p2pdma_kernel and platform.arch == "x86_64" and kernel and kernel[:2] < row.p2pdma_kernel:
            return False
        since = row.p2pdma_since
        return not (since and self.version and cufile_keys.release(self.version) < cufile_keys.release(since))

    def tries_p2pdma(self, storage: Storage) -> bool:
        """Is P2PDMA switched on for it in mode p2pdma? For what takes it at all, until a trial shows what it carries."""
        if self.carried is None:
            return storage.takes_p2pdma
        return storage.mount.target in self.carried

    def nvidia_fs_able(self, storage: Storage) -> bool:
        """Could nvidia-fs carry it, were that module loaded? Not over a module that is known to lack the hooks."""
        hook = self.node.nvfs_hooks.get(storage.hook or "")
        return storage.takes_nvidia_fs and not (hook is not None and (hook.state == "stock" or hook.mismatched))

    def nics(self, wish: MountIntent, mount: Mount | None) -> tuple[Nic, ...]:
        """RDMA-capable NICs of a mount: named by the intent, by verbsPorts, by the collector, or in the server's /24.

        Names of which one cannot be used (`addressless`) name none: the mount stays on the NICs that it has.
        """
        if wish.nics != "auto" and not self.addressless(wish):
            return self.named_nics(wish)
        found = self.view.nics(mount) if mount is not None else self._on_lnet(wish) or self._beside(wish)
        kind = mount.backing.kind if mount is not None else wish.type
        ports = {port.partition("/")[0] for port in self.node.gds.gpfs_verbs_ports or ()} if kind == "gpfs" else set()
        if ports:  # Storage Scale opens RDMA on these only
            found = tuple(nic for nic in self.node.nics if nic.rdma_device in ports)
        return tuple(nic for nic in found if nic.rdma_device)

    def named_nics(self, wish: MountIntent) -> tuple[Nic, ...]:
        """Those of the node's NICs that the intent names for a mount."""
        named = set(wish.nics) if wish.nics != "auto" else set()
        return tuple(nic for nic in self.node.nics if named & {nic.rdma_device, *nic.netdevs, nic.address})

    def addressless(self, wish: MountIntent) -> tuple[str, ...]:
        """Of the NICs that the intent names for a network mount, those known to have no IPv4 address, as it names them."""
        there = next((mount.fstype for mount in self.view.mounts if mount.target == wish.target), None)
        row = filesystem(wish.type or there or ("nfs" if ":/" in (wish.source or "") else ""))
        local = row is not None and row.backing == "block" and wish.nvme_of is None
        if wish.nics == "auto" or local:
            return ()
        return tuple(
            name
            for name in wish.nics
            for nic in self.node.nics
            if name in {nic.rdma_device, *nic.netdevs, nic.address}
            and not nic.ipv4
            and not any(gap.section == "nics" and gap.field in ("", "ipv4") for gap in self.node.gaps)
        )

    def lnet_addresses(self, source: str | None) -> frozenset[str]:
        """The node's own addresses on the LNet networks that a source names."""
        nets = lnet.nets(source or "")
        return frozenset(
            lnet.address_of(ni.nid) for ni in self.node.lnet or () if ni.net in nets and ni.up is not False
        )

    def _on_lnet(self, wish: MountIntent) -> tuple[Nic, ...]:
        own = self.lnet_addresses(wish.source)
        return tuple(nic for nic in self.node.nics if own.intersection(nic.ipv4))

    def _beside(self, wish: MountIntent) -> tuple[Nic, ...]:
        """Own addresses whose first three octets are a server's: the node's routes are not asked for what is unmounted."""
        servers = [part.partition("-")[0] for part in (wish.vips or "").split("~") if part]
        servers += wish.nvme_of.traddr if wish.nvme_of else ()
        servers += _ADDRESS.findall(wish.source or "")
        networks = set()
        for server in servers:
            try:
                networks.add(ipaddress.IPv4Network(f"{server}/24", strict=False))
            except ValueError:
                continue
        return tuple(
            nic
            for nic in self.node.nics
            if nic.rdma_device and any(ipaddress.IPv4Address(ip) in net for ip in nic.ipv4 for net in networks)
        )

    def with_node(self, assessment: Assessment) -> Context:
        """The same intent over another state of the node; the mounts stay those that were chosen here."""
        return self._again(assessment, self.carried)

    def carrying(self, targets: frozenset[str]) -> Context:
        """The same with P2PDMA for these mounts only."""
        return self._again(self.assessment, targets)

    def _again(self, assessment: Assessment, carried: frozenset[str] | None) -> Context:
        intent = msgspec.structs.replace(self.intent, mounts=self.mounts)
        wanted = msgspec.structs.replace(self.wanted, intent=intent, said=self.said)
        return Context(assessment, wanted, carried=carried)


def addresses(nics: tuple[Nic, ...]) -> tuple[str, ...]:
    """Their IPv4 addresses in the order of their numbers."""
    return tuple(sorted({ip for nic in nics for ip in nic.ipv4}, key=lambda ip: int(ipaddress.IPv4Address(ip))))

"""A node as rules look at it: its facts, joined and indexed, and the questions they have in common."""

from __future__ import annotations

import functools

from gdsctl.assess.config import Config
from gdsctl.data import filesystems
from gdsctl.data.filesystems import Capability, Filesystem, Target
from gdsctl.model.devices import Block, Gpu, Mount, Nic, Nvme
from gdsctl.model.judgement import Pair
from gdsctl.model.node import Node
from gdsctl.model.pci import PciDevice
from gdsctl.model.topology import Topology
from gdsctl.model.unknown import Gap
from gdsctl.record import Record


class Storage(Record, frozen=True, kw_only=True):
    """What one mount stands on.

    `filesystem` None: a file system no table knows; `target` None: no block device; `member_hook`: the hook of the
    drives under an array, which has none of its own.
    """

    mount: Mount
    filesystem: Filesystem | None
    target: Target | None
    md_level: str | None = None
    member_hook: str | None = None

    @property
    def direct(self) -> Capability | None:
        """The row that says whether bytes can go direct: the block target's, or the network file system's."""
        if self.filesystem is None:
            return None
        return self.target if self.filesystem.backing == "block" else self.filesystem

    @property
    def hook(self) -> str | None:
        """The module that must export nvidia-fs's hooks, by its name in /proc/driver/nvidia-fs/modules."""
        row = self.direct
        return (row.nvfs_hook or self.member_hook) if row else None

    @property
    def over_tcp(self) -> bool:
        return self.mount.backing.transport == "tcp"

    @property
    def takes_nvidia_fs(self) -> bool:
        """Could nvidia-fs carry it, were all set up right?"""
        row = self.direct
        both = row is not None and self.filesystem is not None and self.filesystem.nvidia_fs != "no"
        return (
            both
            and row is not None
            and row.nvidia_fs in ("yes", "reads")
            and row.rdma != "userspace"
            and not self.over_tcp
        )

    @property
    def takes_user_rdma(self) -> bool:
        row = self.direct
        return row is not None and row.rdma == "userspace"

    @property
    def takes_p2pdma(self) -> bool:
        row = self.direct
        return row is not None and row.p2pdma and self.filesystem is not None and self.filesystem.p2pdma


class View:
    """One node, with what rules ask again and again worked out once."""

    def __init__(self, node: Node, config: Config, pairs: tuple[Pair, ...]) -> None:
        self.node = node
        self.config = config
        self.pairs = pairs
        self.version = config.version

    @functools.cached_property
    def gpus(self) -> tuple[Gpu, ...]:
        """GPUs that cuFile could serve; other accelerators are part of the node, but not of any route."""
        return tuple(gpu for gpu in self.node.gpus if gpu.kind != "other-accelerator")

    @functools.cached_property
    def gpuless(self) -> bool:
        """Is it known that there is no GPU? False where the PCI functions, which would show one, are not known."""
        return not self.gpus and bool(self.node.pci.devices)

    @property
    def in_container(self) -> bool:
        """Is the node seen as a container sees it? False where that is not known."""
        return self.node.container.kind not in (None, "none")

    @functools.cached_property
    def mounts(self) -> tuple[Mount, ...]:
        """Mounts that could hold data, in the table's order."""
        return tuple(mount for mount in self.node.mounts if mount.can_hold_data)

    @functools.cached_property
    def storages(self) -> tuple[Storage, ...]:
        return tuple(self._storage(mount) for mount in self.mounts)

    def storages_with_hook(self, hook: str) -> tuple[Storage, ...]:
        """Data mounts that nvidia-fs reaches through one module's hooks."""
        return tuple(s for s in self.storages if s.hook == hook and s.takes_nvidia_fs)

    @functools.cached_property
    def user_rdma_targets(self) -> tuple[str, ...]:
        """Data mounts that libcufile itself reaches by RDMA."""
        return tuple(s.mount.target for s in self.storages if s.takes_user_rdma)

    @functools.cached_property
    def p2pdma_storages(self) -> tuple[Storage, ...]:
        return tuple(s for s in self.storages if s.takes_p2pdma)

    @functools.cached_property
    def p2pdma_wanted(self) -> bool | None:
        """Does the configuration switch P2PDMA on? None: the configuration is not known."""
        return self.config.flag("properties.use_pci_p2pdma")

    @functools.cached_property
    def nvidia_fs_storages(self) -> tuple[Storage, ...]:
        """Data mounts for which nvidia-fs is a way to go direct: all it can carry.

        Where P2PDMA is asked for, less those that nobody set nvidia-fs up for: without the module, or without its hooks.
        """
        return tuple(s for s in self.storages if s.takes_nvidia_fs and not self._left_to_p2pdma(s))

    def _left_to_p2pdma(self, storage: Storage) -> bool:
        if self.p2pdma_wanted is not True or not storage.takes_p2pdma:
            return False
        hook = self.node.nvfs_hooks.get(storage.hook or "")
        return self.node.nvidia_fs.loaded is False or (hook is not None and hook.state in ("stock", "not_loaded"))

    def storage(self, target: str) -> Storage:
        """The storage of the mount at a target; raises KeyError. Of stacked mounts the last one counts."""
        return self._storage_by_target[target]

    def block(self, name: str) -> Block | None:
        return self._block_by_name.get(name)

    def stack(self, name: str) -> tuple[Block, ...]:
        """A block device and all below it, top first, each once."""
        seen: dict[str, Block] = {}
        waiting = [name]
        while waiting:
            block = self._block_by_name.get(waiting.pop(0))
            if block is not None and block.name not in seen:
                seen[block.name] = block
                waiting += block.slaves
        return tuple(seen.values())

    def nvme(self, name: str) -> Nvme | None:
        return self._nvme_by_name.get(name)

    def controllers(self, mount: Mount) -> tuple[Nvme, ...]:
        """The NVMe controllers that a mount's bytes pass."""
        return tuple(self._nvme_by_name[name] for name in mount.backing.nvme if name in self._nvme_by_name)

    def nics(self, mount: Mount) -> tuple[Nic, ...]:
        """The NICs that a mount's bytes pass, as far as they are known."""
        named = set(mount.backing.nics)
        if not named:
            return ()
        return tuple(nic for nic in self.node.nics if named & {nic.rdma_device, *nic.netdevs, nic.address})

    def peers(self, mount: Mount) -> tuple[str, ...]:
        """PCI addresses of the NVMe controllers or NICs that do the mount's DMA."""
        addresses = [nvme.address for nvme in self.controllers(mount)] + [nic.address for nic in self.nics(mount)]
        return tuple(dict.fromkeys(address for address in addresses if address))

    def pairs_of(self, gpu: Gpu, mount: Mount) -> tuple[Pair, ...]:
        found = (self._pair_by_ends.get((gpu.address or "", peer)) for peer in self.peers(mount))
        return tuple(pair for pair in found if pair is not None)

    def pair(self, gpu: str | None, peer: str | None) -> Pair | None:
        return self._pair_by_ends.get((gpu or "", peer or ""))

    def device(self, address: str) -> PciDevice | None:
        return self._device_by_address.get(address)

    @functools.cached_property
    def topology(self) -> Topology:
        return Topology(self.node.pci.devices, numa_nodes=len(self.node.numa.nodes) or None)

    def gap(self, section: str, field: str, key: str | None = None) -> Gap | None:
        return self.node.gap(section, field, key)

    def settle(self, section: str, field: str, default: str, key: str | None = None) -> str:
        """The command that would settle a gap, or a default."""
        gap = self.gap(section, field, key)
        return gap.settle_with if gap and gap.settle_with else default

    @functools.cached_property
    def _storage_by_target(self) -> dict[str, Storage]:
        return {storage.mount.target: storage for storage in self.storages}

    @functools.cached_property
    def _block_by_name(self) -> dict[str, Block]:
        return {block.name: block for block in self.node.block}

    @functools.cached_property
    def _nvme_by_name(self) -> dict[str, Nvme]:
        return {nvme.name: nvme for nvme in self.node.nvme}

    @functools.cached_property
    def _device_by_address(self) -> dict[str, PciDevice]:
        return {device.address: device for device in self.node.pci.devices}

    @functools.cached_property
    def _pair_by_ends(self) -> dict[tuple[str, str], Pair]:
        return {(pair.gpu, pair.peer): pair for pair in self.pairs}

    def _storage(self, mount: Mount) -> Storage:
        row = filesystems.filesystem(mount.fstype)
        target = None
        level = None
        transports = {nvme.transport for nvme in self.controllers(mount)}
        if row is not None and row.backing == "block":
            stack = self.stack(mount.device) if mount.device else ()
            level = next((block.level for block in stack if block.kind == "md"), None)
            target = filesystems.target(
                filesystems.target_name(mount.backing.kind, transport=mount.backing.transport, level=level)
            )
        member_hook = (
            {"pcie": "nvme", "rdma": "nvme_rdma"}.get(transports.pop() or "") if len(transports) == 1 else None
        )
        return Storage(mount=mount, filesystem=row, target=target, md_level=level, member_hook=member_hook)


def gpu_key(gpu: Gpu) -> str:
    """The name under which pairs, routes and scopes speak of a GPU: its address, or its index where none is known."""
    return gpu.address or f"gpu{gpu.index}"

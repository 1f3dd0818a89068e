"""What cuFile can do where: rows of `filesystems.toml`."""

from __future__ import annotations

import functools
from typing import Literal

from gdsctl.data.tables import load
from gdsctl.record import Record

Direct = Literal["yes", "reads", "no", "unknown"]
Rdma = Literal["kernel", "userspace", "none", "unknown"]
BackingKind = Literal[
    "nvme",
    "nvme-of",
    "md",
    "dm",
    "nfs",
    "wekafs",
    "lustre",
    "gpfs",
    "beegfs",
    "virtiofs",
    "overlay",
    "tmpfs",
    "network",
    "other",
]


class Capability(Record, frozen=True, kw_only=True):
    """What filesystems and block storage have in common.

    `nvidia_fs`: does I/O go direct with nvidia-fs (`reads`: writes only with the key `nvidia_fs_write_key`);
    `nvidia_fs_since`: first GDS release that does; None where all do.
    `nvfs_hook`: the module that must export nvidia-fs's hooks, None where none is asked (block filesystems: the
    target's hook counts).
    `p2pdma`: can the kernel's PCI peer-to-peer or C2C carry it; `p2pdma_keys`: cufile.json pointers that must all be
    true; for filesystems on block storage they stand on the target; `p2pdma_since`: first GDS release;
    `p2pdma_kernel`: first mainline kernel (major, minor) on machines without C2C; `p2pdma_multipath`: false where
    native NVMe multipath takes the ability away (not with C2C).
    `rdma`: who registers GPU memory with the NIC: a kernel module with hooks, or a process through nvidia_peermem or
    dma-buf. `udev_properties`: names the udev database must hold for the device.
    """

    name: str
    nvidia_fs: Direct = "no"
    nvidia_fs_since: str | None = None
    nvidia_fs_write_key: str | None = None
    nvfs_hook: str | None = None
    p2pdma: bool = False
    p2pdma_keys: tuple[str, ...] = ()
    p2pdma_since: str | None = None
    p2pdma_kernel: tuple[int, int] | None = None
    p2pdma_multipath: bool = True
    rdma: Rdma = "none"
    udev_properties: tuple[str, ...] = ()
    note: str = ""
    source: str


class Filesystem(Capability, frozen=True, kw_only=True):
    """A filesystem.

    `fstypes`: its names in the mount table; `pseudo`: the kernel's own, no home for data; `backing`: kind of a mount's
    backing, "block" where the device below decides; `cufile_section`: object under `/fs` in cufile.json.
    `compat_since`: first GDS release that accepts a file on it in compatibility mode, None where none is known to;
    `required_option`: must stand in the mount table's options; `unshown_options`: those that a mount takes and the mount
    table does not show; `new_options`: those that a mount to come has to name; `fstab_options`: those for fstab alone.
    `mount_with`: its own command that mounts, and keeps its own line in fstab; None: mount(8).
    `client_module`: kernel module of a client that comes with packages and a cluster of its own; `client_look`: a command
    that tells whether that client is there and runs.
    """

    fstypes: tuple[str, ...]
    pseudo: bool = False
    backing: BackingKind | Literal["block"]
    cufile_section: str | None = None
    compat_since: str | None = None
    required_option: str | None = None
    unshown_options: tuple[str, ...] = ()
    new_options: tuple[str, ...] = ()
    fstab_options: tuple[str, ...] = ()
    mount_with: str | None = None
    client_module: str | None = None
    client_look: str | None = None


class Target(Capability, frozen=True, kw_only=True):
    """A kind of block storage. `label`: its name in a report."""

    label: str


class Tables(Record, frozen=True, kw_only=True):
    filesystem: tuple[Filesystem, ...]
    target: tuple[Target, ...]


@functools.cache
def tables() -> Tables:
    """Both tables as they stand in the file."""
    return load("filesystems.toml", Tables)


@functools.cache
def _by_fstype() -> dict[str, Filesystem]:
    return {fstype: row for row in tables().filesystem for fstype in row.fstypes}


@functools.cache
def _by_target() -> dict[str, Target]:
    return {row.name: row for row in tables().target}


def fstypes() -> tuple[str, ...]:
    """All names that rows have."""
    return tuple(_by_fstype())


def filesystem(fstype: str) -> Filesystem | None:
    """The row of a filesystem as the mount table names it; `fuse.NAME` falls back to fuse; None where there is none."""
    rows = _by_fstype()
    return rows.get(fstype) or (rows.get("fuse") if fstype.startswith("fuse.") else None)


def target(name: str) -> Target:
    """The row of a kind of block storage; raises KeyError."""
    return _by_target()[name]


def target_name(kind: str, *, transport: str | None = None, level: str | None = None) -> str:
    """The target row for a mount's backing kind (nvme, nvme-of, md, dm), NVMe transport and md level."""
    if kind == "nvme":
        return "nvme"
    if kind == "nvme-of":
        return "nvmeof-rdma" if transport == "rdma" else "nvmeof-tcp"
    if kind == "md":
        name = f"md-{level}"
        return name if name in _by_target() else "md-other"
    return "dm" if kind == "dm" else "other"

"""GPUs, NICs, NVMe controllers, block devices and mounts."""

from __future__ import annotations

import re
from typing import Literal

from gdsctl.record import Record


class NvLink(Record, frozen=True, kw_only=True):
    """`peer`: PCI address of the other GPU, or "switch"; `count`: links; `version`: NVLink generation."""

    peer: str
    count: int
    version: int | None = None


class Gpu(Record, frozen=True, kw_only=True):
    """`kind`: datacenter | workstation | geforce | integrated | vgpu | other-accelerator | unknown."""

    index: int
    address: str | None
    name: str | None = None
    uuid: str | None = None
    bar1_bytes: int | None = None
    compute_capability: str | None = None
    memory_bytes: int | None = None
    nvlinks: tuple[NvLink, ...] = ()
    c2c: bool | None = None
    kind: str = "unknown"


class Nic(Record, frozen=True, kw_only=True):
    """One PCI function (or virtual RDMA device) that moves network bytes; several ports give several records."""

    address: str | None
    netdevs: tuple[str, ...] = ()
    rdma_device: str | None = None
    link_layer: str | None = None
    rate_gbps: float | None = None
    state: str | None = None
    ipv4: tuple[str, ...] = ()
    bond: str | None = None
    vendor: str | None = None


class Nvme(Record, frozen=True, kw_only=True):
    """An NVMe controller. `address`: PCI address, None for fabrics; `multipath`: its namespaces sit behind a head.

    Of fabrics only: `nqn` of the subsystem, `hostnqn` it was connected with, `controller_type`: io | discovery | admin.
    """

    name: str
    address: str | None = None
    transport: str | None = None
    traddr: str | None = None
    subsystem: str | None = None
    namespaces: tuple[str, ...] = ()
    driver: str | None = None
    cmb_bytes: int | None = None
    multipath: bool | None = None
    model: str | None = None
    numa_node: int | None = None
    host_traddr: str | None = None
    host_iface: str | None = None
    trsvcid: str | None = None
    nqn: str | None = None
    hostnqn: str | None = None
    controller_type: str | None = None


class NvmeHost(Record, frozen=True, kw_only=True):
    """What nvme-cli reads of /etc/nvme. `hostnqn` None: not told; `discovery`: lines, () no such file, None not read."""

    hostnqn: str | None = None
    discovery: tuple[str, ...] | None = None


class Block(Record, frozen=True, kw_only=True):
    """`members`: names of the NVMe controllers (or other leaf disks) under it; `integrity`: is_integrity_capable."""

    name: str
    kind: Literal["disk", "part", "md", "dm", "loop", "network"] = "disk"
    slaves: tuple[str, ...] = ()
    level: str | None = None
    members: tuple[str, ...] = ()
    integrity: bool | None = None
    major_minor: str | None = None
    size_bytes: int | None = None
    logical_block_bytes: int | None = None
    udev: dict[str, str] | None = None

    @property
    def lasting_name(self) -> str | None:
        """What mount(8) finds it by after each boot: UUID= of its filesystem, else a link by-id; None where udev tells neither."""
        told = self.udev or {}
        uuid = told.get("ID_FS_UUID", "")
        if re.fullmatch(r"[0-9A-Za-z-]+", uuid):
            return f"UUID={uuid}"
        links = (link for link in told.get("DEVLINKS", "").split() if link.startswith("/dev/disk/by-id/"))
        return min(links, default=None)


def lasts(source: str) -> bool:
    """Does a mount's source name its device so that it is found after each boot? The kernel numbers devices as they come."""
    return "=" in source or source.startswith("/dev/disk/by-")


class Backing(Record, frozen=True, kw_only=True):
    """What a mount's bytes rest on. `nvme`: controller names; `nics`: RDMA device or netdev names; `server`: as mounted."""

    kind: Literal[
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
    ] = "other"
    nvme: tuple[str, ...] = ()
    nics: tuple[str, ...] = ()
    transport: str | None = None
    server: str | None = None


class LnetNi(Record, frozen=True, kw_only=True):
    """One of this node's own LNet interfaces. `net`: o2ib, tcp1 ...; `up` None: not told; `interfaces`: netdevs."""

    nid: str
    net: str
    up: bool | None = None
    interfaces: tuple[str, ...] = ()


class LnetOption(Record, frozen=True, kw_only=True):
    """An option that modprobe.d gives the module lnet. `place`: FILE:LINE."""

    name: str
    value: str | None
    place: str


class FstabEntry(Record, frozen=True, kw_only=True):
    """One line of /etc/fstab, names unescaped. `line`: from 1; `passno`: order of the checks at boot, 0 none."""

    line: int
    source: str
    target: str
    fstype: str
    options: tuple[str, ...] = ()
    dump: int = 0
    passno: int = 0


class Mount(Record, frozen=True, kw_only=True):
    target: str
    source: str | None = None
    fstype: str = ""
    options: tuple[str, ...] = ()
    device: str | None = None
    backing: Backing = Backing()
    major_minor: str | None = None
    can_hold_data: bool = True

"""Nodes on which everything goes direct, and a way to break one thing at a time.

    but(healthy(), {"nvidia_fs.loaded": False, "mounts.0.options": ("rw",)})

Two H100s, an NVMe drive and a NIC hang below one PCIe switch; ext4 lies on the drive, an NFS export is mounted through
the NIC. With `p2pdma=True` the drive is reached by the kernel's P2PDMA and its module is the stock one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from gdsctl.model.devices import Backing, Block, Gpu, Mount, Nic, NvLink, Nvme
from gdsctl.model.node import Node, Numa, NumaNode, Pci, SourceInfo
from gdsctl.model.pci import Acs
from gdsctl.model.software import (
    Container,
    CufileConfig,
    Gds,
    Iommu,
    Module,
    NvfsHook,
    NvidiaDriver,
    NvidiaFs,
    Platform,
)
from gdsctl.model.unknown import Gap, GapReason
from tests.builders import Machine

GONE = object()
"""Takes an entry out of a dict."""


def _machine() -> Machine:
    machine = Machine()
    switch = machine.switch(machine.root_port(machine.root("0000:17", numa=0)), ports=4)
    for port in switch.down[:2]:
        machine.gpu(port)
    machine.nvme(switch.down[2])
    machine.nic(switch.down[3])
    return machine


_MACHINE = _machine()
GPU0, GPU1 = (part.address for part in _MACHINE.gpus)
DISK = _MACHINE.disks[0].address
NIC = _MACHINE.nics[0].address
_ADDRESSES = tuple(device.address for device in _MACHINE.devices())
PORT0 = _MACHINE.devices()[_ADDRESSES.index(GPU0)].parent or ""
"""The switch port above the first GPU."""
NVME, NFS = "/mnt/nvme", "/mnt/nfs"
NFS_OPTIONS = ("rw", "vers=3", "proto=rdma", "port=20049", "nconnect=8", "addr=10.0.0.16")
P2PDMA_JSON = {
    "properties": {"use_pci_p2pdma": True},
    "block": {"nvme": {"use_pci_p2pdma": True}},
}
P2PDMA_DWORDS = {"RMForceStaticBar1": "1", "RmForceDisableIomapWC": "1"}


def function(address: str) -> str:
    """Path of a PCI function, for `but`."""
    return f"pci.devices.{_ADDRESSES.index(address)}"


def healthy(*, p2pdma: bool = False) -> Node:
    def module(version: str | None = None, **more: Any) -> Module:
        return Module(loaded=True, version=version, **more)

    patched = {
        "nvme": NvfsHook(
            state="patched",
            symbol="nvme_v1_register_nvfs_dma_ops",
            wanted_symbol="nvme_v1_register_nvfs_dma_ops",
            registered=True,
        ),
        "rpcrdma": NvfsHook(
            state="patched",
            symbol="rpcrdma_register_nvfs_dma_ops",
            wanted_symbol="rpcrdma_register_nvfs_dma_ops",
            registered=True,
        ),
    }
    stock = {"nvme": NvfsHook(state="stock", wanted_symbol="nvme_v1_register_nvfs_dma_ops", registered=False)}
    gpus = (GPU0, GPU1)
    dwords = P2PDMA_DWORDS if p2pdma else {}
    return cufile(
        Node(
            source=SourceInfo(kind="snapshot"),
            platform=Platform(
                hostname="node",
                kernel="6.8.0-60-generic",
                kernel_version=(6, 8, 0),
                arch="x86_64",
                cmdline="BOOT_IMAGE=/vmlinuz root=/dev/sda2 ro intel_iommu=off",
                cpu_vendor="GenuineIntel",
                cpu_family=6,
                sockets=2,
                virtualization="none",
                secure_boot=False,
                kernel_config={"CONFIG_PCI_P2PDMA": "y"},
                symbols={"pci_p2pdma_add_resource": True},
                module_list=True,
                kernel_log=(),
            ),
            iommu=Iommu(state="off", evidence=("no function has an IOMMU group",)),
            pci=Pci(devices=_MACHINE.devices()),
            numa=Numa(nodes=(NumaNode(id=0), NumaNode(id=1))),
            gpus=tuple(
                Gpu(
                    index=index,
                    address=address,
                    name="NVIDIA H100 80GB HBM3",
                    bar1_bytes=128 << 30,
                    memory_bytes=80 << 30,
                    compute_capability="9.0",
                    c2c=False,
                    kind="datacenter",
                    nvlinks=(NvLink(peer=gpus[1 - index], count=18, version=4),),
                )
                for index, address in enumerate(gpus)
            ),
            nics=(
                Nic(
                    address=NIC,
                    netdevs=("ens1",),
                    rdma_device="mlx5_0",
                    link_layer="Ethernet",
                    rate_gbps=400.0,
                    state="ACTIVE",
                    ipv4=("10.0.0.1",),
                ),
            ),
            nvme=(
                Nvme(
                    name="nvme0",
                    address=DISK,
                    transport="pcie",
                    namespaces=("nvme0n1",),
                    driver="nvme",
                    multipath=False,
                ),
            ),
            block=(
                Block(
                    name="nvme0n1",
                    members=("nvme0",),
                    integrity=False,
                    udev={"ID_FS_USAGE": "filesystem", "ID_FS_TYPE": "ext4"},
                ),
            ),
            mounts=(
                Mount(
                    target=NVME,
                    source="/dev/nvme0n1",
                    fstype="ext4",
                    options=("rw", "relatime", "data=ordered"),
                    device="nvme0n1",
                    backing=Backing(kind="nvme", nvme=("nvme0",), transport="pcie"),
                ),
                Mount(
                    target=NFS,
                    source="10.0.0.16:/data",
                    fstype="nfs",
                    options=NFS_OPTIONS,
                    backing=Backing(kind="nfs", nics=("mlx5_0",), transport="rdma", server="10.0.0.16"),
                ),
            ),
            modules={
                "nvidia": module("580.95.05", license="Dual MIT/GPL"),
                "nvidia_fs": module("2.26.6"),
                "nvidia_peermem": Module(loaded=False),
                "nvme": module(),
                "nvme_core": module(parameters={"multipath": "N" if p2pdma else "Y"}),
                "rpcrdma": module("4.0"),
            },
            nvfs_hooks=patched | stock if p2pdma else patched,
            nvidia_driver=NvidiaDriver(
                version="580.95.05",
                kind="open",
                params={},
                registry_dwords=dwords,
                modprobe_registry_dwords=dwords,
                modprobe_files=dict.fromkeys(dwords, "/etc/modprobe.d/nvidia-p2pdma.conf"),
            ),
            nvidia_fs=NvidiaFs(
                loaded=True,
                version="2.26.6",
                device_nodes=("/dev/nvidia-fs0",),
                registered=("rpcrdma",) if p2pdma else ("nvme", "rpcrdma"),
                acs_bridges=(),
                rw_stats_enabled=True,
            ),
            gds=Gds(
                version="1.16.0" if p2pdma else "1.15.1",
                libcufile="/usr/local/cuda/lib64/libcufile.so.1.15.1",
                udev_rule_md=True,
            ),
            container=Container(kind="none", has_udev_db=True, has_cufile_json=True),
        ),
        P2PDMA_JSON if p2pdma else {},
    )


# --- breaking one thing -----------------------------------------------------------------------------------------------


def but(node: Node, changes: Mapping[str, object]) -> Node:
    """The node with some values changed. A path names fields, positions in tuples and keys of dicts, dots between."""
    for path, value in changes.items():
        node = _put(node, path.split("."), value)
    return node


def _put(record: Any, path: list[str], value: object) -> Any:
    if not path:
        return value
    head, rest = path[0], path[1:]
    if isinstance(record, tuple):
        at = int(head)
        return (*record[:at], _put(record[at], rest, value), *record[at + 1 :])
    if isinstance(record, dict):
        if value is GONE and not rest:
            return {key: kept for key, kept in record.items() if key != head}
        return record | {head: _put(record.get(head), rest, value)}
    return msgspec.structs.replace(record, **{head: _put(getattr(record, head), rest, value)})


def cufile(node: Node, value: object, *, env: dict[str, str] | None = None) -> Node:
    """With this /etc/cufile.json, as a value or as text; None: the file was not captured."""
    if value is None:
        return but(node, {"gds.cufile_config": CufileConfig(env=env or {})})
    text = value if isinstance(value, str) else json.dumps(value)
    config = CufileConfig(files=("/etc/cufile.json",), texts={"/etc/cufile.json": text}, env=env or {})
    return but(node, {"gds.cufile_config": config})


def log(node: Node, *lines: str) -> Node:
    """With these lines in the kernel log."""
    return but(node, {"platform.kernel_log": lines})


def unread(node: Node, section: str, field: str, key: str | None = None, reason: GapReason = "denied") -> Node:
    """With a gap that says why a field is None."""
    gap = Gap(section=section, field=field, reason=reason, key=key, settle_with="sudo gdsctl inspect")
    return but(node, {"gaps": (*node.gaps, gap)})


def redirecting(node: Node, *ports: str) -> Node:
    """With ACS sending peer requests up at these ports."""
    acs = Acs(
        state="enabled",
        capabilities=("SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd"),
        enabled=("SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd"),
        redirects=True,
    )
    return but(node, {f"{function(port)}.acs": acs for port in ports})


def across_host_bridges(node: Node, *, bridge: str = "09a2", vendor: str = "8086", disk_numa: int = 0) -> Node:
    """The same machine with drive and NIC on a host bridge of their own, of that vendor and device id."""
    machine = Machine()
    near = machine.switch(machine.root_port(machine.root("0000:17", numa=0)), ports=2)
    for port in near.down:
        machine.gpu(port)
    root = machine.root("0000:97", numa=disk_numa, bridge=(vendor, bridge))
    far = machine.switch(machine.root_port(root), ports=2)
    machine.nvme(far.down[0])
    machine.nic(far.down[1])
    return but(
        node,
        {
            "pci.devices": machine.devices(),
            "gpus.0.address": machine.gpus[0].address,
            "gpus.1.address": machine.gpus[1].address,
            "gpus.0.nvlinks.0.peer": machine.gpus[1].address,
            "gpus.1.nvlinks.0.peer": machine.gpus[0].address,
            "nvme.0.address": machine.disks[0].address,
            "nics.0.address": machine.nics[0].address,
        },
    )


def on_array(node: Node, level: str | None = "raid0", *, members: tuple[str, ...] = ("nvme0",)) -> Node:
    """With the drive's file system on an md array that udev knows."""
    udev = {"MD_LEVEL": level or "", "MD_DEVICES": str(len(members))}
    array = Block(name="md0", kind="md", slaves=("nvme0n1",), level=level, members=members, udev=udev)
    return but(
        node,
        {"block": (*node.block, array), "mounts.0.device": "md0", "mounts.0.backing.kind": "md"},
    )


def mounted(node: Node, *mounts: Mount) -> Node:
    """With more mounts."""
    return but(node, {"mounts": (*node.mounts, *mounts)})


def network(kind: str, target: str = "/mnt/net", *, transport: str | None = None) -> Mount:
    """A network file system reached through the NIC."""
    backing = Backing(kind=kind, nics=("mlx5_0",), transport=transport)  # type: ignore[arg-type]  # msgspec does not check on construction
    return Mount(target=target, source="server:/fs", fstype=kind, options=("rw",), backing=backing)

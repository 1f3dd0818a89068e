"""Nodes that plans are tested on, written by hand or taken from the examples that ship with gdsctl."""

from __future__ import annotations

import functools
from typing import Literal

import msgspec

from gdsctl.assess.assessment import Assessment, assess
from gdsctl.collect.node import collect
from gdsctl.model.devices import Backing, Block, Gpu, Mount, Nvme
from gdsctl.model.node import Node, Pci, SourceInfo
from gdsctl.model.pci import Acs, PciDevice
from gdsctl.model.software import CufileConfig, Gds, Iommu, Module, NvfsHook, NvidiaDriver, NvidiaFs, Platform
from gdsctl.model.unknown import Gap
from gdsctl.plan.intent import Intent, Wanted, read
from gdsctl.source.opening import open_source

GPU, DRIVE, PORT = "0000:02:00.0", "0000:03:00.0", "0000:00:01.0"
OFF = Acs(state="disabled", redirects=False)


@functools.cache
def example(name: str) -> Assessment:
    return assess(collect(open_source(f"example:{name}")))


def local(
    *,
    arch: str = "x86_64",
    hook: Literal["patched", "stock", "unknown"] = "patched",
    files: dict[str, str] | None = None,
    env: dict[str, str] | None = None,
    version: str | None = "1.16.1",
    options: tuple[str, ...] = ("rw",),
    fstype: str = "xfs",
    target: str = "/mnt/nvme",
    gpu: str = "NVIDIA H100 PCIe",
) -> Node:
    """One GPU and one drive below one root port, nvidia_fs loaded, all else as nvidia-fs needs it."""
    functions = (
        PciDevice(address=PORT, kind="root_port", class_="060400", root_bus="0000:00", acs=OFF),
        PciDevice(address=GPU, parent=PORT, kind="endpoint", class_="030200", root_bus="0000:00", acs=OFF),
        PciDevice(address=DRIVE, parent=PORT, kind="endpoint", class_="010802", root_bus="0000:00", acs=OFF),
    )
    texts = {"/etc/cufile.json": "{}"} if files is None else files
    symbol = "nvme_v1_register_nvfs_dma_ops"
    return Node(
        source=SourceInfo(kind="snapshot", path="made", host="made"),
        platform=Platform(
            kernel="6.8.0-60-generic",
            kernel_version=(6, 8, 0),
            arch=arch,
            cmdline="quiet",
            cpu_vendor="AuthenticAMD" if arch == "x86_64" else None,
            cpu_family=25,
            os_id="ubuntu",
            virtualization="none",
            kernel_config={"CONFIG_PCI_P2PDMA": "y"},
            symbols={"pci_p2pdma_add_resource": True},
        ),
        iommu=Iommu(state="off"),
        pci=Pci(devices=functions),
        gpus=(Gpu(index=0, address=GPU, name=gpu, bar1_bytes=1 << 37, memory_bytes=1 << 36, compute_capability="9.0"),),
        nvme=(Nvme(name="nvme0", address=DRIVE, transport="pcie", namespaces=("nvme0n1",), multipath=False),),
        block=(Block(name="nvme0n1", members=("nvme0",), integrity=False, udev={"ID_FS_USAGE": "filesystem"}),),
        mounts=(
            Mount(
                target=target,
                source="/dev/nvme0n1",
                fstype=fstype,
                options=options,
                device="nvme0n1",
                backing=Backing(kind="nvme", nvme=("nvme0",), transport="pcie"),
            ),
        ),
        modules={
            "nvidia": Module(loaded=True, version="580.65.06"),
            "nvidia_fs": Module(loaded=True, version="2.27.3"),
            "nvme": Module(loaded=True),
            "nvme_core": Module(loaded=True, size=200000, parameters={"multipath": "Y"}),
        },
        nvfs_hooks={"nvme": NvfsHook(state=hook, symbol=symbol if hook == "patched" else None, wanted_symbol=symbol)},
        nvidia_driver=NvidiaDriver(version="580.65.06", kind="open", registry_dwords={}, modprobe_registry_dwords={}),
        nvidia_fs=NvidiaFs(
            loaded=True,
            version="2.27",
            device_nodes=("/dev/nvidia-fs0",),
            registered=("nvme",) if hook == "patched" else (),
        ),
        gds=Gds(version=version, cufile_config=CufileConfig(files=tuple(texts), texts=texts, env=env or {})),
    )


def unknown() -> Node:
    """Nothing was captured."""
    gaps = tuple(
        Gap(section=section, field=field, reason="absent", settle_with=f"look at {section}")
        for section, field in (("gpus", ""), ("pci/devices", ""), ("mounts", ""), ("gds", "cufile_config/files"))
    )
    return Node(source=SourceInfo(kind="assembled", path="made"), gaps=gaps)


def changed(node: Node, **fields: object) -> Node:
    return msgspec.structs.replace(node, **fields)


def wanted(text: str | None = None) -> Wanted:
    """An intent from its YAML text, or the default one."""
    return Wanted(intent=Intent()) if text is None else read(text, "intent.yaml")

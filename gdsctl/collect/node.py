"""All collectors in the order in which their facts build on each other."""

from __future__ import annotations

from gdsctl.collect import (
    block,
    container,
    gds,
    gpus,
    iommu,
    lnet,
    modules,
    mounts,
    nics,
    numa,
    nvfs_hooks,
    nvidia_driver,
    nvidia_fs,
    nvme,
    pci,
    platform,
)
from gdsctl.collect.reader import Reader
from gdsctl.model.node import Node, Pci
from gdsctl.source.base import Source


def collect(source: Source) -> Node:
    """Everything gdsctl knows of the machine behind a source, and what it could not learn."""
    reader = Reader(source)
    machine = platform.collect(reader)
    functions = pci.collect(reader)
    controllers = nvme.collect(reader, functions)
    disks = block.collect(reader, controllers)
    adapters = nics.collect(reader, functions)
    nvfs = nvidia_fs.collect(reader)
    loaded = modules.collect(reader, nvfs)
    mounted = mounts.collect(reader, disks, controllers, adapters)
    return Node(
        source=source.info,
        platform=machine,
        iommu=iommu.collect(reader, functions, machine),
        pci=Pci(devices=functions, whole=pci.whole(reader)),
        numa=numa.collect(reader),
        gpus=gpus.collect(reader, functions),
        nics=adapters,
        nvme=controllers,
        block=disks,
        mounts=mounted,
        modules=loaded,
        nvfs_hooks=nvfs_hooks.collect(reader, loaded, nvfs),
        nvidia_driver=nvidia_driver.collect(reader),
        nvidia_fs=nvfs,
        gds=gds.collect(reader, mounted),
        container=container.collect(reader),
        smi_topo=gpus.smi_topo(reader),
        fstab=mounts.fstab(reader),
        nvme_host=nvme.host(reader),
        lnet=lnet.collect(reader),
        lnet_options=lnet.options(reader),
        gaps=tuple(reader.gaps),
    )

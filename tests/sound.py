"""A machine on which bytes go direct, from its files on: what field cases change one thing of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.builders import CR, RR, SV, UF, Machine
from tests.made import Made

P2PDMA_KEYS = {"properties": {"use_pci_p2pdma": True}, "block": {"nvme": {"use_pci_p2pdma": True}}}
P2PDMA_DWORDS = "RMForceStaticBar1=1;RmForceDisableIomapWC=1;ForceP2P=0"
FIRMWARE_NOISE = SV | RR | CR | UF
DRIVER = "580.95.05"
GPU, DRIVE = "0000:43:00.0", "0000:44:00.0"
GPU_PORT, DRIVE_PORT, OTHER_PORT = "0000:42:00.0", "0000:42:01.0", "0000:42:02.0"


class Sound(Made):
    """GPU 0000:43:00.0 and nvme0 below one switch. Options change one thing each.

    `acs`: control words of the ports above GPU and drive; `bars`: of the GPU; `config`: of cufile.json; `far`: the
    drive on a host bridge of its own, at the same socket or at the other; `registry`: RegistryDwords of the running
    driver, which modprobe.d holds as well; `groups`: type of the IOMMU groups of GPU and drive; `nic`: an RDMA interface
    10.0.0.1 beside the switch.
    """

    def __init__(
        self,
        root: Path,
        *,
        fstype: str = "xfs",
        options: str = "rw",
        hooks: str | None = "nvme_v1",
        nvidia_fs: str | None = "2.26.6",
        nodes: int = 16,
        stats: bool = False,
        open_kernel: bool = True,
        acs: tuple[int, int] = (0, 0),
        gpu: str = "NVIDIA A100 80GB PCIe",
        capability: str = "8.0",
        bars: tuple[int, ...] = (1 << 24, 0, 1 << 37),
        far: str | None = None,
        width: int = 4,
        multipath: bool = False,
        registry: str = "",
        groups: str | None = None,
        nic: bool = False,
        release: str = "1.15.1",
        config: Any = None,
        **facts: Any,
    ) -> None:
        super().__init__(root, **facts)
        machine = Machine()
        complex_ = machine.root("0000:40", numa=0, bridge=("1022", "1480"))
        upper = machine.root_port(complex_, gts=16.0)
        gpu_port, drive_port, other_port = machine.switch(upper, ports=3, gts=16.0).down
        gpu_port.acs, drive_port.acs = acs
        other_port.acs = FIRMWARE_NOISE  # a port beside the path, which must never be named
        if far:
            numa = 0 if far == "root" else 1
            drive_port = machine.root_port(machine.root("0000:80", numa=numa, bridge=("1022", "1480")), gts=16.0)
        machine.gpu(gpu_port, gts=16.0, ids=("10de", "20b5"), bars=bars)
        machine.nvme(drive_port, width=4)
        if nic:
            machine.nic(machine.root_port(complex_, gts=16.0), gts=16.0)
        if groups:
            for number, part in enumerate((*machine.gpus, *machine.disks)):
                part.group = str(number)
            self.file("/sys/class/iommu/ivhd0/amd-iommu/cap", "0")
        self.pci(machine, group_type=groups)
        if width != 4:
            home = self.root / "sys/bus/pci/devices" / machine.disks[0].address
            (home / "current_link_width").write_text(f"{width}\n")
        if nic:
            self.netdev(machine.nics[0], "ens1", gbps=200, address="10.0.0.1")
            self.rdma(machine.nics[0], "mlx5_0", gbps=200)
        disk = self.disk(machine.disks[0], "nvme0", filesystem=fstype, multipath=multipath)
        self.block("sda", "/sys/devices/pci0000:00/0000:00:07.1/ata1/host0/target0:0:0/0:0:0:0/block/sda", gib=99)
        if not (root / ".dockerenv").exists():
            self.mount("/", "/dev/sda", "xfs")
        self.mount("/mnt", f"/dev/{disk}", fstype, "rw,relatime", options)
        self.driver(machine, DRIVER, model=gpu, open_kernel=open_kernel, registry=registry)
        if registry:
            self.file("/etc/modprobe.d/nvidia.conf", f'options nvidia NVreg_RegistryDwords="{registry}"')
        self.nvml(machine, DRIVER, model=gpu, memory_mib=81920, capability=capability)
        self.module("nvme")
        self.module("nvme_core", users="nvme,", multipath="Y" if multipath else "N")
        self.modinfo("nvme", "/kernel/drivers/nvme/host/nvme.ko")
        self.symbol("pci_p2pdma_add_resource")
        if hooks:
            self.hooks("nvme", hooks)
        if nvidia_fs:
            self.nvidia_fs(nvidia_fs, f"{release}.6", registered=(), stats=stats, nodes=nodes)
        self.libcufile(release)
        self.file("/etc/cufile.json", config if isinstance(config, str) else json.dumps(config or {}))

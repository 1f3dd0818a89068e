"""A made-up machine as a folder that mirrors `/`, with what its tools would print and its libraries answer.

    made = Made(folder, kernel="6.8.0-60-generic", cpu=EPYC)
    made.pci(machine)                       # a tests/builders.py Machine
    made.disk(machine.disks[0], "nvme0")    # a controller with one namespace, and udev's entry for it
    made.mount("/mnt", "/dev/nvme0n1", "xfs")
    pipeline.inspect(made.source())

Facts that a machine of that kind always has (cpuinfo, os-release, empty folders that stand for "none") are written by
the constructor, so that a test only says what matters to it.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gdsctl.model.node import SourceInfo
from gdsctl.source.base import Missing, Output
from gdsctl.source.tree import FolderFiles, Tree
from tests.builders import Machine, Part, Root


@dataclass(frozen=True)
class Cpu:
    vendor: str
    family: int
    model: str
    flags: str = "fpu vme de pse tsc msr pae mce cx8 apic sep lm constant_tsc"


EPYC = Cpu("AuthenticAMD", 25, "AMD EPYC 9354 32-Core Processor")
XEON = Cpu("GenuineIntel", 6, "Intel(R) Xeon(R) Platinum 8468")


class MadeSource(Tree):
    """The folder, the outputs and the answers; what was not given was not captured."""

    def __init__(self, made: Made) -> None:
        super().__init__(FolderFiles(str(made.root)))
        self._made = made

    @property
    def info(self) -> SourceInfo:
        made = self._made
        return SourceInfo(kind="snapshot", host=made.host, captured_at=made.captured_at, euid=0, note=made.note)

    def run(self, name: str) -> Output | Missing:
        text = self._made.outputs.get(name)
        if text is None:
            return Missing(status="no_tool", detail=f"{name} is not installed")
        return Output(stdout=text)

    def ask(self, name: str) -> Any | Missing:
        return self._made.answers.get(name, Missing(status="no_tool", detail=f"no library for {name}"))


class Made:
    """See the module's text. `outputs`: command name -> standard output; `answers`: library -> plain values."""

    def __init__(
        self,
        root: Path,
        *,
        kernel: str = "6.8.0-60-generic",
        cmdline: str = "root=/dev/sda2 ro quiet",
        cpu: Cpu = EPYC,
        sockets: int = 1,
        host: str = "node1",
        product: tuple[str, str] = ("Supermicro", "AS -4125GS-TNRT"),
        system: tuple[str, str] = ("ubuntu", "24.04"),
        note: str | None = None,
    ) -> None:
        self.root = root
        self.host, self.note, self.kernel = host, note, kernel
        self.captured_at = "2026-01-15T12:00:00Z"
        self.outputs: dict[str, str] = {"dmesg": ""}
        self.answers: dict[str, Any] = {
            "host": {
                "hostname": host,
                "machine": "x86_64",
                "memlock_bytes": {"soft": None, "hard": None},
                "cufile_environment": {},
            }
        }
        self._mounts: list[str] = []
        self._modules: list[str] = []
        self._symbols: list[str] = []
        self._addresses: list[dict[str, Any]] = []
        self._routes = ["Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT"]
        self._minors = 0
        for folder in (
            *("sys/class/iommu", "sys/class/nvme", "sys/class/block", "sys/class/net", "sys/kernel/iommu_groups"),
            *("sys/module", "sys/firmware/acpi", "proc/driver", "dev", "etc/modprobe.d", "etc/udev/rules.d"),
            *("run/udev/data", "usr/lib/udev/rules.d", "usr/lib/modprobe.d", "usr/local", "boot", "var/lib"),
        ):
            os.makedirs(root / folder, exist_ok=True)
        self.file("/proc/sys/kernel/osrelease", kernel)
        self.file("/proc/sys/kernel/hostname", host)
        self.file("/proc/cmdline", f"BOOT_IMAGE=/boot/vmlinuz-{kernel} {cmdline}")
        self.file("/proc/self/limits", "Max locked memory         unlimited            unlimited            bytes")
        self.file("/proc/1/cgroup", "0::/init.scope")
        self.file("/proc/self/cgroup", "0::/user.slice/user-0.slice/session-1.scope")
        self.file("/proc/cpuinfo", "\n".join(_cpuinfo(cpu, sockets)))
        self.file("/etc/os-release", f'ID={system[0]}\nVERSION_ID="{system[1]}"')
        self.file("/sys/class/dmi/id/sys_vendor", product[0])
        self.file("/sys/class/dmi/id/product_name", product[1])
        self.file(
            "/usr/lib/udev/rules.d/63-md-raid-arrays.rules",
            'SUBSYSTEM!="block", GOTO="md_end"\n'
            'IMPORT{program}="/sbin/mdadm --detail --no-devices --export $devnode"\nLABEL="md_end"',
        )
        self.config(CONFIG_PCI_P2PDMA="y", CONFIG_NVME_MULTIPATH="y", CONFIG_MODULES="y", CONFIG_KALLSYMS_ALL="y")
        for number in range(2 * sockets):
            self.file(f"/sys/devices/system/cpu/cpu{8 * number // 2}/topology/physical_package_id", str(number // 2))
        self.mount("/proc", "proc", "proc")
        self.mount("/sys", "sysfs", "sysfs")
        self.mount("/dev/shm", "tmpfs", "tmpfs", "rw,nosuid,nodev", "rw,inode64")

    # --- plain things -------------------------------------------------------------------------------------------

    def file(self, path: str, text: str | bytes) -> None:
        """A file; text gets its newline."""
        place = self.root / path.lstrip("/")
        os.makedirs(place.parent, exist_ok=True)
        place.write_bytes(text if isinstance(text, bytes) else f"{text}\n".encode())

    def folder(self, path: str) -> None:
        os.makedirs(self.root / path.lstrip("/"), exist_ok=True)

    def link(self, path: str, target: str) -> None:
        """`target` is absolute, as the machine sees it."""
        place = self.root / path.lstrip("/")
        os.makedirs(place.parent, exist_ok=True)
        place.symlink_to(os.path.relpath(self.root / target.lstrip("/"), place.parent))

    def config(self, **options: str) -> None:
        text = "\n".join(
            f"{name}={value}" if value != "n" else f"# {name} is not set" for name, value in options.items()
        )
        self.file(f"/boot/config-{self.kernel}", text)

    def source(self) -> MadeSource:
        """Write what is collected line by line, and open the machine."""
        self.file("/proc/self/mountinfo", "\n".join(self._mounts))
        self.file("/proc/modules", "\n".join(self._modules))
        self.file("/proc/kallsyms", "\n".join(f"0000000000000000 {line}" for line in ("T _text", *self._symbols)))
        self.file("/proc/net/route", "\n".join(self._routes))
        if self._addresses:
            import json

            self.outputs["ip-addr"] = json.dumps(self._addresses)
        return MadeSource(self)

    # --- hardware -----------------------------------------------------------------------------------------------

    def pci(self, machine: Machine, *, group_type: str | None = None) -> None:
        """The functions of a tests/builders.py Machine; `group_type`: of every IOMMU group, "identity" or "DMA-FQ"."""
        machine.write(self.root)
        self._numa_sockets()
        if group_type:
            for group in (self.root / "sys/kernel/iommu_groups").iterdir():
                (group / "type").write_text(group_type + "\n")

    def disk(
        self,
        part: Part,
        name: str,
        *,
        gib: int = 3576,
        model: str = "SAMSUNG MZQL23T8HCLS-00A07",
        filesystem: str | None = None,
        multipath: bool = False,
        parts: int = 0,
    ) -> str:
        """An NVMe controller `nvmeN` with namespace 1, and udev's entry. Returns the name of the block device.

        `filesystem`: what udev found on it; `multipath`: the namespace is a head of the subsystem, as two-port drives
        have it with nvme_core.multipath=Y; `parts`: partitions, which then hold the file system.
        """
        number = name.removeprefix("nvme")
        home = f"{_sysfs(part)}/nvme/{name}"
        self.file(f"{home}/address", part.address)
        self.file(f"{home}/transport", "pcie")
        self.file(f"{home}/model", f"{model:<40}")
        self.file(f"{home}/numa_node", "-1" if part.root.numa is None else str(part.root.numa))
        self.link(f"/sys/class/nvme/{name}", home)
        subsystem = f"/sys/devices/virtual/nvme-subsystem/nvme-subsys{number}"
        self.link(f"/sys/class/nvme-subsystem/nvme-subsys{number}", subsystem)
        self.link(f"{subsystem}/{name}", home)
        block = f"nvme{number}n1"
        if multipath:
            self.file(f"{home}/nvme{number}c{number}n1/hidden", "1")
        self.block(
            block, f"{subsystem if multipath else home}/{block}", gib=gib, filesystem=None if parts else filesystem
        )
        for index in range(1, parts + 1):
            self.partition(block, index, gib=gib // parts, filesystem=filesystem if index == parts else "vfat")
        return block

    def block(
        self, name: str, home: str, *, gib: int, filesystem: str | None = None, device: str = "", **udev: str
    ) -> None:
        """A block device at `home` in sysfs, linked into /sys/class/block, with its node and udev's entry."""
        if not device:
            device, self._minors = f"259:{self._minors}", self._minors + 1
        self.file(f"{home}/dev", device)
        self.file(f"{home}/size", str(gib << 21))
        self.file(f"{home}/queue/logical_block_size", "512")
        self.file(f"{home}/integrity/device_is_integrity_capable", "0")
        self.link(f"/sys/class/block/{name}", home)
        self.file(f"/dev/{name}", b"")
        self._udev(name, device, filesystem, udev)

    def partition(self, disk: str, index: int, *, gib: int, filesystem: str | None = None) -> None:
        name = f"{disk}p{index}" if disk[-1].isdigit() else f"{disk}{index}"
        device, self._minors = f"259:{self._minors}", self._minors + 1
        home = f"/{(self.root / 'sys/class/block' / disk).resolve().relative_to(self.root.resolve())}/{name}"
        self.file(f"{home}/dev", device)
        self.file(f"{home}/size", str(gib << 21))
        self.file(f"{home}/partition", str(index))
        self.link(f"/sys/class/block/{name}", home)
        self.file(f"/dev/{name}", b"")
        self._udev(name, device, filesystem, {})

    def array(self, name: str, members: Iterable[str], *, gib: int, level: str = "raid0", filesystem: str) -> None:
        """An md array with udev's MD_* properties."""
        members = tuple(members)
        home = f"/sys/devices/virtual/block/{name}"
        minor = name.removeprefix("md")
        self.file(f"{home}/md/level", level)
        properties = {"MD_LEVEL": level, "MD_DEVICES": str(len(members)), "MD_METADATA": "1.2"}
        self.block(name, home, gib=gib, filesystem=filesystem, device=f"9:{minor}", **properties)
        for member in members:
            self.link(f"{home}/slaves/{member}", f"/sys/class/block/{member}")

    def netdev(self, part: Part, name: str, *, gbps: int, address: str | None = None, ib: bool = False) -> None:
        """A network interface, up, with an IPv4 address of a /24 or none."""
        home = f"{_sysfs(part)}/net/{name}"
        self.file(f"{home}/operstate", "up")
        self.file(f"{home}/speed", str(gbps * 1000))
        self.file(f"{home}/type", "32" if ib else "1")
        self.link(f"/sys/class/net/{name}", home)
        addresses = [{"family": "inet", "local": address, "prefixlen": 24, "scope": "global"}] if address else []
        self._addresses.append({"ifname": name, "operstate": "UP", "addr_info": addresses})
        if address:
            network = struct.pack("<4B", *(int(byte) for byte in address.split(".")))[:3] + b"\0"
            shown = network[::-1].hex().upper()
            self._routes.append(f"{name}\t{shown}\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0")

    def rdma(self, part: Part, name: str, *, gbps: int, ib: bool = False) -> None:
        """An RDMA device with one active port."""
        home = f"{_sysfs(part)}/infiniband/{name}"
        lanes, speed = {400: ("4X", "NDR"), 200: ("4X", "HDR"), 100: ("4X", "EDR"), 25: ("1X", "EDR")}[gbps]
        self.file(f"{home}/ports/1/state", "4: ACTIVE")
        self.file(f"{home}/ports/1/rate", f"{gbps} Gb/sec ({lanes} {speed})")
        self.file(f"{home}/ports/1/link_layer", "InfiniBand" if ib else "Ethernet")
        self.link(f"/sys/class/infiniband/{name}", home)

    # --- software -----------------------------------------------------------------------------------------------

    def mount(
        self, target: str, source: str, fstype: str, options: str = "rw,relatime", super_options: str = "rw"
    ) -> None:
        """A line of mountinfo; a source /dev/NAME takes the number of that block device."""
        number = len(self._mounts)
        place = self.root / "sys/class/block" / source.removeprefix("/dev/") / "dev"
        device = place.read_text().strip() if source.startswith("/dev/") and place.exists() else f"0:{20 + number}"
        self._mounts.append(
            f"{25 + number} {24 if target != '/' else 1} {device} / {target} {options} shared:{number + 1} - "
            f"{fstype} {source} {super_options}"
        )

    def module(
        self, name: str, *, version: str | None = None, users: str = "-", taint: str = "", **parameters: str
    ) -> None:
        """A loaded module: its row of /proc/modules and its folder in /sys/module."""
        count = users.count(",")
        self._modules.append(f"{name} 65536 {count} {users} Live 0x0000000000000000{f' ({taint})' if taint else ''}")
        self.folder(f"/sys/module/{name}")
        if version:
            self.file(f"/sys/module/{name}/version", version)
        for parameter, value in parameters.items():
            self.file(f"/sys/module/{name}/parameters/{parameter}", value)

    def modinfo(self, name: str, file: str, *, version: str | None = None, license_: str = "GPL") -> None:
        """What modinfo prints; `file`: below the folder of the kernel's modules."""
        lines = [f"filename:       /lib/modules/{self.kernel}{file}", f"license:        {license_}"]
        lines += [f"version:        {version}"] if version else []
        self.outputs[f"modinfo-{name.replace('_', '-')}"] = "\n".join([*lines, f"name:           {name}", ""])

    def symbol(self, name: str, module: str | None = None, kind: str = "T") -> None:
        """A line of kallsyms."""
        self._symbols.append(f"{kind} {name}" + (f"\t[{module}]" if module else ""))

    def hooks(self, module: str, stem: str) -> None:
        """The pair of symbols that nvidia-fs registers with, `stem` as in `nvme_v1`."""
        for verb in ("register", "unregister"):
            self.symbol(f"{stem}_{verb}_nvfs_dma_ops", module)

    def driver(
        self, machine: Machine, version: str, *, model: str, open_kernel: bool = True, registry: str = ""
    ) -> None:
        """The NVIDIA driver as it runs, and its modules."""
        kind = "Open Kernel Module for x86_64" if open_kernel else "x86_64 Kernel Module"
        self.file(
            "/proc/driver/nvidia/version",
            f"NVRM version: NVIDIA UNIX {kind}  {version}  Release Build  (dvs-builder@U22-I3-AE18)\n"
            "GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)",
        )
        self.file(
            "/proc/driver/nvidia/params",
            f'ResmanDebugLevel: 4294967295\nRmLogonRC: 1\nEnableResizableBar: 0\nRegistryDwords: "{registry}"\n'
            'RegistryDwordsPerDevice: ""\nGrdmaPciTopoCheckOverride: 0',
        )
        for index, gpu in enumerate(machine.gpus):
            self.file(
                f"/proc/driver/nvidia/gpus/{gpu.address}/information",
                f"Model: \t\t {model}\nIRQ:   \t\t {100 + index}\nGPU UUID: \t {uuid(index)}\n"
                f"Bus Type: \t PCIe\nBus Location: \t {gpu.address}\nDevice Minor: \t {index}\n"
                f"GPU Firmware: \t {version}\nGPU Excluded:\t No",
            )
            self.file(f"/dev/nvidia{index}", b"")
        taint = "OE" if open_kernel else "POE"
        self.module("nvidia", version=version, users="nvidia_uvm,nvidia_modeset,", taint=taint)
        self.file("/sys/module/nvidia/taint", taint)
        self.module("nvidia_uvm", version=version, taint=taint)
        self.module("nvidia_modeset", version=version, taint=taint)
        license_ = "Dual MIT/GPL" if open_kernel else "NVIDIA"
        self.modinfo("nvidia", "/updates/dkms/nvidia.ko", version=version, license_=license_)

    def nvml(
        self,
        machine: Machine,
        version: str,
        *,
        model: str,
        memory_mib: int,
        capability: str,
        links: int = 0,
        link_version: int = 4,
    ) -> None:
        """NVML's answer; `links`: NVLinks of each GPU to NVSwitches."""
        self.answers["nvml"] = {
            "driver_version": version,
            "gpus": [
                {
                    "index": index,
                    "pci_address": gpu.address,
                    "name": model,
                    "uuid": uuid(index),
                    "memory_bytes": memory_mib << 20,
                    "bar1_bytes": max(gpu.bars),
                    "compute_capability": capability,
                    "c2c": False,
                    "nvlinks": [{"active": True, "remote_pci": "switch", "version": link_version}] * links,
                }
                for index, gpu in enumerate(machine.gpus)
            ],
        }

    def nvidia_fs(
        self, version: str, release: str, *, registered: Iterable[str] = (), stats: bool = False, nodes: int = 16
    ) -> None:
        """nvidia-fs loaded; `release`: the GDS release in its stats; `registered`: storage modules that let it in."""
        self.module("nvidia_fs", version=version, taint="OE", rw_stats_enabled=str(int(stats)), peer_stats_enabled="0")
        home = "/proc/driver/nvidia-fs"
        self.file(f"{home}/version", f"version: {'.'.join(version.split('.')[:2])}")
        self.file(f"{home}/devcount", "16")
        self.file(f"{home}/modules", "\n".join([*(f"{name}: (null)" for name in registered), "wekafsio: 1"]))
        self.file(f"{home}/bridges", b"")
        self.file(f"{home}/peer_distance", "gpu\tpeer\tpeerrank\tp2pdist\tlink\tgen\tnuma\tnp2p\tclass")
        enabled = "Enabled" if stats else "Disabled"
        rows = (
            (
                "Reads				: n=0 ok=0 err=0 readMiB=0 io_state_err=0",
                "Ops				: Read=0 Write=0 BatchIO=0",
            )
            if stats
            else ("Reads				: err=0 io_state_err=0", "Ops				: Read=0 Write=0 BatchIO=0")
        )
        self.file(
            f"{home}/stats",
            f"GDS Version: {release} \nNVFS statistics(ver: 4.0)\nNVFS Driver(version: {version})\n"
            f"Mellanox PeerDirect Supported: True\nIO stats: {enabled}, peer IO stats: Disabled\nLogging level: info\n\n"
            f"Active Shadow-Buffer (MiB): 0\nActive Process: 0\n" + "\n".join(rows),
        )
        for number in range(nodes):
            self.file(f"/dev/nvidia-fs{number}", b"")
        self.modinfo("nvidia_fs", "/updates/dkms/nvidia-fs.ko", version=version, license_="GPL v2")

    def libcufile(self, version: str) -> None:
        """The library where CUDA's packages put it."""
        home = "/usr/local/cuda/targets/x86_64-linux/lib"
        self.file(f"{home}/libcufile.so.{version}", b"")
        self.link(f"{home}/libcufile.so.0", f"{home}/libcufile.so.{version}")

    def _udev(self, name: str, device: str, filesystem: str | None, more: dict[str, str]) -> None:
        found = {"ID_FS_USAGE": "filesystem", "ID_FS_TYPE": filesystem} if filesystem else {}
        lines = [f"E:{key}={value}" for key, value in {**found, **more}.items()]
        self.file(f"/run/udev/data/b{device}", "\n".join([f"S:disk/by-id/{name}", *lines]))

    def _numa_sockets(self) -> None:
        """The CPUs that builders.py gives each node: eight of a socket."""
        nodes = self.root / "sys/devices/system/node"
        for node in nodes.iterdir() if nodes.exists() else ():
            number = int(node.name.removeprefix("node"))
            self.file(f"/sys/devices/system/cpu/cpu{8 * number}/topology/physical_package_id", str(number))


def uuid(index: int) -> str:
    return f"GPU-{index:08x}-0000-4000-8000-{index:012x}"


def _sysfs(part: Part) -> str:
    above: Part | Root = part
    places: list[str] = []
    while isinstance(above, Part):
        places.append(above.address)
        above = above.above
    return "/".join(["/sys/devices", f"{above.under}pci{above.bus}", *reversed(places)])


def _cpuinfo(cpu: Cpu, sockets: int) -> Iterable[str]:
    for number in range(sockets):
        yield f"processor\t: {number}\nvendor_id\t: {cpu.vendor}\ncpu family\t: {cpu.family}\nmodel\t\t: 17"
        yield f"model name\t: {cpu.model}\nphysical id\t: {number}\nflags\t\t: {cpu.flags}\n"

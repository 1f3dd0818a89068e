"""PCIe topologies for gdsvm.py, as QEMU arguments.

Each function in ALL takes a Topology and adds devices to it.
"""

import struct
from pathlib import Path

from tests.vm import fakepci

_IOMMU = {"none": "", "off": "intel_iommu=off", "pt": "intel_iommu=on iommu=pt", "on": "intel_iommu=on"}


class Topology:
    def __init__(self, ctl: Path, iommu: str) -> None:
        self.ctl = ctl
        self.args: list[str] = []
        self.fds: list[int] = []
        self.helpers: list[fakepci.FakeDevice] = []
        self.count: dict[str, int] = {}
        self.overlays: list[str] = []
        self.cmdline = _IOMMU[iommu]
        if iommu != "none":
            # With intremap=on QEMU 7.2 now and then drops an interrupt ("Blocked re-entrant IO") and the guest sleeps for ever.
            self.device("intel-iommu,intremap=off,caching-mode=on")

    def close(self) -> None:
        for h in self.helpers:
            h.close()

    def device(self, spec: str) -> None:
        self.args += ["-device", spec]

    def name(self, kind: str) -> str:
        n = self.count[kind] = self.count.get(kind, 0) + 1
        return f"{kind}{n}"

    # Ports. Each returns the id of the bus below it.
    def host_bridge(self, numa: int, bus_nr: int) -> str:
        n = self.name("host")
        self.device(f"pxb-pcie,bus=pcie.0,id={n},bus_nr={bus_nr},numa_node={numa}")
        return n

    def root_port(self, bus: str = "pcie.0", props: str = "x-speed=16,x-width=16") -> str:
        n = self.name("rp")
        slot = self.count["rp"]
        self.device(f"pcie-root-port,bus={bus},id={n},chassis={slot},slot={slot},{props}")
        return n

    def switch(self, bus: str, ports: int) -> list[str]:
        up = self.name("up")
        self.device(f"x3130-upstream,bus={bus},id={up}")
        downs = []
        for i in range(ports):
            d = self.name("dn")
            self.device(f"xio3130-downstream,bus={up},id={d},chassis={100 + self.count['dn']},slot={i}")
            downs.append(d)
        return downs

    def switch_with_acs(self, bus: str, ports: int) -> list[str]:
        """Downstream ports that are QEMU's root ports: those have ACS, and the kernel's P2PDMA asks for no port's type."""
        up = self.name("up")
        self.device(f"x3130-upstream,bus={bus},id={up}")
        return [self.root_port(up) for _ in range(ports)]

    # Endpoints.
    def nvme(self, bus: str, serial: str, mib: int = 384, cmb_mib: int = 0) -> None:
        image = self.ctl / f"{serial}.img"
        image.touch()
        with image.open("r+b") as f:
            f.truncate(mib << 20)
        self.args += ["-drive", f"file={image},format=raw,if=none,id=d{serial},cache=unsafe,discard=unmap"]
        cmb = f",cmb_size_mb={cmb_mib}" if cmb_mib else ""
        self.device(f"nvme,bus={bus},drive=d{serial},serial={serial}{cmb}")

    def nic(self, bus: str, model: str = "e1000e") -> None:
        n = self.name("net")
        self.args += ["-netdev", f"hubport,id={n},hubid=0"]
        self.device(f"{model},bus={bus},netdev={n},mac=52:54:00:00:00:{self.count['net']:02x}")

    def fake(self, bus: str, device: fakepci.FakeDevice) -> None:
        fd = device.qemus.fileno()
        self.helpers.append(device)
        self.fds.append(fd)
        self.device(f"x-pci-proxy-dev,bus={bus},fd={fd}")

    def overlay(self, ids: str, offset: int, data: bytes, mask: bytes = b"") -> None:
        """Lay bytes over the configuration space of all devices with these ids ("0xVVVV:0xDDDD")."""
        self.overlays.append(f"{ids} {offset:#x} {data.hex()} {mask.hex()}\n")

    def switch_ports_with_acs(self) -> None:
        """QEMU's switch ports have no ACS capability. Give the downstream ones one, after their AER."""
        port = "0x104c:0x8233"
        self.overlay(port, 0x100, struct.pack("<I", 0x14820001))
        self.overlay(port, 0x148, struct.pack("<IHH", 0x0001000D, 0x005F, 0), struct.pack("<IHH", 0, 0, 0x005F))


def bare(t: Topology) -> None:
    """No more than the root disk and the shares."""


def switches(t: Topology) -> None:
    """Two sockets; on each a host bridge, a root port and a switch with disks, a NIC and a GPU."""
    for numa, bus_nr in ((0, 0x20), (1, 0x80)):
        host = t.host_bridge(numa, bus_nr)
        d = t.switch(t.root_port(host), 4)
        t.nvme(d[0], f"GDS{numa}A", cmb_mib=64 if numa == 0 else 0)
        t.nvme(d[1], f"GDS{numa}B")
        t.nic(d[2])
        # the second socket's GPU has a degraded link
        t.fake(d[3], fakepci.gpu_a100(link=(16, 16) if numa == 0 else (8, 8), link_max=(16, 16)))
        # one disk straight below a root port of the same socket
        t.nvme(t.root_port(host), f"GDS{numa}C")


def switches_acs(t: Topology) -> None:
    """The same with ACS on the switches' downstream ports, which are by Broadcom, and Gen4 x4 disks."""
    t.switch_ports_with_acs()
    nvme = "0x1b36:0x0010"
    t.overlay(nvme, 0x00, struct.pack("<HH", 0x144D, 0xA824))
    t.overlay(nvme, 0x8C, struct.pack("<I", 0x00000044))  # link capabilities: 16 GT/s, x4
    t.overlay(nvme, 0x92, struct.pack("<H", 0x0044))  # link status
    for port in ("0x104c:0x8232", "0x104c:0x8233"):  # their own ids last: the rest is found by the old ones
        t.overlay(port, 0x9C, struct.pack("<I", 0x01000104))
        t.overlay(port, 0xA2, struct.pack("<H", 0x2104))
        t.overlay(port, 0x00, struct.pack("<HH", 0x1000, 0xC010))
    switches(t)


def flat(t: Topology) -> None:
    """A workstation: everything straight below root ports, no NUMA node in sysfs (-1)."""
    t.fake(t.root_port(), fakepci.gpu_a100())
    t.nvme(t.root_port(), "GDSA")
    t.nvme(t.root_port(), "GDSB")
    t.nic(t.root_port())


def far(t: Topology) -> None:
    """Two GPUs on socket 0, all disks and the RDMA-capable card on socket 1."""
    near, other = t.host_bridge(0, 0x20), t.host_bridge(1, 0x80)
    for _ in range(2):
        t.fake(t.root_port(near), fakepci.gpu_h100())
    d = t.switch(t.root_port(other), 4)
    t.nvme(d[0], "GDSA")
    t.nvme(d[1], "GDSB")
    t.nic(d[2])
    t.fake(d[3], fakepci.nic_cx7())


def cascade(t: Topology) -> None:
    """A switch below a switch: GPU and disk at different depths of one tree."""
    upper = t.switch(t.root_port(t.host_bridge(0, 0x20)), 3)
    lower = t.switch(upper[0], 3)
    t.fake(upper[1], fakepci.gpu_h100())
    t.nvme(upper[2], "GDSUP")
    t.fake(lower[0], fakepci.gpu_h100())
    t.nvme(lower[1], "GDSLOW")
    t.nic(lower[2])


def multipath(t: Topology) -> None:
    """One NVMe namespace behind two controllers, one on each socket (nvme0c0n1, nvme0c1n1)."""
    image = t.ctl / "shared.img"
    with image.open("wb") as f:
        f.truncate(384 << 20)
    t.device("nvme-subsys,id=subsys0,nqn=subsys0")
    for numa, bus_nr in ((0, 0x20), (1, 0x80)):
        host = t.host_bridge(numa, bus_nr)
        t.device(f"nvme,bus={t.root_port(host)},id=ctrl{numa},serial=GDSMP,subsys=subsys0")
        t.fake(t.root_port(host), fakepci.gpu_a100())
    t.args += ["-drive", f"file={image},format=raw,if=none,id=dshared,cache=unsafe"]
    t.device("nvme-ns,drive=dshared,bus=ctrl0,nsid=1,shared=on")


def p2pmem(t: Topology) -> None:
    """Disks with and without a buffer that peers can use, below switches with and without ACS, on two sockets."""
    near, other = t.host_bridge(0, 0x20), t.host_bridge(1, 0x80)
    a = t.switch_with_acs(t.root_port(near), 3)
    t.nvme(a[0], "P2PA", cmb_mib=64)
    t.nvme(a[1], "P2PB")
    t.nvme(a[2], "P2PC", cmb_mib=16)
    b = t.switch(t.root_port(near), 2)
    t.nvme(b[0], "P2PD", cmb_mib=16)
    t.nvme(b[1], "P2PE")
    t.nvme(t.root_port(near), "P2PF")
    t.nvme(t.root_port(other), "P2PG")


def drives(t: Topology) -> None:
    """Storage to move bytes on: four disks below root ports and a NIC."""
    for serial in ("PLAIN", "RAIDA", "RAIDB", "SERVED"):
        t.nvme(t.root_port(), serial, mib=1024)
    t.nic(t.root_port())


ALL = {f.__name__: f for f in (bare, switches, switches_acs, p2pmem, flat, far, cascade, multipath, drives)}

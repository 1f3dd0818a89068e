"""Made-up PCIe machines for tests: as records, and as a sysfs tree that a Source can read.

    machine = Machine()
    socket = machine.root("0000:17", numa=0)
    switch = machine.switch(machine.root_port(socket), ports=2)
    gpu, disk = machine.gpu(switch.down[0]), machine.nvme(switch.down[1])
    machine.node(), machine.write(folder)

Bus numbers are given out depth first when an address is first asked for; adding a part numbers them anew.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, field
from pathlib import Path

from gdsctl.model.devices import Gpu, Nic, Nvme
from gdsctl.model.node import Node, Numa, NumaNode, Pci, SourceInfo
from gdsctl.model.pci import ACS_BITS, ACS_REDIRECTING, Acs, Bar, Link, PciDevice, PortKind, Sriov
from gdsctl.model.software import Iommu, NvidiaFs, Platform

RR, CR, SV, UF, EC = 0x04, 0x08, 0x01, 0x10, 0x20
PORT_ACS = 0x5F  # what switches and root ports commonly offer: all but egress control

_PORT_TYPE: dict[PortKind, int] = {
    "endpoint": 0,
    "root_port": 4,
    "upstream_port": 5,
    "downstream_port": 6,
    "pcie_to_pci_bridge": 7,
    "root_complex_endpoint": 9,
}
_SPEED = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}


@dataclass(eq=False)
class Root:
    """A host bridge: `bus` is its root bus as `dddd:bb`."""

    bus: str
    numa: int | None
    parts: list[Part] = field(default_factory=list)
    under: str = ""  # what stands above pciDDDD:BB in sysfs; VMD's own function for its domain


@dataclass(eq=False)
class Part:
    """One function. `acs`: the control word, None without the capability; `speed`: GT/s, current and maximum."""

    machine: Machine
    above: Part | Root
    kind: PortKind
    class_: str
    ids: tuple[str, str]
    slot: int
    function: int = 0
    acs: int | None = None
    speed: tuple[float, float] | None = None
    width: int = 16
    driver: str | None = None
    bars: tuple[int, ...] = ()
    group: str | None = None
    subsystem: tuple[str, str] = ("0000", "0000")
    physfn: Part | None = None
    parts: list[Part] = field(default_factory=list)
    numa: int | None = None
    bus: str = ""
    secondary: int = 0
    subordinate: int = 0

    @property
    def address(self) -> str:
        self.machine.number()
        return f"{self.bus}:{self.slot:02x}.{self.function}"

    @property
    def root(self) -> Root:
        above = self.above
        while isinstance(above, Part):
            above = above.above
        return above

    @property
    def bridge(self) -> bool:
        return self.class_.startswith("0604")


@dataclass(eq=False)
class Switch:
    up: Part
    down: list[Part]


class Machine:
    """Roots, ports, switches and endpoints, in the order in which they were added."""

    def __init__(self) -> None:
        self.roots: list[Root] = []
        self.gpus: list[Part] = []
        self.disks: list[Part] = []
        self.nics: list[Part] = []
        self._numbered = False

    # --- building -----------------------------------------------------------------------------------------------

    def root(self, bus: str, *, numa: int | None = None, bridge: tuple[str, str] | None = ("8086", "09a2")) -> Root:
        """A root bus, with a host bridge function at 00.0 unless `bridge` is None."""
        root = Root(bus, numa)
        self.roots.append(root)
        if bridge:
            self.add(root, "root_complex_endpoint", "088000", bridge, speed=None)
        return root

    def add(self, above: Part | Root, kind: PortKind, class_: str, ids: tuple[str, str], **more: object) -> Part:
        """Any function; the next free slot, or the next function of the slot of `beside`."""
        beside = more.pop("beside", None)
        slot = max((part.slot for part in above.parts), default=-1) + 1
        function = 0
        if isinstance(beside, Part):
            slot = beside.slot
            function = max(part.function for part in above.parts if part.slot == slot) + 1
        part = Part(self, above, kind, class_, ids, slot, function, **more)  # type: ignore[arg-type]  # fields of Part
        above.parts.append(part)
        self._numbered = False
        return part

    def root_port(self, root: Root, *, acs: int | None = 0, gts: float = 32.0, **more: object) -> Part:
        return self.add(root, "root_port", "060400", ("8086", "352a"), acs=acs, speed=(gts, gts), **more)

    def switch(
        self,
        above: Part,
        *,
        ports: int = 2,
        acs: int | None = 0,
        gts: float = 32.0,
        ids: tuple[str, str] = ("10b5", "8796"),
        subsystem: tuple[str, str] = ("0000", "0000"),
    ) -> Switch:
        """An upstream port (without ACS, as single functions have none) and its downstream ports."""
        common = {"speed": (gts, gts), "subsystem": subsystem}
        up = self.add(above, "upstream_port", "060400", ids, **common)
        return Switch(up, [self.add(up, "downstream_port", "060400", ids, acs=acs, **common) for _ in range(ports)])

    def gpu(self, above: Part | Root, *, gts: float = 32.0, idle: bool = True, width: int = 16, **more: object) -> Part:
        more = {"ids": ("10de", "2330"), "speed": (2.5 if idle else gts, gts), "bars": (1 << 24, 0, 1 << 37), **more}
        part = self.add(above, "endpoint", "030200", width=width, driver="nvidia", **more)  # type: ignore[arg-type]
        self.gpus.append(part)
        return part

    def nvme(self, above: Part | Root, *, gts: float = 16.0, width: int = 4, **more: object) -> Part:
        more = {"ids": ("144d", "a80a"), "speed": (gts, gts), "bars": (1 << 14,), **more}
        part = self.add(above, "endpoint", "010802", width=width, driver="nvme", **more)  # type: ignore[arg-type]
        self.disks.append(part)
        return part

    def nic(self, above: Part | Root, *, gts: float = 32.0, width: int = 16, **more: object) -> Part:
        more = {"ids": ("15b3", "1021"), "speed": (gts, gts), "bars": (1 << 25,), **more}
        part = self.add(above, "endpoint", "020700", width=width, driver="mlx5_core", **more)  # type: ignore[arg-type]
        self.nics.append(part)
        return part

    # --- reading back -------------------------------------------------------------------------------------------

    @property
    def parts(self) -> list[Part]:
        """All functions, depth first."""

        def below(parts: list[Part]) -> list[Part]:
            return [found for part in parts for found in (part, *below(part.parts))]

        return [part for root in self.roots for part in below(root.parts)]

    def number(self) -> None:
        """Give out bus numbers, depth first from each root bus."""
        if self._numbered:
            return

        def visit(parts: list[Part], domain: str, bus: int, last: int) -> int:
            for part in parts:
                part.bus = f"{domain}:{bus:02x}"
                if part.bridge:
                    part.secondary = last + 1
                    last = part.subordinate = visit(part.parts, domain, last + 1, last + 1)
            return last

        for root in self.roots:
            domain, bus = root.bus.rsplit(":", 1)
            visit(root.parts, domain, int(bus, 16), int(bus, 16))
        self._numbered = True

    def devices(self) -> tuple[PciDevice, ...]:
        """The records that a privileged reader makes of this machine."""
        self.number()
        return tuple(sorted((_record(part) for part in self.parts), key=lambda device: device.address))

    def node(
        self,
        *,
        cpu: tuple[str, int] = ("GenuineIntel", 6),
        virtualization: str | None = None,
        acs_bridges: tuple[str, ...] | None = None,
        rate_gbps: float | None = None,
        iommu: Iommu | None = None,
    ) -> Node:
        """A node that holds this machine and little else."""
        return Node(
            source=SourceInfo(kind="tree"),
            platform=Platform(cpu_vendor=cpu[0], cpu_family=cpu[1], virtualization=virtualization),
            iommu=iommu or Iommu(),
            pci=Pci(devices=self.devices()),
            numa=Numa(nodes=tuple(NumaNode(id=number) for number in self._numa_nodes())),
            gpus=tuple(Gpu(index=index, address=part.address) for index, part in enumerate(self.gpus)),
            nvme=tuple(
                Nvme(name=f"nvme{index}", address=part.address, transport="pcie")
                for index, part in enumerate(self.disks)
            ),
            nics=tuple(Nic(address=part.address, rate_gbps=rate_gbps) for part in self.nics),
            nvidia_fs=NvidiaFs(acs_bridges=acs_bridges),
        )

    # --- writing ------------------------------------------------------------------------------------------------

    def write(self, folder: Path, *, privileged: bool = True, links: bool = True) -> Path:
        """A sysfs tree below `folder`/sys. Unprivileged: config spaces of 64 bytes. `links`: False puts the functions
        right into /sys/bus/pci/devices as folders, as some tools' fixtures do.
        """
        self.number()
        for part in self.parts:
            place = f"bus/pci/devices/{part.address}" if not links else self._place(part)
            home = folder / "sys" / place
            os.makedirs(home)
            for name, text in _attributes(part).items():
                (home / name).write_text(text + "\n")
            config = _config(part)
            (home / "config").write_bytes(config if privileged else config[:64])
            if links:
                _link(folder / "sys/bus/pci/devices" / part.address, home)
            if part.driver:
                _link(home / "driver", folder / "sys/bus/pci/drivers" / part.driver)
            if part.physfn:
                _link(home / "physfn", folder / "sys" / self._place(part.physfn))
            if part.group:
                group = folder / "sys/kernel/iommu_groups" / part.group
                _link(group / "devices" / part.address, home)
                (group / "type").write_text("DMA\n")
                _link(home / "iommu_group", group)
        numa = self._numa_nodes()
        for number in numa:
            home = folder / f"sys/devices/system/node/node{number}"
            os.makedirs(home)
            distances = ("10" if other == number else "21" for other in numa)
            (home / "distance").write_text(" ".join(distances) + "\n")
            (home / "cpulist").write_text(f"{8 * number}-{8 * number + 7}\n")
            (home / "meminfo").write_text(f"Node {number} MemTotal:       1048576 kB\n")
        return folder

    def _numa_nodes(self) -> list[int]:
        return sorted({root.numa for root in self.roots if root.numa is not None})

    def _place(self, part: Part) -> str:
        above = part.above
        if isinstance(above, Part):
            return f"{self._place(above)}/{part.address}"
        return f"devices/{above.under}pci{above.bus}/{part.address}"


def _numa(part: Part) -> int | None:
    return part.numa if part.numa is not None else part.root.numa


def _record(part: Part) -> PciDevice:
    above = part.above
    return PciDevice(
        address=part.address,
        parent=above.address if isinstance(above, Part) else None,
        kind=part.kind,
        vendor_id=part.ids[0],
        device_id=part.ids[1],
        subsystem_vendor_id=part.subsystem[0] if part.subsystem[0] != "0000" else None,
        subsystem_device_id=part.subsystem[1] if part.subsystem[0] != "0000" else None,
        class_=part.class_,
        driver=part.driver,
        numa_node=_numa(part),
        link=_link_of(part),
        acs=_acs(part.acs),
        iommu_group=part.group,
        bars=tuple(Bar(index=i, size_bytes=size, prefetchable=i > 0) for i, size in enumerate(part.bars) if size),
        sriov=Sriov(is_vf=part.physfn is not None, physfn=part.physfn.address if part.physfn else None),
        root_bus=part.root.bus,
        secondary_bus=part.secondary if part.bridge else None,
        subordinate_bus=part.subordinate if part.bridge else None,
        config_bytes=4096,
    )


def _link_of(part: Part) -> Link:
    if part.speed is None:
        return Link()
    return Link(speed_gts=part.speed[0], width=part.width, max_speed_gts=part.speed[1], max_width=part.width)


def _acs(control: int | None) -> Acs:
    if control is None:
        return Acs(state="absent")
    enabled = tuple(name for bit, name in enumerate(ACS_BITS) if control >> bit & 1)
    return Acs(
        state="enabled" if enabled else "disabled",
        capabilities=tuple(name for bit, name in enumerate(ACS_BITS) if (PORT_ACS | control) >> bit & 1),
        enabled=enabled,
        redirects=not ACS_REDIRECTING.isdisjoint(enabled),
    )


def _attributes(part: Part) -> dict[str, str]:
    numa = _numa(part)
    attributes = {
        "vendor": f"0x{part.ids[0]}",
        "device": f"0x{part.ids[1]}",
        "class": f"0x{part.class_}",
        "subsystem_vendor": f"0x{part.subsystem[0]}",
        "subsystem_device": f"0x{part.subsystem[1]}",
        "numa_node": str(-1 if numa is None else numa),
        "resource": "\n".join(_resource(part)),
    }
    if part.speed is not None:
        attributes |= {
            "current_link_speed": f"{part.speed[0]:.1f} GT/s PCIe",
            "max_link_speed": f"{part.speed[1]:.1f} GT/s PCIe",
            "current_link_width": str(part.width),
            "max_link_width": str(part.width),
        }
    return attributes


def _resource(part: Part) -> list[str]:
    lines = []
    for index in range(7):
        size = part.bars[index] if index < len(part.bars) else 0
        start, flags = (1 << 40, 0x142208 if index else 0x40200) if size else (0, 0)
        lines.append(f"0x{start:016x} 0x{start + size - 1 if size else 0:016x} 0x{flags:016x}")
    return lines


def _config(part: Part) -> bytes:
    """A 4096-byte configuration space: header, PCI Express capability at 40h, ACS at 100h."""
    data = bytearray(4096)
    struct.pack_into("<HHHH", data, 0, int(part.ids[0], 16), int(part.ids[1], 16), 0x0406, 0x0010)
    data[0x09:0x0C] = bytes.fromhex(part.class_)[::-1]
    siblings = sum(other.slot == part.slot for other in part.above.parts)
    data[0x0E] = part.bridge | (0x80 if siblings > 1 else 0)
    if part.bridge:
        data[0x18:0x1B] = bytes((int(part.bus[-2:], 16), part.secondary, part.subordinate))
    else:
        struct.pack_into("<HH", data, 0x2C, int(part.subsystem[0], 16), int(part.subsystem[1], 16))
    data[0x34] = 0x40
    current, maximum = part.speed or (0, 0)
    struct.pack_into("<BBH", data, 0x40, 0x10, 0, _PORT_TYPE[part.kind] << 4 | 2)
    struct.pack_into("<I", data, 0x4C, part.width << 4 | _SPEED.get(maximum, 0))
    struct.pack_into("<H", data, 0x52, part.width << 4 | _SPEED.get(current, 0))
    if part.acs is not None:
        struct.pack_into("<IHH", data, 0x100, 0x0001000D, PORT_ACS | part.acs, part.acs)
    return bytes(data)


def _link(place: Path, target: Path) -> None:
    os.makedirs(place.parent, exist_ok=True)
    os.makedirs(target, exist_ok=True)
    place.symlink_to(os.path.relpath(target, place.parent))

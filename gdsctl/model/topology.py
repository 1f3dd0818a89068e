"""The PCI tree as questions: who is above whom, where two functions meet, how wide the way is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from gdsctl.model.judgement import PairClass
from gdsctl.model.pci import Link, PciDevice, address_key

Meet = Literal["switch", "root_port", "host_bridge", "numa", "socket"]

_DEEPEST = 256  # buses of a domain: a longer chain of bridges is a loop

# PCI Express Base Specification 6.0, 4.2: transfer rate to the share of bits that are not line code. 64 GT/s sends flits
# of 256 bytes, 242 of them not CRC and FEC.
_ENCODING: dict[float, float] = {2.5: 8 / 10, 5.0: 8 / 10, 64.0: 242 / 256}
_ENCODING_128B130B = 128 / 130
_GENERATION: dict[float, int] = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
AT_REST_GTS = 2.5
"""What a GPU's link trains down to while it does nothing."""

_GPU_CLASSES = ("0300", "0302", "0380", "1200", "0b40")


def link_gbs(speed_gts: float, width: int) -> float:
    """GB/s (10^9 byte/s) of a link in one direction after line coding, packet headers not deducted."""
    return speed_gts * width * _ENCODING.get(speed_gts, _ENCODING_128B130B) / 8


def is_gpu(device: PciDevice) -> bool:
    """A display controller or processing accelerator, by class."""
    return (device.class_ or "").startswith(_GPU_CLASSES)


class Path(NamedTuple):
    """The way between two functions.

    `up`: bridges above the first one, nearest first, below `common`; `down`: those above the second one, topmost
    first; `common`: the lowest bridge above both, None where they meet no lower than at a host bridge.
    """

    up: tuple[str, ...]
    common: str | None
    down: tuple[str, ...]

    @property
    def hops(self) -> tuple[str, ...]:
        return (*self.up, self.common, *self.down) if self.common else self.up + self.down


class Relation(NamedTuple):
    """`class_` unknown comes with its `reason`; `flattened`: a two-level Broadcom switch was counted as one."""

    class_: PairClass
    meet: Meet | None
    reason: str = ""
    flattened: bool = False


class Topology:
    """Functions indexed by address; all answers are worked out from `parent`, `root_bus`, kinds and NUMA nodes.

    `numa_nodes`: how many the machine has, None where not known: with a single one, a function that names none is on it.
    """

    def __init__(self, devices: Iterable[PciDevice], *, numa_nodes: int | None = None) -> None:
        self._devices = {device.address: device for device in devices}
        self._single_node = numa_nodes == 1
        self._chains: dict[str, tuple[str, ...]] = {}
        self._switches: dict[str, str | None] = {}
        self._root_buses: dict[str, str | None] = {}
        self._numa_nodes: dict[str, int | None] = {}
        self._gbs: dict[str, float | None] = {}
        self._first_on_bus: dict[str, str] | None = None

    def device(self, address: str) -> PciDevice | None:
        return self._devices.get(address)

    def chain(self, address: str) -> tuple[str, ...]:
        """Bridges above a function, nearest first, root port last. A virtual function hangs where its physical one does."""
        known = self._chains.get(address)
        if known is None:
            known = self._chains[address] = self._climb(address)
        return known

    def _climb(self, address: str) -> tuple[str, ...]:
        chain: list[str] = []
        device = self._devices.get(address)
        if device is not None and device.sriov.physfn in self._devices:
            device = self._devices[device.sriov.physfn or ""]
        while device is not None and device.parent in self._devices and len(chain) < _DEEPEST:
            chain.append(device.parent or "")
            device = self._devices[chain[-1]]
        return tuple(chain)

    def path(self, first: str, second: str) -> Path:
        above, others = self.chain(first), self.chain(second)
        if not above or not others or above[-1] != others[-1]:
            return Path(above, None, others[::-1])
        # Both lists end at their root port, so what they share is a common tail.
        shared = 1
        while shared < min(len(above), len(others)) and above[-1 - shared] == others[-1 - shared]:
            shared += 1
        return Path(above[: len(above) - shared], above[-shared], others[: len(others) - shared][::-1])

    def root_port(self, address: str) -> str | None:
        """The port of the root complex that a function hangs under; None right on a root bus."""
        chain = self.chain(address)
        return chain[-1] if chain else None

    def root_bus(self, address: str) -> str | None:
        """`dddd:bb` of the host bridge's bus."""
        if address not in self._root_buses:
            device = self._devices.get(self.root_port(address) or address)
            self._root_buses[address] = device.root_bus if device else None
        return self._root_buses[address]

    def whole(self, address: str) -> bool:
        """Is every bridge up to the root bus known?"""
        device = self._devices.get(self.root_port(address) or address)
        return device is not None and device.parent is None

    def first_on_bus(self, root_bus: str) -> PciDevice | None:
        """The function with the lowest address on a root bus: the one Linux takes for the host bridge."""
        if self._first_on_bus is None:
            self._first_on_bus = {}
            for address in sorted(self._devices, key=address_key, reverse=True):
                device = self._devices[address]
                if device.parent is None and device.root_bus == address.rpartition(":")[0]:
                    self._first_on_bus[device.root_bus] = address
        found = self._first_on_bus.get(root_bus)
        return self._devices[found] if found else None

    def numa_node(self, address: str) -> int | None:
        """The function's node, else that of the nearest bridge above that has one."""
        if address not in self._numa_nodes:
            known = (
                self._devices[place].numa_node for place in (address, *self.chain(address)) if place in self._devices
            )
            self._numa_nodes[address] = next(
                (node for node in known if node is not None), 0 if self._single_node else None
            )
        return self._numa_nodes[address]

    def relation(self, first: str, second: str, path: Path | None = None) -> Relation:
        """The pair's class as nvidia-smi defines it.

        PIX: at most one switch on the way; PXB: several, but no host bridge; PHB: one host bridge; NODE: several in
        one NUMA node; SYS: more than one NUMA node. `path`: where it is at hand already.
        """
        for address in (first, second):
            if address not in self._devices:
                return Relation("unknown", None, f"{address} is not among the known PCI functions")
        path = path or self.path(first, second)
        if path.common is not None:
            return self._below_a_bridge(path, path.common)
        buses = self.root_bus(first), self.root_bus(second)
        if None not in buses and buses[0] == buses[1]:
            if not (self.whole(first) and self.whole(second)):
                return Relation("unknown", None, "a bridge on the way is missing from the list of PCI functions")
            return Relation("PHB", "host_bridge")
        nodes = self.numa_node(first), self.numa_node(second)
        if None not in nodes and nodes[0] != nodes[1]:
            return Relation("SYS", "socket")
        if None in buses:
            return Relation("unknown", None, "no common switch, and the host bridges above are not known")
        if None in nodes:
            return Relation(
                "unknown", None, "different host bridges, and firmware names no NUMA node (numa_node is -1)"
            )
        return Relation("NODE", "numa")

    def _below_a_bridge(self, path: Path, common: str) -> Relation:
        upper_sides = [bridge for bridge in path.hops if self._switch(bridge)]
        switches = {self._switch(bridge) for bridge in upper_sides}
        on_root_bus = self._devices[common].parent is None
        return Relation(
            "PIX" if len(switches) <= 1 else "PXB",
            "root_port" if on_root_bus and common not in switches else "switch",
            flattened=len(upper_sides) > len(switches),
        )

    def _switch(self, bridge: str) -> str | None:
        """The switch (by its upstream port) that a bridge is the upper side of, else None.

        A Broadcom switch in base mode shows two levels; like NCCL, they are taken for one.
        """
        if bridge not in self._switches:
            self._switches[bridge] = self._find_switch(bridge)
        return self._switches[bridge]

    def _find_switch(self, bridge: str) -> str | None:
        if not self._upper_side(bridge):
            return None
        above = next((other for other in self.chain(bridge) if self._upper_side(other)), None)
        generation = _broadcom(self._devices[bridge], 1)
        if above and generation and _broadcom(self._devices[above], 0) == generation:
            return above
        return bridge

    def _upper_side(self, bridge: str) -> bool:
        kind = self._devices[bridge].kind
        if kind == "unknown":  # below a root port, upstream and downstream ports take turns
            return len(self.chain(bridge)) % 2 == 1
        return kind in ("upstream_port", "pci_bridge", "pcie_to_pci_bridge")

    def links(self, end: str, bridges: Iterable[str]) -> tuple[str, ...]:
        """Functions whose link to the port above lies on the way from an end over bridges. A switch has none inside."""
        return (end, *(bridge for bridge in bridges if self._upper_side(bridge)))

    def slot(self, address: str) -> str:
        """A name for the link above a function: all functions of one device share it, virtual ones with their physical one's."""
        device = self._devices.get(address)
        return ((device and device.sriov.physfn) or address).rpartition(".")[0]

    def gbs(self, address: str) -> float | None:
        """GB/s of the link above a function; None where speed or width is not known.

        A GPU at rest trains its link down to 2.5 GT/s: then the lower maximum of both ends counts, for all else the
        current speed. The width does not change at rest. A virtual function uses its physical one's link.
        """
        if address not in self._gbs:
            self._gbs[address] = self._link_gbs(address)
        return self._gbs[address]

    def _link_gbs(self, address: str) -> float | None:
        device = self._devices.get(address)
        if device is not None and device.sriov.physfn in self._devices:
            device = self._devices[device.sriov.physfn or ""]
        if device is None:
            return None
        link = device.link
        above = self._devices[device.parent].link if device.parent in self._devices else Link()
        speed, width = link.speed_gts, link.width or link.max_width
        at_rest = is_gpu(device) and speed == AT_REST_GTS
        if link.max_speed_gts and (at_rest or not speed):
            speed = min(link.max_speed_gts, above.max_speed_gts or link.max_speed_gts)
        return link_gbs(speed, width) if speed and width else None

    def libcufile_rank(
        self, gpu: str, peer: str, sockets: Mapping[int, int | None], *, release: tuple[int, ...] = (1, 20)
    ) -> int | None:
        """How far libcufile takes a peer to be, less being nearer; None where NUMA nodes' `sockets` or bridges are not known.

        Below one root port the PCIe edges between the two; else 128 in one NUMA node, 256 in one socket, 384 beyond.
        Neither names a node: 128; only one does: 128 from release 1.20 on, 256 before. From 1.19 on all functions
        right on root buses are 2 apart, whatever their host bridges. ACS and the IOMMU do not count. Observed of libcufile 1.17 to
        1.20 without nvidia-fs, whose table it takes instead; not observed: VMD domains, releases before.
        """
        ends = [self._devices.get(gpu), self._devices.get(peer)]
        if not all(end and self.whole(end.address) for end in ends):
            return None
        path = self.path(gpu, peer)
        if path.common is not None or (release >= (1, 19) and not (path.up or path.down)):
            return len(path.up) + len(path.down) + 2
        nodes = {end.numa_node for end in ends if end}
        if len(nodes) == 1:
            return 128
        if None in nodes:
            return 128 if release >= (1, 20) else 256
        homes = {sockets.get(node) for node in nodes if node is not None}
        if None in homes:
            return None
        return 256 if len(homes) == 1 else 384

    def libcufile_order(
        self, gpu: str, peers: Iterable[str], sockets: Mapping[int, int | None], *, release: tuple[int, ...] = (1, 20)
    ) -> tuple[tuple[str, ...], ...]:
        """Peers as libcufile prefers them, best first, equals together; those of unknown rank are left out.

        At equal rank the greater width x generation of the current link wins; a link that is not known counts nothing.
        """
        groups: dict[tuple[int, int], list[str]] = {}
        for peer in peers:
            rank = self.libcufile_rank(gpu, peer, sockets, release=release)
            if rank is not None:
                link = self._devices[peer].link
                lanes = (link.width or 0) * _GENERATION.get(link.speed_gts or 0, 0)
                groups.setdefault((rank, -lanes), []).append(peer)
        return tuple(tuple(group) for _, group in sorted(groups.items()))

    def flattened(self, gpus: Iterable[str], virtualization: str | None) -> str | None:
        """Why a guest's tree tells nothing of the real one; None on real hardware and where GPUs sit below switches."""
        if not virtualization or virtualization == "none":
            return None
        chains = [self.chain(address) for address in gpus if address in self._devices]
        if not chains or any(len(chain) > 1 for chain in chains):
            return None
        return f"the hypervisor ({virtualization}) shows no switch above any GPU, so the real path is hidden"


def _broadcom(device: PciDevice, level: int) -> int:
    """PCIe generation of a Broadcom switch whose two levels are one, else 0; NCCL src/graph/topo.cc, getBcmGen()."""
    ids = (device.vendor_id, device.device_id, device.subsystem_vendor_id)
    subsystem = device.subsystem_device_id or ""
    if ids == ("1000", "c010", "1000") and subsystem.startswith("a0"):
        return 4
    if ids == ("1000", "c030", "1000") and subsystem.startswith(str(level)):
        return 5
    return 0

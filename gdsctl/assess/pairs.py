"""Every GPU with every NVMe drive and NIC: path class, the kernel's peer-to-peer verdict, narrowest link.

The verdict follows Linux drivers/pci/p2pdma.c, calc_map_type_and_dist(): below a common bridge requests take the bus
address and never meet the host bridge or the IOMMU, unless ACS redirects them on the way; all else goes through the
host bridge, where the kernel asks its list.
"""

from __future__ import annotations

import functools
from typing import Literal, NamedTuple

from gdsctl.assess.smi_matrix import pairs_without_tree
from gdsctl.data import host_bridges
from gdsctl.model.judgement import P2p, Pair
from gdsctl.model.node import Node
from gdsctl.model.pci import CONVENTIONAL_CONFIG_BYTES, PciDevice
from gdsctl.model.topology import Path, Relation, Topology

_CITE = "Linux p2pdma.c"
_CPU_VENDOR_OF_BRIDGE = {"8086": "GenuineIntel", "1022": "AuthenticAMD"}
# NVIDIA, GB200/GB300 ConnectX-8 GPUDirect RDMA guide: besides its own function a ConnectX-8 has one for Data Direct in
# the tree of a GPU, through which RDMA may go instead; only the VPD of both, for root, tells which belong together.
_CONNECTX8 = ("15b3", "1023")
_DATA_DIRECT = ("15b3", "2100")


class _Peer(NamedTuple):
    address: str
    kind: Literal["nvme", "nic"]
    rate_gbs: float | None


class _Verdict(NamedTuple):
    p2p: P2p
    reason: str
    redirect_at: tuple[str, ...] | None = ()


class _Facts(NamedTuple):
    """What the pairs follow from. `gpus`: address and whether its memory is coherent with the host's."""

    devices: tuple[PciDevice, ...]
    gpus: tuple[tuple[str, bool], ...]
    peers: tuple[_Peer, ...]
    numa_nodes: int
    cpu_vendor: str | None
    cpu_family: int | None
    kernel_version: tuple[int, int, int] | None
    virtualization: str | None
    acs_bridges: tuple[str, ...] | None
    whole: bool


def pairs(node: Node) -> tuple[Pair, ...]:
    """One record for each GPU with a PCI address and each PCIe NVMe controller or NIC, GPUs in their order.

    Where no PCI function is known at all, nvidia-smi's matrix has to do.
    """
    if not node.pci.devices:
        return pairs_without_tree(node)
    platform = node.platform
    return _judged(
        _Facts(
            devices=node.pci.devices,
            gpus=tuple((gpu.address, bool(gpu.c2c)) for gpu in node.gpus if gpu.address),
            peers=_peers(node),
            numa_nodes=len(node.numa.nodes),
            cpu_vendor=platform.cpu_vendor,
            cpu_family=platform.cpu_family,
            kernel_version=platform.kernel_version,
            virtualization=platform.virtualization,
            acs_bridges=node.nvidia_fs.acs_bridges,
            whole=node.pci.whole,
        )
    )


@functools.lru_cache(maxsize=2)  # the nodes of a fleet have few shapes
def _judged(facts: _Facts) -> tuple[Pair, ...]:
    judge = _Judge(facts)
    return tuple(judge.pair(gpu, peer) for gpu, _ in facts.gpus for peer in facts.peers)


def _peers(node: Node) -> tuple[_Peer, ...]:
    """NVMe first. A NIC function with several ports is one peer, as fast as its fastest port."""
    found: dict[str, _Peer] = {}
    for drive in node.nvme:
        if drive.address and drive.transport in ("pcie", None):
            found.setdefault(drive.address, _Peer(drive.address, "nvme", None))
    for nic in node.nics:
        if nic.address:
            known = found.get(nic.address)
            rates = [rate for rate in (known.rate_gbs if known else None, _gbs(nic.rate_gbps)) if rate]
            found[nic.address] = _Peer(nic.address, "nic", max(rates, default=None))
    return tuple(found.values())


def _gbs(rate_gbps: float | None) -> float | None:
    return rate_gbps / 8 if rate_gbps else None


class _Judge:
    def __init__(self, facts: _Facts) -> None:
        self._facts = facts
        self._topology = Topology(facts.devices, numa_nodes=facts.numa_nodes or None)
        self._flattened = self._topology.flattened([gpu for gpu, _ in facts.gpus], facts.virtualization)
        self._coherent = {gpu for gpu, coherent in facts.gpus if coherent}
        self._data_direct = [d.address for d in facts.devices if (d.vendor_id, d.device_id) == _DATA_DIRECT]
        self._narrow: dict[tuple[str, int], tuple[float, str] | None] = {}
        self._through: dict[tuple[str | None, str | None], _Verdict] = {}

    def pair(self, gpu: str, peer: _Peer) -> Pair:
        if peer.kind == "nic" and self._data_direct and self._is_connectx8(peer.address):
            return self._either_function(gpu, peer)
        path = self._topology.path(gpu, peer.address)
        relation = self._topology.relation(gpu, peer.address, path)
        verdict = self._verdict(gpu, peer.address, path, relation)
        if self._flattened and not (relation.class_ == "unknown" and relation.reason):
            relation = Relation("unknown", None, self._flattened)
        reason = verdict.reason
        if relation.reason and relation.reason != reason:
            reason = f"{reason}; {relation.reason}"
        if relation.flattened:
            reason += "; a Broadcom switch that shows two levels is counted as one"
        hops = path.hops
        if gpu in self._coherent:
            reason += "; memory of a GPU on NVLink-C2C is ordinary memory to Linux, which is not asked this"
        if verdict.redirect_at:  # up to the host bridge and down again
            path = Path(self._topology.chain(gpu), None, self._topology.chain(peer.address)[::-1])
        bottleneck, at = self._bottleneck(gpu, peer, path)
        return Pair(
            gpu=gpu,
            peer=peer.address,
            peer_kind=peer.kind,
            class_=relation.class_,
            hops=hops,
            meet=relation.meet,
            acs_redirect_at=verdict.redirect_at,
            p2p=verdict.p2p,
            p2p_reason=reason,
            bottleneck_gbs=bottleneck,
            bottleneck_at=at,
        )

    def _is_connectx8(self, address: str) -> bool:
        device = self._topology.device(address)
        if device is not None and device.sriov.physfn:
            device = self._topology.device(device.sriov.physfn)
        return device is not None and (device.vendor_id, device.device_id) == _CONNECTX8

    def _either_function(self, gpu: str, peer: _Peer) -> Pair:
        """A NIC that may reach GPUs through another function than its own, nobody can tell which."""
        others = ", ".join(self._data_direct[:4])
        reason = f"RDMA of this ConnectX-8 may go through a Data Direct function ({others}), and which is its own is not known"
        return Pair(gpu=gpu, peer=peer.address, peer_kind=peer.kind, p2p_reason=reason)

    # --- the kernel's rule --------------------------------------------------------------------------------------

    def _verdict(self, gpu: str, peer: str, path: Path, relation: Relation) -> _Verdict:
        if self._topology.device(gpu) is None or self._topology.device(peer) is None:
            return _Verdict("unknown", relation.reason, None)
        if path.common is None:
            buses = {self._topology.root_bus(end) for end in (gpu, peer)}
            if len(buses) == 1 and relation.class_ == "unknown":  # they may share a bridge that nobody listed
                return _Verdict("unknown", relation.reason, None)
            return self._across(gpu, peer)
        # The kernel walks from the provider, itself included, to the common bridge, included; then from the client up.
        walked = (gpu, *path.up, path.common, *path.down, peer)
        redirecting = tuple(port for port in walked if self._redirects(port))
        if redirecting:
            through = self._across(gpu, peer)
            why = f"ACS redirects peer requests at {', '.join(redirecting)}, so they go up to the host bridge"
            return _Verdict(through.p2p, f"{why}: {through.reason}", redirecting)
        unread = [port for port in walked if self._redirects(port) is None]
        if unread:
            return _Verdict("unknown", self._doubt(gpu, peer, path, unread), None)
        where = f"{'root' if relation.meet == 'root_port' else 'switch'} port {path.common}"
        short = ", ".join(
            end
            for end in (gpu, peer)
            if (d := self._topology.device(end)) and d.config_bytes == CONVENTIONAL_CONFIG_BYTES
        )
        remark = f"; {short}: 256 bytes of configuration space, in which Linux looks for no ACS" if short else ""
        return _Verdict("bus_address", f"both hang below {where} and no port between redirects ({_CITE}){remark}")

    def _redirects(self, address: str) -> bool | None:
        device = self._topology.device(address)
        if device is None:
            return None
        return False if device.acs.state == "absent" else device.acs.redirects

    def _doubt(self, gpu: str, peer: str, path: Path, unread: list[str]) -> str:
        """Which ports could not be read, and what other sources hint at."""
        unread = [port for port in path.hops if port in unread] or unread
        shown = ", ".join(unread[:4]) + (f" and {len(unread) - 4} more" if len(unread) > 4 else "")
        words = [f"ACS of {shown} is unreadable, so whether requests stay below {path.common} is not known"]
        listed = self._facts.acs_bridges
        if listed is not None:
            on_way = [port for port in path.hops if port in listed]
            words.append(
                f"nvidia-fs found some ACS bit on at {', '.join(on_way)}"
                if on_way
                else "nvidia-fs found no ACS bit on at any bridge between"
            )
        groups = [device.iommu_group if (device := self._topology.device(end)) else None for end in (gpu, peer)]
        if None not in groups:
            if groups[0] == groups[1]:
                words.append(f"both are in IOMMU group {groups[0]}: some port lacks full isolation, usually direct")
            else:
                words.append("separate IOMMU groups hint at ACS, no more: ports without ACS get groups too")
        return "; ".join(words) + f" ({_CITE})"

    def _across(self, gpu: str, peer: str) -> _Verdict:
        buses = self._topology.root_bus(gpu), self._topology.root_bus(peer)
        known = self._through.get(buses)
        if known is None:
            known = self._through[buses] = self._ask_the_list(*buses)
        return known

    def _ask_the_list(self, first: str | None, second: str | None) -> _Verdict:
        vendor, family = self._facts.cpu_vendor, self._facts.cpu_family
        if vendor is not None and family is not None:
            cpu = host_bridges.trusted_cpu(vendor, family)
            if cpu is not None:
                age = _age(cpu.since, self._facts.kernel_version)
                return _Verdict(
                    "through_host_bridge", f"{cpu.name}: any host bridge will do{age} ({_CITE}, cpu_supports_p2pdma)"
                )
        if first is None or second is None:
            return _Verdict("unknown", "the host bridges above are not known")
        answers = [self._listed(bus, same=first == second) for bus in dict.fromkeys((first, second))]
        worst = next((a for a in answers if a.p2p == "blocked"), None) or next(
            (a for a in answers if a.p2p == "unknown"), answers[0]
        )
        if worst.p2p == "blocked" and self._may_be_trusted_cpu(first, second):
            return _Verdict("unknown", f"{worst.reason}; CPU vendor and family, which would decide, are not known")
        return worst

    def _listed(self, bus: str, *, same: bool) -> _Verdict:
        """The kernel's list for one root bus; pci_host_bridge_dev() and __host_bridge_whitelist()."""
        first = self._topology.first_on_bus(bus)
        if first is None:
            return _Verdict("unknown", f"no function of root bus {bus} is known")
        if not first.address.endswith(":00.0") and not self._facts.whole:
            return _Verdict(
                "unknown",
                f"the kernel goes by the first function of root bus {bus}, and the list of functions, which starts at "
                f"{first.address}, may lack it",
            )
        if not first.address.endswith(":00.0") and first.kind != "root_port":
            return _Verdict(
                "blocked",
                f"root bus {bus} starts at {first.address}, which is no host bridge that the kernel could look up ({_CITE})",
            )
        if first.vendor_id is None or first.device_id is None:
            return _Verdict("unknown", f"the ids of host bridge {first.address} are not known")
        ids = f"{first.vendor_id}:{first.device_id}"
        row = host_bridges.host_bridge(first.vendor_id, first.device_id)
        if row is None:
            return _Verdict(
                "blocked",
                f"host bridge {first.address} ({ids}) is not on the kernel's list as of 6.17 ({_CITE}, pci_p2pdma_whitelist)",
            )
        if row.same_bridge_only and not same:
            return _Verdict(
                "blocked",
                f"host bridge {first.address} ({ids}, {row.name}) is trusted below itself only, and two are crossed ({_CITE})",
            )
        if row.since is None:
            return _Verdict(
                "unknown",
                f"host bridge {first.address} ({ids}, {row.name}) is listed by kernels newer than 6.17 only; which release is not known",
            )
        age = _age(row.since, self._facts.kernel_version)
        return _Verdict(
            "through_host_bridge",
            f"host bridge {first.address} ({ids}, {row.name}) is on the kernel's list{age} ({_CITE}, pci_p2pdma_whitelist)",
        )

    def _may_be_trusted_cpu(self, *buses: str) -> bool:
        """Could the processor, for all that is known, be one that is trusted whatever its host bridge?"""
        facts = self._facts
        vendor = facts.cpu_vendor
        if vendor is None and facts.virtualization in (None, "none"):  # an emulated bridge says nothing of the CPU
            firsts = [self._topology.first_on_bus(bus) for bus in buses]
            vendors = {_CPU_VENDOR_OF_BRIDGE.get(first.vendor_id or "") for first in firsts if first}
            vendor = next((name for name in vendors if name), None)
        trusting = host_bridges.trusting_vendors()
        return (vendor is None or vendor in trusting) and (facts.cpu_vendor is None or facts.cpu_family is None)

    # --- width --------------------------------------------------------------------------------------------------

    def _bottleneck(self, gpu: str, peer: _Peer, path: Path) -> tuple[float | None, str | None]:
        """The narrowest link on the way in GB/s and the function below it; None where a link is not known."""
        own, other = self._narrowest(gpu, path.up), self._narrowest(peer.address, path.down[::-1])
        if own is None or other is None:
            return None, None
        gbs, at = min(other, own, key=_first)
        if peer.rate_gbs is not None and peer.rate_gbs < gbs:
            gbs, at = peer.rate_gbs, peer.address
        return round(gbs, 2), at

    def _narrowest(self, end: str, bridges: tuple[str, ...]) -> tuple[float, str] | None:
        key = (end, len(bridges))  # the bridges are the nearest ones of the end's own chain
        if key not in self._narrow:
            found = [(self._topology.gbs(address), address) for address in self._topology.links(end, bridges)]
            known = [(gbs, address) for gbs, address in found if gbs is not None]
            self._narrow[key] = min(known, key=_first) if len(known) == len(found) else None
        return self._narrow[key]


def _first(narrow: tuple[float, str]) -> float:
    return narrow[0]


def _age(since: tuple[int, int], kernel: tuple[int, int, int] | None) -> str:
    """A remark where the running kernel is older than the entry."""
    if kernel is None or kernel[:2] >= since:
        return ""
    return f" since {since[0]}.{since[1]}, and this {kernel[0]}.{kernel[1]} has it only if it was backported"

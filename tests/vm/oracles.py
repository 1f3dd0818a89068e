"""What other tools said of a booted machine, compared with what gdsctl collects from its snapshot.

A capture is a folder: `root.tar.gz` or `root/`, a gdsctl snapshot, and `oracle/`, the tools' own output.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

import msgspec

from gdsctl.assess.pairs import pairs
from gdsctl.collect.node import collect
from gdsctl.model.devices import Gpu
from gdsctl.model.judgement import Pair
from gdsctl.model.node import Node
from gdsctl.source.opening import open_source

NAMED = {"Root Port": "root_port", "Upstream Port": "upstream_port", "Downstream Port": "downstream_port"}


def node_of(capture: Path, who: str = "root") -> Node:
    folder = capture / who
    return collect(open_source(str(folder if folder.is_dir() else capture / f"{who}.tar.gz")))


def said(capture: Path, name: str) -> str:
    return (capture / "oracle" / name).read_text()


class Told(NamedTuple):
    """One function in lspci's words; `acs`: None without the capability."""

    class_: str
    ids: tuple[str, str]
    numa_node: int | None
    iommu_group: str | None
    driver: str | None
    link: tuple[float, int] | None
    acs: tuple[str, ...] | None
    capable: tuple[str, ...]
    kind: str | None


def lspci(text: str) -> dict[str, Told]:
    """`lspci -D -vvv -nn`, cut up by expressions of its own."""
    found = {}
    for block in re.split(r"\n(?=[0-9a-f]{4,}:)", text.strip()):
        head = re.match(r"(\S+) .*?\[([0-9a-f]{4})\]: .*\[([0-9a-f]{4}):([0-9a-f]{4})\]", block)
        assert head, block[:80]
        numa, group, driver = (
            re.search(f"{label}: (\\S+)", block) for label in ("NUMA node", "IOMMU group", "Kernel driver in use")
        )
        link = re.search(r"LnkSta:\s+Speed ([\d.]+)GT/s.*?Width x(\d+)", block)
        control, capability = (re.search(rf"{name}:\s+(.*)", block) for name in ("ACSCtl", "ACSCap"))
        kind = re.search(r"Express \(v\d\) (Root Port|Upstream Port|Downstream Port)", block)
        found[head[1]] = Told(
            class_=head[2],
            ids=(head[3], head[4]),
            numa_node=int(numa[1]) if numa else None,
            iommu_group=group[1] if group else None,
            driver=driver[1] if driver else None,
            link=(float(link[1]), int(link[2])) if link else None,
            acs=tuple(re.findall(r"(\w+)\+", control[1])) if control else None,
            capable=tuple(re.findall(r"(\w+)\+", capability[1])) if capability else (),
            kind=NAMED[kind[1]] if kind else None,
        )
    return found


def lspci_agrees(node: Node, text: str) -> None:
    told = lspci(text)
    assert [d.address for d in node.pci.devices] == list(told)
    for device in node.pci.devices:
        want = told[device.address]
        assert (device.class_ or "")[:4] == want.class_
        assert (device.vendor_id, device.device_id) == want.ids
        assert device.numa_node == want.numa_node, device.address
        assert device.iommu_group == want.iommu_group, device.address
        assert device.driver == want.driver, device.address
        assert device.acs.enabled == (want.acs or ()), device.address
        assert device.acs.capabilities == want.capable, device.address
        if want.acs is not None:
            assert device.acs.state == ("enabled" if want.acs else "disabled")
            assert device.acs.redirects == (not {"ReqRedir", "CmpltRedir", "EgressCtrl"}.isdisjoint(want.acs))
        else:
            assert device.acs.state in ("absent", "unreadable")
        if want.link:
            assert (device.link.speed_gts, device.link.width) == want.link, device.address
        if want.kind:
            assert device.kind == want.kind


def lstopo_agrees(node: Node, document: str) -> None:
    """Who is above whom. lstopo leaves out bridges without endpoints; none of our machines has one."""
    parents: dict[str, str | None] = {}

    def walk(element: ET.Element, above: str | None) -> None:
        address = element.get("pci_busid")
        if address:
            parents[address] = above
        for child in element:
            walk(child, address or above)

    walk(ET.fromstring(document), None)  # noqa: S314  # lstopo's own output
    ours = {device.address: device.parent for device in node.pci.devices}
    assert len(parents) > 5
    assert parents == {address: ours[address] for address in parents}
    assert {a for a in ours if ours[a] or a not in parents} - set(parents) <= {
        d.address for d in node.pci.devices if d.parent is None
    }


def numactl_agrees(node: Node, text: str) -> None:
    distances = re.findall(r"^ +(\d+): +([\d ]+)$", text, re.MULTILINE)
    assert {n.id: n.distances for n in node.numa.nodes} == {
        int(number): tuple(map(int, row.split())) for number, row in distances
    }
    sizes = {int(n): int(mib) for n, mib in re.findall(r"^node (\d+) size: (\d+) MB$", text, re.MULTILINE)}
    assert {n.id: (n.memory_bytes or 0) >> 20 for n in node.numa.nodes} == sizes


def mounts_agree(node: Node, document: str) -> None:
    ours = {mount.target: mount for mount in node.mounts}
    told = {entry["target"]: entry for entry in _flat(json.loads(document)["filesystems"])}
    assert set(told) == set(ours)
    for target, entry in told.items():
        mount = ours[target]
        assert (mount.fstype, mount.major_minor) == (entry["fstype"], entry["maj:min"])
        assert mount.source == re.sub(r"\[/.*\]$", "", entry["source"])
        assert set(mount.options) >= set(entry["options"].split(",")) - {"rw"}, target


def _flat(entries: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for entry in entries:
        yield entry
        yield from _flat(entry.get("children", []))


def subsystems_agree(node: Node, document: str) -> None:
    """Name, transport, subsystem and address of every NVMe controller."""
    told: dict[str, tuple[str, str, str]] = {}
    for host in json.loads(document):
        for subsystem in host["Subsystems"]:
            for path in subsystem["Paths"]:
                told[path["Name"]] = (path["Transport"], subsystem["Name"], path["Address"])
    assert told
    assert {drive.name for drive in node.nvme} == set(told)
    for drive in node.nvme:
        transport, subsystem, address = told[drive.name]
        assert (drive.transport, drive.subsystem) == (transport, subsystem)
        if transport == "pcie":
            assert (drive.address, drive.traddr) in {(address, address), (address, None)}
        else:
            where = dict(part.split("=", 1) for part in re.split(r"[ ,]+", address))
            assert drive.address is None
            assert drive.traddr == where["traddr"]


def nvidia_fs_agrees(node: Node, bridges: str, distances: str | None = None) -> None:
    """`bridges` lists ports with an ACS bit on. `peer_distance` was worked out when nvidia-fs was loaded."""
    listed = set(bridges.split())
    assert {d.address for d in node.pci.devices if d.acs.enabled and d.secondary_bus is not None} == listed
    if distances is None:
        return
    found = {(pair.gpu, pair.peer): pair for pair in pairs(node)}
    rows = [line.split() for line in distances.splitlines()[1:] if line.strip()]
    assert {(row[0], row[1]) for row in rows} <= set(found)
    assert len(rows) > 3
    for gpu, peer, _, distance, *_, numa, _, class_ in rows:
        pair = found[gpu, peer]
        rank = int(distance, 16)
        # nvfs-pci.c: 0x80 is added where no bridge is common, 0x100 where the NUMA nodes differ.
        wanted = {"SYS"} if rank >= 0x100 else {"PHB", "NODE"} if rank >= 0x80 else {"PIX", "PXB"}
        assert pair.class_ in wanted, (gpu, peer, distance)
        device = next(d for d in node.pci.devices if d.address == peer)
        assert device.numa_node == (None if int(numa, 16) == 0xFFFFFFFF else int(numa, 16))
        assert pair.peer_kind == {"network": "nic", "nvme": "nvme"}[class_]


def kernel_agrees(found: dict[tuple[str, str], Pair], answers: list[dict[str, Any]]) -> dict[str, int]:
    """What nvmet asked of the kernel for each provider and client; returns how often each verdict was confirmed."""
    counted: dict[str, int] = {}
    for answer in answers:
        pair = found[answer["provider"], answer["client"]]
        told = "\n".join(answer["said"])
        assert pair.p2p in ("bus_address", "through_host_bridge", "blocked")
        assert answer["allowed"] == (pair.p2p != "blocked"), (pair, told)
        advised = re.search(r"pci=disable_acs_redir=(\S+)", told)
        # The kernel is silent on redirection where the host bridge lets the bytes pass all the same.
        if advised:
            assert set(pair.acs_redirect_at or ()) == set(advised[1].split(";"))
        elif not answer["allowed"]:
            assert pair.acs_redirect_at == ()
        unlisted = re.search(r"Host bridge not in P2PDMA whitelist: (\S+)", told)
        if unlisted:
            assert f"({unlisted[1]})" in pair.p2p_reason
        counted[pair.p2p] = counted.get(pair.p2p, 0) + 1
    return counted


def tools_agree(node: Node, capture: Path) -> None:
    """All that every capture has."""
    lspci_agrees(node, said(capture, "lspci.txt"))
    lstopo_agrees(node, said(capture, "lstopo.xml"))
    numactl_agrees(node, said(capture, "numactl.txt"))
    mounts_agree(node, said(capture, "findmnt.json"))
    subsystems_agree(node, said(capture, "nvme-list-subsys.json"))


def by_buffers(node: Node) -> dict[tuple[str, str], Pair]:
    """Pairs with the drives that have a buffer for peers in the place of GPUs."""
    providers = [drive.address for drive in node.nvme if drive.cmb_bytes]
    gpus = tuple(Gpu(index=number, address=address) for number, address in enumerate(providers))
    return {(pair.gpu, pair.peer): pair for pair in pairs(msgspec.structs.replace(node, gpus=gpus))}


def rdma_agrees(node: Node, capture: Path) -> None:
    """guest/rdma.sh: one soft RDMA device, one NVMe-oF drive and one NFS mount over it, served by the guest itself."""
    links = json.loads(said(capture, "rdma-link.json"))
    (link,) = links
    nic = next(nic for nic in node.nics if nic.rdma_device == link["ifname"])
    assert link["netdev"] in nic.netdevs
    assert nic.state == link["state"]
    addresses = {
        entry["ifname"]: [a["local"] for a in entry["addr_info"] if a["family"] == "inet"]
        for entry in json.loads(said(capture, "ip-addr.json"))
    }
    assert list(nic.ipv4) == addresses[link["netdev"]]
    (fabric,) = [drive for drive in node.nvme if drive.transport == "rdma"]
    assert fabric.traddr == "10.9.0.1"
    assert re.search(
        rf'"Name":"{fabric.subsystem}",\s*"NQN":"nqn.2024-01.lab.gds:disk1"',
        said(capture, "nvme-list-subsys.json"),
    )
    (mount,) = [mount for mount in node.mounts if mount.target == "/mnt/nfsrdma"]
    stats = said(capture, "mountstats")
    about = stats[stats.index(f"device {mount.source} mounted on /mnt/nfsrdma") :]
    assert re.search(r"^\s*xprt:\s+rdma ", about, re.MULTILINE)
    assert mount.backing.kind == "nfs"
    assert mount.backing.transport == "rdma"
    assert mount.backing.server == "10.9.0.1"

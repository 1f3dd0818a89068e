"""Mounts of captured machines against findmnt, and of machines written down here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gdsctl.collect import block, lnet, mounts, nics, nvme
from gdsctl.collect.reader import Reader
from gdsctl.model.devices import Block, Mount, Nic, Nvme
from gdsctl.parse.fstab import parse as parse_fstab
from gdsctl.source.base import Output
from gdsctl.source.opening import open_source
from gdsctl.source.record import Recorder

Machine = Callable[..., Reader]
PCIE = Nvme(name="nvme0", address="0000:01:00.0", transport="pcie", namespaces=("nvme0n1",))
FABRIC = Nvme(name="nvme4", transport="rdma", traddr="192.0.2.9", namespaces=("nvme4n1",))
TCP = Nvme(name="nvme5", transport="tcp", traddr="192.0.2.9", host_iface="ens2", namespaces=("nvme5n1",))
BLOCKS = (
    Block(name="nvme0n1", members=("nvme0",), major_minor="259:0"),
    Block(name="nvme0n1p2", kind="part", slaves=("nvme0n1",), members=("nvme0",), major_minor="259:2"),
    Block(name="nvme4n1", members=("nvme4",), major_minor="259:4"),
    Block(name="nvme5n1", members=("nvme5",), major_minor="259:5"),
    Block(name="dm-0", kind="dm", level="lvm", slaves=("nvme0n1p2",), members=("nvme0",), major_minor="253:0"),
    Block(name="dm-1", kind="dm", level="crypt", slaves=("nvme0n1",), members=("nvme0",), major_minor="253:1"),
    Block(name="md0", kind="md", level="raid0", slaves=("nvme0n1",), members=("nvme0",), major_minor="9:0"),
    Block(name="md0p1", kind="part", slaves=("md0",), members=("nvme0",), major_minor="259:9"),
    Block(name="loop3", kind="loop", members=("loop3",), major_minor="7:3"),
    Block(name="sda1", kind="part", slaves=("sda",), members=("sda",), major_minor="8:1"),
)
NICS = (
    Nic(address="0000:18:00.0", netdevs=("ens1",), rdma_device="mlx5_0", ipv4=("192.0.2.1",)),
    Nic(address="0000:19:00.0", netdevs=("ens2",), rdma_device="mlx5_1", ipv4=("192.0.2.2",)),
    Nic(address="0000:1a:00.0", netdevs=("eno1",), ipv4=("198.51.100.5",)),
)
ADDRESSES = json.dumps(
    [
        {"ifname": "lo", "addr_info": [{"family": "inet", "local": "127.0.0.1", "prefixlen": 8}]},
        {"ifname": "ens1", "addr_info": [{"family": "inet", "local": "192.0.2.1", "prefixlen": 24}]},
        {"ifname": "ens2", "addr_info": [{"family": "inet", "local": "192.0.2.2", "prefixlen": 24}]},
        {"ifname": "eno1", "addr_info": [{"family": "inet", "local": "198.51.100.5", "prefixlen": 24}]},
    ]
)
ROUTE = (
    "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
    "eno1\t00000000\t016433C6\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
    "ens1\t000200C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n"
    "ens2\t000200C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n"
)


@pytest.fixture
def mounted(machine: Machine) -> Callable[..., tuple[tuple[Mount, ...], Reader]]:
    """`mounted("NUMBER SOURCE TARGET FSTYPE OPTIONS", ...)` -> mounts of a machine with the disks and NICs above."""

    def build(*lines: str, files: dict[str, Any] | None = None) -> tuple[tuple[Mount, ...], Reader]:
        text = ""
        for number, line in enumerate(lines, 30):
            device, source, target, fstype, options = line.split(" ")
            text += f"{number} 1 {device} / {target} rw,relatime - {fstype} {source} {options}\n"
        table = {"/proc/self/mountinfo": text, "/proc/net/route": ROUTE} | (files or {})
        reader = machine(table, outputs={"ip-addr": ADDRESSES})
        return mounts.collect(reader, BLOCKS, (PCIE, FABRIC, TCP), NICS), reader

    return build


def collected(path: Path, ip_addr: Path | None = None) -> tuple[tuple[Mount, ...], Reader]:
    source = open_source(str(path))
    if ip_addr is not None:
        output = Output(stdout=ip_addr.read_text())
        run = source.run
        setattr(source, "run", lambda name: output if name == "ip-addr" else run(name))  # noqa: B010 - mypy refuses the plain form
    reader = Reader(source)
    controllers = nvme.collect(reader, ())
    return mounts.collect(reader, block.collect(reader, controllers), controllers, nics.collect(reader, ())), reader


def listed(path: Path) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    todo = json.loads(path.read_text())["filesystems"]
    while todo:
        row = todo.pop()
        rows[row["target"]] = row
        todo += row.get("children", [])
    return rows


@pytest.mark.shared
@pytest.mark.parametrize("name", ["rdma-on", "rdma-612", "switches-on", "switches-pt", "p2pmem"])
def test_table_as_findmnt_lists_it(shared: Path, name: str) -> None:
    folder = shared / "field/vm" / name
    found = {mount.target: mount for mount in collected(folder / "root.tar.gz")[0]}
    rows = listed(folder / "oracle/findmnt.json")
    assert set(found) == set(rows)
    for target, row in rows.items():
        ours = found[target]
        assert (ours.source, ours.fstype) == (row["source"], row["fstype"])
        assert set(ours.options) == set(row["options"].split(","))


@pytest.mark.shared
def test_local_disks_and_md(shared: Path) -> None:
    found = {m.target: m for m in collected(shared / "field/vm/switches-on/root.tar.gz")[0]}
    for target, device, kind, controllers in (
        ("/mnt/ext4", "nvme3n1", "nvme", ("nvme3",)),
        ("/mnt/xfs", "nvme4n1", "nvme", ("nvme4",)),
        ("/mnt/raid0", "md0", "md", ("nvme0", "nvme5")),
    ):
        mount = found[target]
        assert (mount.device, mount.backing.kind, mount.backing.nvme) == (device, kind, controllers)
        assert (mount.backing.transport, mount.can_hold_data) == ("pcie", True)
    assert (found["/"].device, found["/"].backing.kind) == ("vda", "other")
    kernels = {target for target, mount in found.items() if not mount.can_hold_data}
    assert kernels == {"/proc", "/sys", "/dev", "/dev/pts", "/sys/kernel/debug", "/sys/kernel/tracing"}


@pytest.mark.shared
def test_nfs_over_soft_rdma(shared: Path) -> None:
    """The server is the machine itself: `ip addr` has 10.9.0.1 on enp37s0, and rxe0 is on that."""
    folder = shared / "field/vm/rdma-on"
    found, _ = collected(folder / "root.tar.gz", folder / "oracle/ip-addr.json")
    (nfs,) = (mount for mount in found if mount.fstype == "nfs")
    assert (nfs.backing.kind, nfs.backing.transport, nfs.backing.server) == ("nfs", "rdma", "10.9.0.1")
    assert nfs.backing.nics == ("rxe0",)


@pytest.mark.shared
def test_without_addresses_the_nics_are_a_gap(shared: Path) -> None:
    found, reader = collected(shared / "field/vm/rdma-on/root.tar.gz")
    (nfs,) = (mount for mount in found if mount.fstype == "nfs")
    assert nfs.backing.nics == ()
    (gap,) = (gap for gap in reader.gaps if gap.section == "mounts")
    assert (gap.key, gap.field, gap.settle_with) == ("/mnt/nfsrdma", "backing/nics", "ip route get 10.9.0.1")


@pytest.mark.shared
def test_root_device_of_another_number_than_its_name_says(shared: Path) -> None:
    found = {m.target: m for m in collected(shared / "field/trees/lsblk-simple-lvm.tar.xz")[0]}
    assert (found["/"].device, found["/home/test"].device) == ("sda4", "nvme0n1p3")
    assert found["/sys/fs/cgroup"].can_hold_data is False


@pytest.mark.parametrize(
    ("line", "device", "kind"),
    [
        ("259:2 /dev/root / ext4 rw", "nvme0n1p2", "nvme"),
        ("259:4 /dev/nvme4n1 /a xfs rw", "nvme4n1", "nvme-of"),
        ("253:0 /dev/mapper/vg-lv /a xfs rw", "dm-0", "dm"),
        ("259:9 /dev/md0p1 /a xfs rw", "md0p1", "md"),
        ("7:3 /dev/loop3 /snap/x squashfs ro", "loop3", "other"),
        ("8:1 /dev/sda1 /a ext4 rw", "sda1", "other"),
        ("0:45 /dev/nvme0n1p2 /a btrfs rw", "nvme0n1p2", "nvme"),
        ("0:46 tank/data /a zfs rw", None, "other"),
        ("0:47 overlay / overlay rw", None, "overlay"),
        ("0:48 tmpfs /dev/shm tmpfs rw", None, "tmpfs"),
        ("0:49 fs1 /gpfs gpfs rw", None, "gpfs"),
        ("0:50 beegfs_nodev /b beegfs rw", None, "beegfs"),
        ("0:51 share /v virtiofs rw", None, "virtiofs"),
        ("0:52 //srv/x /c cifs rw", None, "network"),
    ],
)
def test_backing(mounted: Any, line: str, device: str | None, kind: str) -> None:
    ((mount,), _) = mounted(line)
    assert (mount.device, mount.backing.kind, mount.can_hold_data) == (device, kind, True)


def test_numberless_table_needs_names(machine: Machine, link: Any) -> None:
    files = {
        "/proc/mounts": "/dev/mapper/vg--a-lv /a xfs rw 0 0\n/dev/vg-a/lv /b xfs rw 0 0\n/dev/root /c ext4 rw 0 0\n"
        "/dev/disk/by-label/x /d ext4 rw 0 0\n",
        "/sys/class/block/dm-0/dm/name": "vg--a-lv\n",
        "/dev/disk/by-label/x": link("../../sda1"),
        "/dev/sda1": "",
    }
    reader = machine(files)
    found = mounts.collect(reader, BLOCKS, (PCIE,), ())
    assert [mount.device for mount in found] == ["dm-0", "dm-0", None, "sda1"]
    assert [(gap.key, gap.field) for gap in reader.gaps] == [("/c", "device")]


def test_last_of_two_on_one_target_counts(mounted: Any) -> None:
    found, _ = mounted("0:2 rootfs / rootfs rw", "259:2 /dev/nvme0n1p2 / ext4 rw", "0:30 none /run/x ramfs rw")
    assert [mount.can_hold_data for mount in found] == [False, True, True]


def test_octal_escapes(mounted: Any) -> None:
    ((mount,), _) = mounted(r"8:1 /dev/sda1 /my\040data\011\134x ext4 rw")
    assert mount.target == "/my data\t\\x"


@pytest.mark.parametrize(
    ("options", "nics_found", "transport"),
    [
        ("vers=3,proto=rdma,port=20049,addr=192.0.2.9", ("mlx5_0", "mlx5_1"), "rdma"),
        ("vers=3,proto=rdma,localports=192.0.2.2,addr=192.0.2.9", ("mlx5_1",), "rdma"),
        ("vers=3,proto=rdma,localports=ens1~ens2,remoteports=192.0.2.8-192.0.2.9", ("mlx5_0", "mlx5_1"), "rdma"),
        ("vers=4.2,proto=tcp,clientaddr=192.0.2.1,addr=192.0.2.9", ("mlx5_0",), "tcp"),
        ("vers=4.2,proto=tcp,clientaddr=0.0.0.0,addr=203.0.113.4", ("eno1",), "tcp"),
        ("vers=3,proto=tcp6,addr=127.0.0.1", (), "tcp"),
    ],
)
def test_nfs_nics(mounted: Any, options: str, nics_found: tuple[str, ...], transport: str) -> None:
    ((mount,), reader) = mounted(f"0:60 vip.example:/kv /kv nfs {options}")
    assert (mount.backing.server, mount.backing.nics, mount.backing.transport) == ("vip.example", nics_found, transport)
    assert reader.gaps == []


def test_nfs_transport_of_the_statistics(mounted: Any) -> None:
    stats = "device s:/x mounted on /kv with fstype nfs statvers=1.1\n\topts:\trw\n\txprt:\trdma 0 0 1\n"
    ((mount,), _) = mounted("0:60 s:/x /kv nfs rw,addr=192.0.2.9", files={"/proc/self/mountstats": stats})
    assert mount.backing.transport == "rdma"
    ((mount,), reader) = mounted("0:60 s:/x /kv nfs rw,addr=192.0.2.9")
    assert mount.backing.transport is None
    assert ("/kv", "backing/transport") in [(gap.key, gap.field) for gap in reader.gaps]


def test_lustre_and_weka_servers(mounted: Any) -> None:
    found, _ = mounted(
        "0:70 192.0.2.8@o2ib:192.0.2.9@o2ib1:/fs /l lustre rw",
        "0:71 192.0.2.9@tcp:/fs /t lustre rw",
        "0:72 192.0.2.9/data /w wekafs rw",
    )
    assert [(m.backing.kind, m.backing.transport, m.backing.server) for m in found] == [
        ("lustre", "rdma", "192.0.2.8@o2ib:192.0.2.9@o2ib1"),
        ("lustre", "tcp", "192.0.2.9@tcp"),
        ("wekafs", None, "192.0.2.9"),
    ]
    assert all(m.backing.nics == ("mlx5_0", "mlx5_1") for m in found)


NIS = """\
nid                      status alive refs peer  rtr   max    tx   min
0@lo                         up     0    2    0    0     0     0     0
192.0.2.1@o2ib               up    -1    1    8    0    63    63    40
192.0.2.2@o2ib1              up    -1    1    8    0    63    63    40
"""
PEERS = "peer:\n    - primary nid: 192.0.2.9@o2ib\n      peer ni:\n        - nid: 192.0.2.9@o2ib\n        - nid: 192.0.2.19@o2ib1\n"


@pytest.mark.parametrize("path", ["/sys/kernel/debug/lnet/nis", "/proc/sys/lnet/nis"])
@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("192.0.2.9@o2ib:/fs", ("mlx5_0",)),  # by IP's routes both would do
        ("192.0.2.9@o2ib0,192.0.2.19@o2ib1:/fs", ("mlx5_0", "mlx5_1")),
        ("203.0.113.9@o2ib1:/fs", ("mlx5_1",)),  # no route, and none is needed
    ],
)
def test_lustre_by_the_nids_of_this_node(mounted: Any, path: str, source: str, expected: tuple[str, ...]) -> None:
    ((mount,), reader) = mounted(f"0:70 {source} /l lustre rw", files={path: NIS})
    assert (mount.backing.nics, mount.backing.transport) == (expected, "rdma")
    assert reader.gaps == []
    assert [ni.nid for ni in lnet.collect(reader) or ()] == ["192.0.2.1@o2ib", "192.0.2.2@o2ib1"]


def test_lustre_over_a_router_is_unknown(mounted: Any) -> None:
    ((mount,), reader) = mounted("0:70 192.0.2.9@o2ib5:/fs /l lustre rw", files={"/proc/sys/lnet/nis": NIS})
    assert mount.backing.nics == ()
    assert [(gap.field, gap.settle_with) for gap in reader.gaps] == [
        ("backing/nics", "lnetctl net show; lnetctl route show")
    ]


def test_lustre_by_what_lnetctl_said(machine: Machine) -> None:
    """It names netdevs, and which other networks the same server is on; an interface that is down carries nothing."""
    table = "30 1 0:70 / /l rw - lustre 192.0.2.9@o2ib:/fs rw\n"
    show = (
        "net:\n    - net type: o2ib\n      local NI(s):\n        - nid: 10.9.9.1@o2ib\n          status: up\n"
        "          interfaces:\n              0: ens1\n    - net type: o2ib1\n      local NI(s):\n"
        "        - nid: 10.9.9.2@o2ib1\n          status: %s\n          interfaces:\n              0: ens2\n"
    )
    for status, peers, expected in (
        ("up", None, ("mlx5_0",)),
        ("up", PEERS, ("mlx5_0", "mlx5_1")),
        ("down", PEERS, ("mlx5_0",)),
    ):
        told = {"lnetctl-net-show": show % status} | ({"lnetctl-peer-show": peers} if peers else {})
        reader = machine({"/proc/self/mountinfo": table}, outputs=told)
        (mount,) = mounts.collect(reader, (), (), NICS)
        assert mount.backing.nics == expected


@pytest.mark.parametrize(
    ("options", "fstab", "expected", "settle"),
    [
        ("rw,net=ens2", "", ("mlx5_1",), None),
        ("rw", "fs1 /w wekafs net:ha=ens1,net:ha=ens2,num_cores=2 0 0\n", ("mlx5_0", "mlx5_1"), None),
        ("rw", "fs1 /w wekafs net=0000:18:00.0/192.0.2.1/24 0 0\n", ("mlx5_0",), None),
        ("rw", "fs1 /w wekafs num_cores=0,net=udp,mgmt_ip=192.0.2.1+192.0.2.2 0 0\n", ("mlx5_0", "mlx5_1"), None),
        ("rw", "fs1 /other wekafs net=ens2 0 0\n", (), "weka local resources --json"),
        ("rw,container_name=client", "", (), "weka local resources -C client --json"),
        ("rw,net=ib9", "", (), "weka local resources --json"),
    ],
)
def test_weka_by_its_devices(
    mounted: Any, options: str, fstab: str, expected: tuple[str, ...], settle: str | None
) -> None:
    ((mount,), reader) = mounted(f"0:72 fs1 /w wekafs {options}", files={"/etc/fstab": fstab})
    assert mount.backing.nics == expected
    assert [gap.settle_with for gap in reader.gaps] == ([settle] if settle else [])


def test_weka_by_its_resources(machine: Machine) -> None:
    table = {
        "/proc/self/mountinfo": "30 1 0:72 / /w rw - wekafs fs1 rw\n",
        "/etc/fstab": "fs1 /w wekafs net=ens1 0 0\n",
    }
    told = '{"net_devices": [{"device": "ens2", "ips": []}]}'
    (mount,) = mounts.collect(machine(table, outputs={"weka-local-resources": told}), (), (), NICS)
    assert mount.backing.nics == ("mlx5_1",)


@pytest.mark.parametrize(
    ("ports", "expected", "settle"),
    [
        ("verbsPorts mlx5_1/1/0 mlx5_0/1\n", ("mlx5_1", "mlx5_0"), None),
        ("maxblocksize 16M\n", (), "mmlsconfig verbsPorts"),
        ("[n1]\nverbsPorts mlx5_0\n", (), "mmlsconfig verbsPorts"),
        (None, (), "mmlsconfig verbsPorts"),
    ],
)
def test_gpfs_by_its_verbs_ports(
    mounted: Any, ports: str | None, expected: tuple[str, ...], settle: str | None
) -> None:
    files = {"/var/mmfs/gen/mmfs.cfg": ports} if ports is not None else {}
    ((mount,), reader) = mounted("0:49 fs1 /gpfs gpfs rw", files=files)
    assert mount.backing.nics == expected
    assert [gap.settle_with for gap in reader.gaps] == ([settle] if settle else [])


@pytest.mark.parametrize(
    ("nodes", "transport", "expected"),
    [
        ("s [ID: 1]\n   Connections: RDMA: 2 (192.0.2.9:8003); \n", "rdma", ("mlx5_0", "mlx5_1")),
        ("s [ID: 1]\n   Connections: TCP: 2 (203.0.113.9:8003 [fallback route]); \n", "tcp", ("eno1",)),
        (
            "s [ID: 1]\n   Connections: TCP: 1 (192.0.2.9:8003); RDMA: 2 (192.0.2.9:8003); \n",
            None,
            ("mlx5_0", "mlx5_1"),
        ),
        ("s [ID: 1]\n   Connections: <none>\n", None, ()),
    ],
)
def test_beegfs_by_its_connections(mounted: Any, nodes: str, transport: str | None, expected: tuple[str, ...]) -> None:
    files = {"/proc/fs/beegfs/1A-2B-node/storage_nodes": nodes}
    ((mount,), reader) = mounted("0:50 beegfs_nodev /b beegfs rw,cfgFile=/etc/beegfs/beegfs-client.conf", files=files)
    assert (mount.backing.transport, mount.backing.nics) == (transport, expected)
    assert [gap.field for gap in reader.gaps] == ([] if expected else ["backing/nics"])
    two = files | {"/proc/fs/beegfs/3C-4D-node/storage_nodes": nodes}
    ((mount,), _) = mounted("0:50 beegfs_nodev /b beegfs rw", files=two)
    assert (mount.backing.transport, mount.backing.nics) == (None, ())


def test_fabrics_nics_by_interface_or_route(mounted: Any) -> None:
    found, _ = mounted("259:4 /dev/nvme4n1 /a xfs rw", "259:5 /dev/nvme5n1 /b xfs rw")
    assert [(m.backing.transport, m.backing.server, m.backing.nics) for m in found] == [
        ("rdma", "192.0.2.9", ("mlx5_0", "mlx5_1")),
        ("tcp", "192.0.2.9", ("mlx5_1",)),
    ]


def test_no_table_is_a_gap(machine: Machine) -> None:
    reader = machine({"/proc/self/mountinfo": "nonsense\n"})
    assert mounts.collect(reader, (), (), ()) == ()
    assert (reader.gaps[0].section, reader.gaps[0].reason) == ("mounts", "error")


def test_fstab_and_its_passwords(machine: Machine) -> None:
    text = b"//nas/x /x cifs user=u,password=hunter2,vers=3 0 0\nceph:/ /c ceph name=n,secret=AQ==,_netdev 0 0\n"
    reader = machine({"/etc/fstab": text})
    first, second = mounts.fstab(reader) or ()
    assert (first.target, second.line) == ("/x", 2)
    recorder = Recorder(reader.source)
    recorder.read("/etc/fstab")
    kept = recorder.files["/etc/fstab"]
    assert b"hunter2" not in kept
    assert b"AQ==" not in kept
    assert [e.target for e in parse_fstab(kept.decode()).entries] == ["/x", "/c"]
    assert mounts.fstab(machine({"/etc/passwd": b""})) == ()

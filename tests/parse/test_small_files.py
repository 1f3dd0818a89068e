"""Small files of /proc and /sys, modprobe.d, the kernel log and short tools."""

from __future__ import annotations

import contextlib
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdsctl.errors import InputError
from gdsctl.parse import (
    infiniband,
    kernel_log,
    modprobe_d,
    network,
    nvidia_fs_proc,
    nvidia_proc,
    nvme_address,
    platform_text,
    storage_text,
    sysfs_pci,
)
from tests.hang import no_hang

FUNCTIONS = [
    value
    for module in (
        infiniband,
        kernel_log,
        modprobe_d,
        network,
        nvidia_fs_proc,
        nvidia_proc,
        nvme_address,
        platform_text,
        storage_text,
        sysfs_pci,
    )
    for name, value in vars(module).items()
    if name.startswith("parse") and callable(value) and value.__module__ == module.__name__
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f"{f.__module__.rpartition('.')[2]}.{f.__name__}")
@given(text=st.text(alphabet=st.sampled_from(' \t\n\r\0"=,;:()[]-_/\\#.>|0129abxEGPU\u00e9\ud800\u0661'), max_size=120))
@settings(max_examples=25)
def test_any_text_gives_a_result_or_an_input_error(function: Any, text: str) -> None:
    try:
        function(text)
    except InputError as error:
        assert error.reason  # noqa: PT017  # either end is right


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f"{f.__module__.rpartition('.')[2]}.{f.__name__}")
@pytest.mark.parametrize(
    "hostile",
    ["a" * 100_000, " " * 100_000 + "x", "0-9," * 30_000, "E:" + '"=' * 50_000, "md0 : active" + " a[1" * 30_000],
)
def test_hostile_text_does_not_hang(function: Any, hostile: str) -> None:
    with no_hang(), contextlib.suppress(InputError):
        function(hostile)


def test_kernel_log_tells_the_symbol_errors_apart() -> None:
    events = kernel_log.parse(
        "[1.0] harmless\n"
        "[2.0] nvidia_fs: module using GPL-only symbols uses symbols nvidia_p2p_put_pages from proprietary module nvidia.\n"
        "[3.0] nvidia_fs: disagrees about version of symbol nvidia_p2p_get_pages\n"
        "[3.1] nvidia_fs: Unknown symbol nvidia_p2p_get_pages (err -22)\n"
        "[4.0] nvidia_fs: no symbol version for nvidia_p2p_dma_map_pages\n"
        "[5.0] failing symbol_get of non-GPLONLY symbol rpcrdma_register_nvfs_dma_ops.\n"
        "[6.0] nvme 0000:3b:00.0: ACS redirect is set between the client and provider (0000:3c:00.0)\n"
        "[7.0] nvidia-fs:nvfs_pin_gpu_pages:1383 Error ret -22 invoking nvidia_p2p_get_pages\n"
    ).events
    assert [(e.meaning, e.module, e.symbol or e.address, e.line) for e in events] == [
        ("gpl-only-symbol", "nvidia_fs", "nvidia_p2p_put_pages", 2),
        ("symbol-version-mismatch", "nvidia_fs", "nvidia_p2p_get_pages", 3),
        ("unknown-symbol", "nvidia_fs", "nvidia_p2p_get_pages", 4),
        ("no-symbol-version", "nvidia_fs", "nvidia_p2p_dma_map_pages", 5),
        ("non-gpl-symbol-get", None, "rpcrdma_register_nvfs_dma_ops", 6),
        ("p2pdma-acs-redirect", None, "0000:3b:00.0", 7),
        ("get-pages-invalid", "nvidia-fs", None, 8),
    ]
    assert events[0].text.startswith("[2.0] nvidia_fs")


def test_modprobe_order_shadowing_and_continuation() -> None:
    merged = modprobe_d.merge_options(
        [
            ("/lib/modprobe.d/nvidia.conf", "options nvidia NVreg_A=9\n"),
            ("/etc/modprobe.d/zz.conf", '# last\noptions nvidia \\\n  NVreg_RegistryDwords="A=1; B=2" NVreg_A=3\n'),
            ("/etc/modprobe.d/nvidia.conf", "options nvidia NVreg_A=1\nblacklist nouveau\n"),
            ("/etc/modprobe.d/notes.txt", "options nvidia NVreg_A=7\n"),
        ]
    )
    assert merged.files == ("/etc/modprobe.d/nvidia.conf", "/etc/modprobe.d/zz.conf")
    assert merged.options["nvidia"]["NVreg_A"].value == "3"
    assert merged.options["nvidia"]["NVreg_RegistryDwords"].value == "A=1; B=2"
    assert merged.options["nvidia"]["NVreg_A"].line == 2
    assert [(m, n, s.value) for m, n, s in merged.overridden] == [("nvidia", "NVreg_A", "1")]
    assert set(merged.shadowed) == {"/lib/modprobe.d/nvidia.conf", "/etc/modprobe.d/notes.txt"}


def test_nvidia_version_kinds() -> None:
    opened = nvidia_proc.parse_version(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  595.45.04  Release Build\nGCC version:  12.2.0\n"
    )
    closed = nvidia_proc.parse_version("NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.57.02  Tue Jul 13\n")
    assert (opened.kind, opened.version, opened.gcc) == ("open", "595.45.04", "12.2.0")
    assert (closed.kind, closed.version, closed.gcc) == ("proprietary", "470.57.02", None)


def test_gpu_information() -> None:
    gpu = nvidia_proc.parse_gpu_information(
        "Model: \t\t NVIDIA H100 80GB HBM3\nGPU UUID: \t GPU-????????-????\nBus Location: \t 0000:86:00.0\nDevice Minor: \t 3\nGPU Excluded:\t No\n"
    )
    assert (gpu.model, gpu.uuid, gpu.address, gpu.device_minor, gpu.excluded) == (
        "NVIDIA H100 80GB HBM3",
        None,
        "0000:86:00.0",
        3,
        False,
    )


def test_nvidia_fs_files() -> None:
    assert nvidia_fs_proc.parse_modules("nvme: (null)\nwekafsio: 1\n").modules == {"nvme": None, "wekafsio": "1"}
    assert nvidia_fs_proc.parse_bridges("0000:80:00.0\n").bridges == ("0000:80:00.0",)
    assert nvidia_fs_proc.parse_version("version: 2.28\n") == "2.28"
    assert nvidia_fs_proc.parse_devcount("16\n") == 16
    (old,) = nvidia_fs_proc.parse_peer_distance(
        "gpu\tpeer\tpeerrank\tp2pdist\tnp2p\tlink\tgen\tclass\n0000:af:00.0\t0000:86:00.0\t0x00820088\t0x0082\t5\t0x08\t0x03\tnetwork\n"
    ).rows
    assert (old.peerrank, old.p2pdist, old.np2p, old.link, old.gen, old.numa, old.class_) == (
        0x820088,
        0x82,
        5,
        8,
        3,
        None,
        "network",
    )


@pytest.mark.shared
def test_bar_sizes_agree_with_lspci(shared: Path) -> None:
    folder = shared / "field" / "vm" / "acs-on"
    sizes: dict[str, list[tuple[int, int, bool]]] = {}
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    address = ""
    for line in (folder / "oracle" / "lspci-vvv-nn.txt").read_text().split("\n"):
        if head := re.match(r"([0-9a-f]{4}:[0-9a-f:.]{7}) ", line):
            address = head[1]
        elif bar := re.match(
            r"\tRegion (\d): Memory at \S+ \(\d+-bit, (non-)?prefetchable\).*\[size=(\d+)([KMG])\]", line
        ):
            sizes.setdefault(address, []).append((int(bar[1]), int(bar[3]) * unit[bar[4]], bar[2] is None))
    with tarfile.open(folder / "root.tar.gz") as archive:
        seen = 0
        for member in archive:
            if member.isfile() and (found := re.search(r"/([0-9a-f]{4}:[0-9a-f:.]{7})/resource$", member.name)):
                text = archive.extractfile(member).read().decode()  # type: ignore[union-attr]  # a regular file
                bars = [(b.index, b.size_bytes, b.prefetchable) for b in sysfs_pci.parse_resource(text)]
                assert bars == sizes.get(found[1], [])
                seen += len(bars)
    assert seen > 10


def test_framebuffer_bar_is_the_largest_prefetchable_one() -> None:
    bars = sysfs_pci.parse_resource(
        "0x00000000fc000000 0x00000000fcffffff 0x0000000000140204\n0x0 0x0 0x0\n"
        "0x0000008000000000 0x0000009fffffffff 0x000000000014220c\n0x0 0x0 0x0\n"
        "0x000000a000000000 0x000000a001ffffff 0x000000000014220c\n0x0 0x0 0x0\n"
        "0x0000000000001000 0x00000000ffffffff 0x0000000000002200\n"
    )
    framebuffer = sysfs_pci.framebuffer_bar(bars)
    assert [bar.index for bar in bars] == [0, 2, 4]
    assert framebuffer is not None
    assert (framebuffer.index, framebuffer.size_bytes) == (2, 128 << 30)


@pytest.mark.parametrize(
    ("text", "speed"), [("8.0 GT/s PCIe\n", 8.0), ("8 GT/s\n", 8.0), ("Unknown\n", None), ("32.0 GT/s PCIe", 32.0)]
)
def test_link_speed(text: str, speed: float | None) -> None:
    assert sysfs_pci.parse_link_speed(text) == speed


def test_sysfs_numbers() -> None:
    assert sysfs_pci.parse_numa_node("-1\n") is None
    assert sysfs_pci.parse_numa_node("1\n") == 1
    assert (sysfs_pci.parse_link_width("16\n"), sysfs_pci.parse_link_width("255\n")) == (16, None)
    assert infiniband.parse_rate("200 Gb/sec (4X HDR)\n") == 200.0
    assert infiniband.parse_state("4: ACTIVE\n") == "ACTIVE"
    assert platform_text.parse_cpulist("0-3,8\n") == (0, 1, 2, 3, 8)
    assert platform_text.parse_cpulist("\n") == ()
    assert platform_text.parse_cpulist("0-99999999") is None
    assert platform_text.parse_node_meminfo("Node 0 MemTotal:         985472 kB\n") == 985472 * 1024


def test_ibdev2netdev_both_forms() -> None:
    record = infiniband.parse_ibdev2netdev(
        "mlx5_0 port 1 ==> ib0 (Up)\n0000:17:00.0 mlx5_1 (MT4123 - X) ConnectX-6 fw 20.1 port 1 (ACTIVE) ==> ens1np0 (Down)\n"
    )
    assert [(p.rdma_device, p.port, p.netdev, p.state) for p in record.ports] == [
        ("mlx5_0", 1, "ib0", "Up"),
        ("mlx5_1", 1, "ens1np0", "Down"),
    ]


def test_nvme_addresses() -> None:
    fabrics = nvme_address.parse("traddr=10.9.0.1,trsvcid=4420,host_iface=ib0\n")
    assert (fabrics.traddr, fabrics.trsvcid, fabrics.host_iface, fabrics.pci) == ("10.9.0.1", "4420", "ib0", None)
    assert nvme_address.parse("0000:83:00.0\n").pci == "0000:83:00.0"


def test_addresses_find_their_interface_and_two_rails_stay_unknown() -> None:
    routes = network.parse_route(
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
        "eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
        "eth0\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
        "ib0\t001010AC\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
        "ib1\t001010AC\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
    )
    local = network.parse_fib_trie(
        "Local:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.0.0.0\n        /24 link UNICAST\n     |-- 10.0.0.7\n        /32 host LOCAL\n"
        "     |-- 10.0.0.255\n        /32 link BROADCAST\n     |-- 127.0.0.1\n        /32 host LOCAL\n     |-- 172.16.16.5\n        /32 host LOCAL\n"
    )
    assert (routes[0].network, routes[0].gateway) == ("0.0.0.0/0", "10.0.0.1")
    assert local == ("10.0.0.7", "127.0.0.1", "172.16.16.5")
    assert network.interface_addresses(local, routes) == {"10.0.0.7": "eth0", "127.0.0.1": "lo", "172.16.16.5": None}


@pytest.mark.shared
def test_ip_addr_of_a_booted_machine(shared: Path) -> None:
    text = (shared / "field" / "vm" / "rdma-on" / "oracle" / "ip-addr.json").read_text()
    assert network.parse_ip_addr(text) == {"lo": ("127.0.0.1",), "ens2": (), "enp37s0": ("10.9.0.1",)}


def test_storage_text() -> None:
    (nfs,) = storage_text.parse_mountstats(
        "device /dev/vda mounted on / with fstype ext4\n"
        "device srv:/x\\040y mounted on /mnt with fstype nfs statvers=1.1\n\topts:\trw,proto=rdma\n\txprt:\trdma 0 0 1\n\txprt:\trdma 0 0 1\n"
    )
    assert (nfs.device, nfs.target, nfs.options, nfs.xprts) == (
        "srv:/x y",
        "/mnt",
        ("rw", "proto=rdma"),
        ("rdma", "rdma"),
    )
    active, idle = storage_text.parse_mdstat(
        "Personalities : [raid0]\nmd0 : active raid0 nvme1n1[1] nvme0n1[0](F)\n      100 blocks super 1.2\n\nmd1 : inactive sda[0](S)\n"
    )
    assert (active.level, [(m.name, m.slot, m.flags) for m in active.members]) == (
        "raid0",
        [("nvme1n1", 1, ""), ("nvme0n1", 0, "F")],
    )
    assert (idle.active, idle.level) == (False, None)
    assert storage_text.parse_udev("S:disk/x\nE:MD_LEVEL=raid0\nE: A=b=c\nG:systemd\n") == {
        "MD_LEVEL": "raid0",
        "A": "b=c",
    }


def test_platform_text() -> None:
    config = platform_text.parse_kernel_config(
        'CONFIG_A=y\n# CONFIG_PCI_P2PDMA is not set\nCONFIG_B="x"\n# a comment\n'
    )
    assert config == {"CONFIG_A": "y", "CONFIG_PCI_P2PDMA": "n", "CONFIG_B": "x"}
    cpu = platform_text.parse_cpuinfo(
        "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel name\t: EPYC\nphysical id\t: 0\n\nprocessor\t: 1\nphysical id\t: 1\n"
    )
    assert (cpu.vendor, cpu.family, cpu.model_name, cpu.sockets, cpu.processors) == ("AuthenticAMD", 25, "EPYC", 2, 2)
    release = platform_text.parse_os_release('ID=ubuntu\nVERSION_ID="24.04"\nID_LIKE=debian\n')
    assert (release.id, release.version_id, release.id_like) == ("ubuntu", "24.04", ("debian",))
    limit = platform_text.parse_memlock(
        "Max locked memory         8388608              unlimited            bytes     \n"
    )
    assert limit is not None
    assert (limit.soft_bytes, limit.hard_bytes) == (8388608, None)
    info = platform_text.parse_modinfo(
        "filename:       /lib/x.ko\nlicense:        Dual MIT/GPL\ndepends:        a,b\nparm:           x:an x (int)\n"
    )
    assert (info.license, info.depends, info.parameters) == ("Dual MIT/GPL", ("a", "b"), {"x": "an x (int)"})

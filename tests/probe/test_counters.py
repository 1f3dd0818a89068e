"""Counters as the kernel prints them, by its own documentation."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gdsctl.model.devices import Backing, Block, Mount
from gdsctl.probe.counters import Counters, Reading, cached_bytes, dirtied_bytes, nfs_bytes
from gdsctl.source.opening import open_source

# Documentation/block/stat.rst: read I/Os, merges, sectors, ticks, write I/Os, merges, sectors, ticks, ...
STAT = "100 0 2048 50 10 0 4096 20 0 60 70 0 0 0 0 1 1\n"

MOUNTSTATS = """\
device 10.0.0.1:/a mounted on /mnt/a b with fstype nfs4 statvers=1.1
\tbytes:\t1 2 3 4 5 6 7 8
device 10.0.0.1:/kv mounted on /kv with fstype nfs statvers=1.1
\topts:\trw,vers=3
\tage:\t10
\tbytes:\t100 200 3000 4000 50000 60000 7 8
\txprt:\trdma 0 0 1
"""

NVFS = """\
GDS Version: 1.11.0.15
NVFS statistics(ver: 4.0)
NVFS Driver(version: 2.20.5)
Mellanox PeerDirect Supported: True
IO stats: {state}, peer IO stats: Disabled
Logging level: info

Active Shadow-Buffer (MiB): 128
Active Process: 1
Batches\t\t\t\t: n=0 ok=0 err=0 Avg-Submit-Latency(usec)=0
Reads\t\t\t\t: n={reads} ok={reads} err=0 readMiB=64 io_state_err=0
Writes\t\t\t\t: n=0 ok=0 err=0 writeMiB=0 io_state_err=0 pg-cache=0 pg-cache-fail=0 pg-cache-eio=0
Mmap\t\t\t\t: n=8 ok=8 err=0 munmap=8
Bar1-map\t\t\t: n=9 ok=9 err=0 free=9 callbacks=0 active=0 delay-frees=0
Error\t\t\t\t: cpu-gpu-pages=0 sg-ext=0 dma-map=0 dma-ref=0
Ops\t\t\t\t: Read=0 Write=0 BatchIO=0
"""


def tree(tmp_path: Path, files: dict[str, str], links: dict[str, str] | None = None):
    for name, target in (links or {}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).symlink_to(target)
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return open_source(str(tmp_path))


def test_sectors_are_512_bytes(tmp_path: Path) -> None:
    source = tree(tmp_path, {"sys/dev/block/259:1/stat": STAT})
    assert Counters(source, "read", device=(259, 1)).read().device_bytes == 2048 * 512
    assert Counters(source, "write", device=(259, 1)).read().device_bytes == 4096 * 512


@pytest.mark.parametrize("text", ["", "1 2", "1 2 x 4 5 6 y 8\n"])
def test_a_damaged_stat_file_is_not_known(tmp_path: Path, text: str) -> None:
    source = tree(tmp_path, {"sys/dev/block/259:1/stat": text})
    assert Counters(source, "read", device=(259, 1)).read() == Reading()


def test_the_drives_below_an_array(tmp_path: Path) -> None:
    files = {f"sys/class/block/nvme{n}n1/stat": STAT for n in (0, 1)}
    files |= {"sys/dev/block/9:0/stat": STAT}
    blocks = (
        Block(name="md0", kind="md", slaves=("nvme0n1", "nvme1n1"), level="raid0"),
        Block(name="nvme0n1"),
        Block(name="nvme1n1"),
    )
    mount = Mount(target="/r", device="md0")
    found = Counters(tree(tmp_path, files), "read", device=(9, 0), mount=mount, blocks=blocks).read()
    assert found.member_bytes == 2 * 2048 * 512


def test_the_drives_of_a_btrfs(tmp_path: Path) -> None:
    """Its files are on device 0:N; /sys/fs/btrfs has a link for each drive."""
    files = {f"sys/class/block/nvme{n}n1/stat": STAT for n in (0, 1)}
    files |= {f"sys/fs/btrfs/8c5e/devices/nvme{n}n1": "" for n in (0, 1)}
    files |= {"sys/fs/btrfs/features/mixed_groups": "0\n", "sys/fs/btrfs/0aaa/devices/sda": ""}
    mount = Mount(target="/b", device="nvme1n1", fstype="btrfs")
    assert Counters(tree(tmp_path, files), "write", device=(0, 44), mount=mount).read().member_bytes == 2 * 4096 * 512


def test_pages_dirtied(tmp_path: Path) -> None:
    source = tree(tmp_path, {"proc/vmstat": "nr_dirty 7\nnr_dirtied 1000\nnr_written 5\n"})
    assert Counters(source, "write", device=(259, 1)).read().dirtied_bytes == 1000 * os.sysconf("SC_PAGE_SIZE")
    assert Counters(source, "read", device=(259, 1)).read().dirtied_bytes is None


def test_pages_dirtied_by_a_loop_device_are_not_told(tmp_path: Path) -> None:
    """It writes its file through the page cache, whatever was asked for above it."""
    files = {"proc/vmstat": "nr_dirtied 1000\n", "sys/class/block/loop0/loop/dio": "0\n"}
    blocks = (Block(name="loop0", kind="loop", major_minor="7:0"),)
    assert Counters(tree(tmp_path, files), "write", device=(7, 0), blocks=blocks).read().dirtied_bytes is None


BDI = """\
BdiWriteback:                0 kB
BdiDirtyThresh:        3134828 kB
BdiDirtied:             {kb} kB
BdiWritten:                  7 kB
"""


@pytest.mark.parametrize("sums_all_groups", [True, False], ids=["6.10", "before"])
def test_pages_dirtied_of_a_partitions_disk(tmp_path: Path, sums_all_groups: bool) -> None:
    """Only since Linux 6.10, known by wb_stats, are control groups in it; a partition has none of its own."""
    files = {"sys/kernel/debug/bdi/259:0/stats": BDI.format(kb=2000), "proc/vmstat": "nr_dirtied 9\n"}
    if sums_all_groups:
        files["sys/kernel/debug/bdi/259:0/wb_stats"] = ""
    links = {"sys/class/block/nvme0n1/bdi": "../../../devices/virtual/bdi/259:0"}
    blocks = (
        Block(name="nvme0n1", major_minor="259:0"),
        Block(name="nvme0n1p1", kind="part", slaves=("nvme0n1",), major_minor="259:1"),
    )
    source = tree(tmp_path, files, links)
    found = Counters(source, "write", device=(259, 1), blocks=blocks).read()
    assert found.device_dirtied_bytes == (2000 * 1024 if sums_all_groups else None)
    assert found.dirtied_bytes == 9 * os.sysconf("SC_PAGE_SIZE")
    assert Counters(source, "read", device=(259, 1), blocks=blocks).read().device_dirtied_bytes is None


@pytest.mark.parametrize("text", ["", "BdiDirtied: kB\n", "BdiDirtied: -1 kB\n", "Dirtied: 5 kB\n"])
def test_a_damaged_count_of_dirty_pages_is_not_known(text: str) -> None:
    assert dirtied_bytes(text) is None


@pytest.mark.parametrize("device", ["nvme4n1", "nvme4n1p2"])
def test_the_paths_of_a_multipath_drive(tmp_path: Path, device: str) -> None:
    """Linux 6.1 over RDMA: the head's own counters stand at zero."""
    paths = {f"sys/class/block/{name}/stat": STAT for name in ("nvme4c4n1", "nvme4c5n1", "nvme4c4n2", "nvme14c4n1")}
    files = {**paths, "sys/class/block/nvme4n1/stat": "0 " * 17, "sys/dev/block/259:4/stat": "0 " * 17}
    found = Counters(tree(tmp_path, files), "read", device=(259, 4), mount=Mount(target="/f", device=device)).read()
    assert (found.device_bytes, found.member_bytes) == (0, 2 * 2048 * 512)


def test_an_array_of_multipath_drives(tmp_path: Path) -> None:
    names = ("nvme1c1n1", "nvme1c2n1", "nvme2n1")
    blocks = (Block(name="md0", kind="md", slaves=("nvme1n1", "nvme2n1"), level="raid0"),)
    source = tree(tmp_path, {f"sys/class/block/{name}/stat": STAT for name in names})
    found = Counters(source, "read", device=(9, 0), mount=Mount(target="/r", device="md0"), blocks=blocks).read()
    assert found.member_bytes == 3 * 2048 * 512


def test_nfs_per_mount() -> None:
    """nfs_iostat.h: normal read, normal written, direct read, direct written, server read, server written."""
    assert nfs_bytes(MOUNTSTATS, "/kv", "read") == (3000, 50000)
    assert nfs_bytes(MOUNTSTATS, "/kv", "write") == (4000, 60000)
    assert nfs_bytes(MOUNTSTATS, "/elsewhere", "read") == (None, None)
    assert nfs_bytes("", "/kv", "read") == (None, None)


def test_a_port_counts_words_of_four_bytes(tmp_path: Path) -> None:
    files = {
        "sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data": "1000\n",
        "sys/class/net/eth0/statistics/rx_bytes": "77\n",
    }
    mount = Mount(target="/kv", fstype="nfs", backing=Backing(kind="nfs", nics=("mlx5_0", "eth0")))
    found = Counters(tree(tmp_path, files), "read", device=(0, 50), mount=mount).read()
    assert found.nic_bytes == 4000 + 77


@pytest.mark.parametrize(("state", "blocks"), [("Enabled", 64), ("Disabled", None)])
def test_disabled_statistics_of_nvidia_fs_are_not_zero(tmp_path: Path, state: str, blocks: int | None) -> None:
    text = NVFS.format(state=state, reads=64 if blocks else 0)
    found = Counters(tree(tmp_path, {"proc/driver/nvidia-fs/stats": text}), "read", device=(1, 1)).read()
    assert found.nvfs_blocks == blocks
    assert found.nvfs_maps == 9


def test_what_was_added() -> None:
    before = Reading(device_bytes=10, nic_bytes=100, cached_bytes=50)
    after = Reading(device_bytes=30, nic_bytes=90, cached_bytes=20, nvfs_maps=4)
    assert after.since(before) == Reading(device_bytes=20, nic_bytes=None, cached_bytes=0, nvfs_maps=None)


def test_pages_that_were_written_buffered_are_in_the_cache(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_bytes(b"x" * 100_000)
    descriptor = os.open(file, os.O_RDONLY)
    try:
        assert cached_bytes(descriptor, 100_000) == 100_000
    finally:
        os.close(descriptor)

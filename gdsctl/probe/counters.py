"""What the kernel counts while a probe runs: the same readings before and after."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
from typing import Any

import msgspec

from gdsctl.errors import InputError
from gdsctl.model.devices import Block, Mount
from gdsctl.parse import nvidia_fs_stats
from gdsctl.parse.mounts import unescape
from gdsctl.probe.engine import Direction
from gdsctl.probe.stack import below, opened
from gdsctl.record import Record
from gdsctl.source import nvml
from gdsctl.source.base import Source, decode, got

_SECTOR = 512  # Documentation/block/stat.rst: sectors are 512 bytes, whatever the device's own are
_MINCORE_STEP = 1 << 30
_NVME_DISK = re.compile(r"nvme(\d+)n(\d+)(?:p\d+)?\Z")
_NVME_PATH = re.compile(r"nvme(\d+)c\d+n(\d+)\Z")


class Reading(Record, frozen=True, kw_only=True):
    """Counters at one moment; None where a counter is not there or cannot be read.

    `device_bytes`: of the block device under the file system; `member_bytes`: of the drives under that one, together;
    `nfs_direct_bytes`: moved by O_DIRECT on this mount; `nfs_server_bytes`: exchanged with the server; `nic_bytes`: in
    this direction through the mount's NICs; `nvfs_blocks`: reads or writes that nvidia-fs carried out, only where it
    counts them; `nvfs_maps`: buffers that it mapped, always counted; `cached_bytes`: of the files, in the page cache, and
    `resident_bytes` the same, always absolute, and `cached_below_bytes`, `resident_below_bytes` of the
    files that loop devices below stand for;
    `dirtied_bytes`: written into the page cache, on the whole machine, `device_dirtied_bytes`: of this device or file
    system and those below, which the kernel adds up in grains of `dirtied_grain_bytes`;
    `busy_ms`, `queued_ms`: of the block device, the time with any request and that of all requests together;
    `gpu_pcie_bytes`: that the GPUs received, or for writes sent, over PCIe, whoever asked for them.
    """

    device_bytes: int | None = None
    member_bytes: int | None = None
    nfs_direct_bytes: int | None = None
    nfs_server_bytes: int | None = None
    nic_bytes: int | None = None
    nvfs_blocks: int | None = None
    nvfs_maps: int | None = None
    cached_bytes: int | None = None
    resident_bytes: int | None = None
    cached_below_bytes: int | None = None
    resident_below_bytes: int | None = None
    dirtied_bytes: int | None = None
    device_dirtied_bytes: int | None = None
    dirtied_grain_bytes: int = 0
    busy_ms: int | None = None
    queued_ms: int | None = None
    gpu_pcie_bytes: int | None = None

    def since(self, before: Reading) -> Reading:
        """What was added; None where one of the two is not known, and where a counter went backwards."""
        added: dict[str, Any] = {}
        for name in self.__struct_fields__:
            now, then = getattr(self, name), getattr(before, name)
            added[name] = now - then if now is not None and then is not None and now >= then else None
        for name in ("cached_bytes", "cached_below_bytes"):  # pages may leave the cache, too
            now, then = getattr(self, name), getattr(before, name)
            added[name] = max(0, now - then) if now is not None and then is not None else None
        for name in ("resident_bytes", "resident_below_bytes", "dirtied_grain_bytes"):
            added[name] = getattr(self, name)
        return Reading(**added)

    def with_cache(self, cached: int | None) -> Reading:
        """The same with another number of bytes in the page cache: 0 before a file of our own was there."""
        return msgspec.structs.replace(self, cached_bytes=cached)


class Counters:
    """Where to look for one file and one direction. All but the page cache and NVML's counters is read through the Source."""

    def __init__(
        self,
        source: Source,
        direction: Direction,
        *,
        device: tuple[int, int],
        mount: Mount | None = None,
        blocks: tuple[Block, ...] = (),
        mounts: tuple[Mount, ...] = (),
        gpus: tuple[str, ...] = (),
    ) -> None:
        self._source = source
        self._direction = direction
        self._mount = mount
        self.below = below(source, device, mount, blocks=blocks, mounts=mounts)
        on = self.below.likely_on
        self._device = f"/sys/dev/block/{on.major_minor if on is not None else f'{device[0]}:{device[1]}'}"
        self._members = self._by_path(self.below.drives)
        self._dirtied_of = tuple(map(self._backing_dev_info, self.below.written_to))
        self._gpus = gpus
        self._nics = mount.backing.nics if mount is not None else ()

    def read(self, *files: tuple[int, int]) -> Reading:
        """`files`: descriptor and size of those whose place in the page cache is wanted."""
        nfs = self._nfs()
        nvfs = self._nvidia_fs()
        resident_below = self._cached_below()
        dirtied = self._device_dirtied() if self._direction == "write" else None
        resident = _total([cached_bytes(descriptor, size) for descriptor, size in files])
        return Reading(
            device_bytes=self._disk(f"{self._device}/stat"),
            member_bytes=_total([self._disk(f"/sys/class/block/{name}/stat") for name in self._members]),
            nfs_direct_bytes=nfs[0],
            nfs_server_bytes=nfs[1],
            nic_bytes=_total([self._nic(device) for device in self._nics]),
            nvfs_blocks=nvfs[0],
            nvfs_maps=nvfs[1],
            cached_bytes=resident,
            resident_bytes=resident,
            cached_below_bytes=resident_below,
            resident_below_bytes=resident_below,
            dirtied_bytes=self._dirtied() if self._direction == "write" else None,
            device_dirtied_bytes=dirtied,
            dirtied_grain_bytes=_grain_bytes() if dirtied is not None else 0,
            busy_ms=self._field(9),
            queued_ms=self._field(10),
            gpu_pcie_bytes=nvml.pcie_bytes(self._gpus, received=self._direction == "read") if self._gpus else None,
        )

    def _by_path(self, members: tuple[str, ...]) -> tuple[str, ...]:
        """NVMe with several paths, as all over fabrics: nvme0n1 is the head, nvme0c1n1 a path to it that counts, too.

        Linux 6.1 counts nothing on the head, 7.3 counts on both (drivers/nvme/host/multipath.c).
        """
        mount = self.below.likely_on or self._mount
        disks = members or ((mount.device,) if mount is not None and mount.device else ())
        if not any(_NVME_DISK.match(disk) for disk in disks):
            return members
        known = [found for name in _names(self._source, "/sys/class/block") if (found := _NVME_PATH.match(name))]
        below: list[str] = []
        for disk in disks:
            head = _NVME_DISK.match(disk)
            paths = [path.string for path in known if head is not None and path.groups() == head.groups()]
            below += paths or ([disk] if members else [])
        return tuple(sorted(below))

    def _cached_below(self) -> int | None:
        if not self.below.files:
            return None
        with opened(self.below.files) as files:
            known = [cached_bytes(descriptor, size) for descriptor, size in files]
        return _total(known) if len(known) == len(self.below.files) else None

    def _text(self, path: str) -> str | None:
        reading = self._source.read(path)
        return decode(reading) if got(reading) else None

    def _field(self, column: int) -> int | None:
        return _column(self._text(f"{self._device}/stat"), column)

    def _disk(self, path: str) -> int | None:
        sectors = _column(self._text(path), 2 if self._direction == "read" else 6)
        return None if sectors is None else sectors * _SECTOR

    def _nic(self, device: str) -> int | None:
        """`port_rcv_data` counts words of 4 bytes (IBTA 16.1.3.5); it includes RDMA, which a netdev's counter does not."""
        data = "port_rcv_data" if self._direction == "read" else "port_xmit_data"
        ports = self._source.names(f"/sys/class/infiniband/{device}/ports")
        if got(ports):
            paths = [f"/sys/class/infiniband/{device}/ports/{port}/counters/{data}" for port in ports]
            return _total([None if (n := self._number(path)) is None else 4 * n for path in paths])
        counter = "rx_bytes" if self._direction == "read" else "tx_bytes"
        return self._number(f"/sys/class/net/{device}/statistics/{counter}")

    def _number(self, path: str) -> int | None:
        text = (self._text(path) or "").strip()
        return int(text) if text.isdecimal() else None

    def _dirtied(self) -> int | None:
        """nr_dirtied: pages that became dirty since the boot; direct I/O makes none. Linux, mm/page-writeback.c.

        Not told above a loop device that itself writes its file through the page cache (Linux, drivers/block/loop.c).
        """
        if self.below.buffered:
            return None
        for line in (self._text("/proc/vmstat") or "").split("\n"):
            name, _, number = line.partition(" ")
            if name == "nr_dirtied" and number.isdecimal():
                return int(number) * mmap.PAGESIZE
        return None

    def _backing_dev_info(self, folder: str) -> str | None:
        """Where the kernel tells of what a device or file system writes its pages to; None where that cannot be relied on.

        Before Linux 6.10, which brought wb_stats, it told of the root control group alone (mm/backing-dev.c).
        """
        link = self._source.real(f"{folder}/bdi")
        if not isinstance(link, str) or "/bdi/" not in link:
            return None
        told = f"/sys/kernel/debug/bdi/{link.rsplit('/', 1)[1]}"
        return f"{told}/stats" if self._source.exists(f"{told}/wb_stats") is True else None

    def _device_dirtied(self) -> int | None:
        return _total([dirtied_bytes(self._text(path) or "") if path else None for path in self._dirtied_of])

    def _nfs(self) -> tuple[int | None, int | None]:
        if self._mount is None or not self._mount.fstype.startswith("nfs"):
            return None, None
        return nfs_bytes(self._text("/proc/self/mountstats") or "", self._mount.target, self._direction)

    def _nvidia_fs(self) -> tuple[int | None, int | None]:
        """Its read and write counters stand still, and say nothing, unless rw_stats_enabled is set."""
        text = self._text("/proc/driver/nvidia-fs/stats")
        if text is None:
            return None, None
        try:
            stats = nvidia_fs_stats.parse(text)
        except InputError:
            return None, None
        row = stats.reads if self._direction == "read" else stats.writes
        return (row["ok"] if stats.io_stats_enabled else None), stats.bar1_map["n"]


def _names(source: Source, folder: str) -> tuple[str, ...]:
    names = source.names(folder)
    return names if got(names) else ()


def _grain_bytes() -> int:
    """How far the sum of the CPUs' counts of one device may be off: WB_STAT_BATCH each (Linux, backing-dev-defs.h)."""
    cpus = os.cpu_count() or 1
    return 8 * cpus.bit_length() * cpus * mmap.PAGESIZE


def _column(stat: str | None, column: int) -> int | None:
    """Of a block device's `stat`, counted from 0: Linux, Documentation/block/stat.rst."""
    fields = (stat or "").split()
    return int(fields[column]) if len(fields) > column and fields[column].isdecimal() else None


def dirtied_bytes(stats: str) -> int | None:
    """`BdiDirtied: N kB` of /sys/kernel/debug/bdi/NAME/stats: what became dirty since the device was there."""
    for line in stats.split("\n"):
        name, _, rest = line.partition(":")
        number = rest.strip().removesuffix(" kB")
        if name == "BdiDirtied" and number.isdecimal():
            return int(number) << 10
    return None


def nfs_bytes(text: str, target: str, direction: Direction) -> tuple[int | None, int | None]:
    """(bytes by O_DIRECT, bytes exchanged with the server) of one mount, from /proc/self/mountstats.

    `bytes:` NORMALREADBYTES NORMALWRITTENBYTES DIRECTREADBYTES DIRECTWRITTENBYTES SERVERREADBYTES SERVERWRITTENBYTES
    READPAGES WRITEPAGES: Linux, include/linux/nfs_iostat.h.
    """
    here = False
    for line in text.split("\n"):
        if line.startswith("device "):
            words = line.split(" ")
            here = "on" in words and unescape(words[words.index("on") + 1]) == target
        elif here and line.lstrip().startswith("bytes:"):
            numbers = line.split()[1:]
            shift = 0 if direction == "read" else 1
            if len(numbers) >= 6 and all(number.isdecimal() for number in numbers[:6]):
                return int(numbers[2 + shift]), int(numbers[4 + shift])
    return None, None


def cached_bytes(descriptor: int, size_bytes: int) -> int | None:
    """Bytes of the file that stand in the page cache, by mincore(2); None where the kernel would not tell.

    It tells only of files that one may write to or owns (Linux 5.2), and of others that every page is there.
    """
    if not _may_ask(descriptor):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    resident = 0
    for start in range(0, size_bytes, _MINCORE_STEP):
        length = min(_MINCORE_STEP, size_bytes - start)
        pages = (ctypes.c_ubyte * -(-length // mmap.PAGESIZE))()
        # Private and writable, since ctypes wants a buffer that it could write to; nothing is written.
        try:
            area = mmap.mmap(descriptor, length, flags=mmap.MAP_PRIVATE, offset=start)
        except (OSError, ValueError):
            return None
        first = ctypes.c_char.from_buffer(area)
        failed = libc.mincore(ctypes.addressof(first), length, pages)
        del first
        area.close()
        if failed:
            return None
        resident += bytes(pages).count(1)
    return min(resident * mmap.PAGESIZE, size_bytes)


def _may_ask(descriptor: int) -> bool:
    try:
        facts = os.fstat(descriptor)
        return facts.st_uid == os.geteuid() or os.access(f"/proc/self/fd/{descriptor}", os.W_OK)
    except OSError:
        return False


def _total(numbers: list[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known and len(known) == len(numbers) else None

"""Which path the bytes took: rows of evidence, first match wins. What was asked for is no evidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import msgspec

from gdsctl.probe.counters import Reading
from gdsctl.probe.engine import CufileCounts, Direction
from gdsctl.probe.sizes import words
from gdsctl.probe.stack import Stack
from gdsctl.record import Record

PathName = Literal["nvidia-fs", "p2pdma", "c2c", "rdma", "compat", "host-direct", "mixed", "unknown"]
Confidence = Literal["certain", "likely", "unknown"]

# A file system reads and writes a little for itself; other processes use the same devices and ports.
_CACHE_UNTOUCHED, _CACHE_USED = 0.01, 0.05
_ALL, _MUCH_MORE = 0.98, 1.5
_INFINITE = float("inf")
_PASSES = 2
"""Over the file: the second of a buffered read moves nothing."""

_CONTRADICTS, _HARDLY_BY_CHANCE = 0.9, 1.1


class PathEvidence(Record, frozen=True, kw_only=True):
    """`fact`: what was looked at; `value`: what it said; `source`: file or call; `says`: what that means for the path."""

    fact: str
    value: str
    source: str
    says: str


class PathTaken(Record, frozen=True, kw_only=True):
    """`because`: the row of the table that decided, in a sentence."""

    verdict: PathName
    confidence: Confidence
    because: str
    evidence: tuple[PathEvidence, ...] = ()


class Observed(Record, frozen=True, kw_only=True):
    """All that is known of one run.

    `bytes`, `blocks`: moved; `distinct_bytes`: of the file, each counted once; `direct`: O_DIRECT is set on the open
    file; `others_file`: it was there before, so that others may read it; `compat_allowed`: by the configuration the library
    ran with; `c2c`: is the GPU joined to the CPU by NVLink-C2C; `below`: what lies below the file system; `user_rdma`: does the file system register GPU memory with the NIC itself.
    """

    engine: Literal["posix", "bounce", "cufile"]
    direction: Direction
    bytes: int
    blocks: int
    distinct_bytes: int
    direct: bool | None = True
    direct_from: str = "fcntl(F_GETFL)"
    others_file: bool = False
    compat_allowed: bool | None = None
    c2c: bool | None = None
    below: Stack = Stack()
    user_rdma: bool = False
    counters: Reading = Reading()
    cufile: CufileCounts | None = None

    @property
    def host(self) -> bool:
        return self.engine != "cufile"

    @property
    def cached(self) -> float | None:
        """Share of the file's bytes that came to stand in the page cache."""
        if self.counters.cached_bytes is None or not self.distinct_bytes:
            return None
        return self.counters.cached_bytes / self.distinct_bytes

    @property
    def storage(self) -> float | None:
        """Bytes that the storage's own counter saw, by bytes moved. A mount's O_DIRECT counter is its own, a disk's is not."""
        counters = self.counters
        if not self.bytes:
            return None
        device = counters.device_bytes or None if counters.member_bytes else counters.device_bytes  # 0: does not count
        for count in (counters.nfs_direct_bytes, device, counters.member_bytes):
            if count is not None:
                return count / self.bytes
        return None

    @property
    def dirtied(self) -> int | None:
        """Bytes that became dirty in the page cache: on this device where it counts finely enough, else on the machine."""
        counters = self.counters
        fine = counters.dirtied_grain_bytes <= _CACHE_USED * self.bytes
        return (
            counters.device_dirtied_bytes
            if fine and counters.device_dirtied_bytes is not None
            else counters.dirtied_bytes
        )

    @property
    def drives(self) -> float | None:
        """Bytes that the drives at the bottom counted, by bytes moved."""
        moved = self.counters.member_bytes
        return moved / self.bytes if moved is not None and self.bytes else None

    @property
    def by_cufile(self) -> CufileCounts | None:
        """The library's counts; counts of nothing, while bytes moved, are statistics switched off."""
        return self.cufile if self.cufile is not None and self.cufile.total else None

    @property
    def nvfs(self) -> float | None:
        blocks = self.counters.nvfs_blocks
        return blocks / self.blocks if blocks is not None and self.blocks else None


def _dirtied(seen: Observed, low: float) -> bool:
    """Were so many of the bytes written into the page cache, which may have been emptied again? NFS counts for itself."""
    return (
        seen.direction == "write"
        and seen.counters.nfs_direct_bytes is None
        and seen.dirtied is not None
        and seen.dirtied >= low * seen.bytes > 0
    )


def _from_cache(seen: Observed) -> bool:
    """Reads that the storage did not see, of a file that stands in the page cache."""
    return seen.direction == "read" and _resident(seen) and _storage_between(seen, 0, _CONTRADICTS)


def _resident(seen: Observed) -> bool:
    """Whenever they came there."""
    resident = seen.counters.resident_bytes
    return resident is not None and resident >= _CACHE_USED * seen.distinct_bytes > 0


def _read_by_others(seen: Observed) -> bool:
    """Could another program have brought the file into the page cache?"""
    return seen.host and seen.others_file and seen.direction == "read" and _through_cache(seen)


def _moved_again(seen: Observed) -> bool:
    """Did the storage move each pass anew, though all of the file stood in the page cache by then?"""
    resident = seen.counters.resident_bytes
    passes = seen.bytes / seen.distinct_bytes if seen.distinct_bytes else 0.0
    return (
        passes >= _PASSES
        and resident is not None
        and resident >= _ALL * seen.distinct_bytes
        and _storage_between(seen, _ALL, _INFINITE)
    )


def _untouched(seen: Observed) -> bool:
    return seen.cached is not None and seen.cached < _CACHE_UNTOUCHED


def _through_cache(seen: Observed) -> bool:
    return seen.cached is not None and seen.cached >= _CACHE_USED


def _through_cache_below(seen: Observed) -> bool:
    added = seen.counters.cached_below_bytes
    return added is not None and added >= _CACHE_USED * seen.distinct_bytes > 0


def _perhaps_cached_below(seen: Observed) -> bool:
    """Could bytes have been written over pages that stood in the cache of the files below before?"""
    if not seen.below.loops or seen.direction == "read":
        return False
    held = seen.counters.resident_below_bytes
    return held is None or held >= _CACHE_USED * seen.distinct_bytes or seen.dirtied is None


def _storage_between(seen: Observed, low: float, high: float) -> bool:
    return seen.storage is not None and low <= seen.storage < high


def _kinds(seen: Observed) -> set[str]:
    counts = seen.by_cufile
    if counts is None:
        return set()
    named = {"nvidia-fs": counts.nvidia_fs, "p2p": counts.p2p, "posix": counts.posix}
    return {name for name, blocks in named.items() if blocks}


def _only(seen: Observed, kind: str) -> bool:
    """The library put every block on this path and none on another."""
    counts = seen.by_cufile
    if counts is None or _kinds(seen) != {kind}:
        return False
    return {"nvidia-fs": counts.nvidia_fs, "p2p": counts.p2p, "posix": counts.posix}[kind] >= counts.total


class Row(NamedTuple):
    """One line of the table. `name`: for tests and talk."""

    name: str
    holds: Callable[[Observed], bool]
    verdict: PathName
    confidence: Confidence
    because: str


TABLE: tuple[Row, ...] = (
    # --- nothing to judge
    Row("nothing-moved", lambda o: o.bytes == 0, "unknown", "unknown", "no bytes moved"),
    # --- memory is no storage, whatever moved the bytes there
    Row(
        "host-in-memory",
        lambda o: o.host and bool(o.below.memory),
        "mixed",
        "certain",
        "what lies at the bottom keeps its bytes in this machine's memory: they went to no storage",
    ),
    # --- contradictions come first: no single counter outvotes another
    Row(
        "cufile-against-nvidia-fs",
        lambda o: _only(o, "posix") and o.nvfs is not None and o.nvfs >= _CONTRADICTS,
        "unknown",
        "unknown",
        "the library counts every block as POSIX, yet nvidia-fs carried as many (another process's, perhaps)",
    ),
    Row(
        "nvidia-fs-without-its-driver",
        lambda o: _only(o, "nvidia-fs") and o.nvfs is not None and o.nvfs < _CONTRADICTS,
        "unknown",
        "unknown",
        "the library counts the blocks as nvidia-fs's, yet the driver, which was counting, did not see them",
    ),
    Row(
        "direct-in-the-page-cache",
        lambda o: not o.host and _through_cache(o) and bool(_kinds(o) & {"nvidia-fs", "p2p"}),
        "mixed",
        "likely",
        "the library counts direct blocks, yet the file came to stand in the page cache: a part went through it",
    ),
    Row(
        "host-read-from-cache",
        lambda o: o.host and _from_cache(o),
        "mixed",
        "certain",
        "O_DIRECT was asked for, but the storage did not move all bytes, and the file stands in the page cache",
    ),
    Row(
        "storage-did-not-move",
        lambda o: not _through_cache(o) and _storage_between(o, 0, _CONTRADICTS),
        "unknown",
        "unknown",
        "fewer bytes left or reached the storage than were moved, and the page cache does not hold the rest",
    ),
    Row(
        "drives-did-not-move",
        lambda o: o.host and not o.below.buffered and o.drives is not None and o.drives < _CONTRADICTS,
        "unknown",
        "unknown",
        "the device moved the bytes, but the drives below it did not: something between them keeps or shrinks them",
    ),
    # --- host memory (posix, bounce)
    Row(
        "host-buffered-perhaps",
        lambda o: _read_by_others(o) and not _moved_again(o),
        "mixed",
        "likely",
        "O_DIRECT was asked for, but the bytes stand in the page cache: the file system served it buffered, or another program"
        " read the file meanwhile; a --duration of several passes tells them apart",
    ),
    Row(
        "host-buffered",
        lambda o: o.host and _through_cache(o) and not _read_by_others(o),
        "mixed",
        "certain",
        "O_DIRECT was asked for, but the bytes stand in the page cache: the file system served it buffered",
    ),
    Row(
        "host-not-direct",
        lambda o: o.host and o.direct is False,
        "mixed",
        "certain",
        "the file is not open with O_DIRECT, so the page cache is in the way",
    ),
    Row(
        "host-not-seen-direct",
        lambda o: o.host and o.direct is None and not (o.direction == "write" and o.dirtied is not None),
        "unknown",
        "unknown",
        "the program was not seen to have the file open with O_DIRECT, and buffered reads whose pages are dropped at once"
        " leave the same counters; a longer --duration lets it be seen",
    ),
    Row(
        "host-over-loop",
        lambda o: o.host and bool(o.below.buffered),
        "mixed",
        "certain",
        "the file is direct, but the loop device below its file system moves the bytes through the page cache of another"
        " file (losetup --direct-io=on)",
    ),
    Row(
        "host-file-below-through-cache",
        lambda o: o.host and _through_cache_below(o),
        "mixed",
        "certain",
        "the file is direct, and the loop device below asks for direct I/O, but its file came to stand in the page cache",
    ),
    Row(
        "host-cached-by-others",
        lambda o: _read_by_others(o) and _moved_again(o),
        "host-direct",
        "likely",
        "the storage moved the file as often as it was read, though it came to stand in the page cache, which would have"
        " answered: another program read it meanwhile",
    ),
    Row(
        "host-written-through-cache",
        lambda o: o.host and _dirtied(o, _CONTRADICTS) and not _dirtied(o, _HARDLY_BY_CHANCE),
        "mixed",
        "likely",
        "as many bytes became dirty in the page cache as were written: the file system served O_DIRECT buffered and then"
        " dropped the pages (or others wrote just as much)",
    ),
    Row(
        "host-cache-of-others",
        lambda o: o.host and _dirtied(o, _HARDLY_BY_CHANCE),
        "unknown",
        "unknown",
        "others wrote so much into the page cache that these bytes could be among it; a larger --size tells them apart, or"
        " as root the device's own count (mount -t debugfs none /sys/kernel/debug, Linux 6.10)",
    ),
    Row(
        "host-busy-cache",
        lambda o: (
            o.host and _untouched(o) and _dirtied(o, _CACHE_USED) and _storage_between(o, _CONTRADICTS, _INFINITE)
        ),
        "host-direct",
        "likely",
        "the page cache stayed empty of the file, and the storage moved the bytes; what became dirty in it meanwhile may be"
        " others' or a part of these",
    ),
    Row(
        "host-below-unseen",
        lambda o: o.host and _untouched(o) and bool(o.below.unseen) and _storage_between(o, _CONTRADICTS, _INFINITE),
        "host-direct",
        "likely",
        "the page cache stayed empty of the file, and its device moved the bytes; what lies below that cannot be seen",
    ),
    Row(
        "host-file-below-cached",
        lambda o: (
            o.host and _untouched(o) and _perhaps_cached_below(o) and _storage_between(o, _CONTRADICTS, _INFINITE)
        ),
        "host-direct",
        "likely",
        "the page cache stayed empty of the file, and the drives moved the bytes; whether the page cache of the file below"
        " was in between cannot be told, since much of it is there or it cannot be looked at",
    ),
    Row(
        "host-proven",
        lambda o: o.host and _untouched(o) and _storage_between(o, _ALL, _MUCH_MORE),
        "host-direct",
        "certain",
        "the page cache stayed empty of the file, and the storage moved as many bytes as were asked for",
    ),
    Row(
        "host-busy-storage",
        lambda o: o.host and _untouched(o) and _storage_between(o, _CONTRADICTS, _INFINITE),
        "host-direct",
        "likely",
        "the page cache stayed empty of the file; the storage's counter differs by what others or the file system moved",
    ),
    Row(
        "host-cached-before",
        lambda o: o.host and o.storage is None and o.direction == "read" and _resident(o),
        "unknown",
        "unknown",
        "the file stood in the page cache before, and no counter tells whether the storage moved these bytes once more",
    ),
    Row(
        "host-no-storage-counter",
        lambda o: o.host and _untouched(o) and o.storage is None,
        "host-direct",
        "likely",
        "the page cache stayed empty of the file; no counter tells what the storage moved",
    ),
    Row(
        "host-no-cache-reading",
        lambda o: o.host and o.cached is None and _storage_between(o, _ALL, _MUCH_MORE),
        "host-direct",
        "likely",
        "the storage moved as many bytes as were asked for; the kernel does not tell what the page cache holds",
    ),
    Row(
        "host-undecided",
        lambda o: o.host,
        "unknown",
        "unknown",
        "neither the page cache nor the storage's counters tell enough",
    ),
    # --- cuFile, by its own count of each block
    Row(
        "cufile-several",
        lambda o: len(_kinds(o)) > 1,
        "mixed",
        "certain",
        "the library's own counts show blocks on more than one path",
    ),
    Row(
        "cufile-posix",
        lambda o: _only(o, "posix"),
        "compat",
        "certain",
        "the library counts every block as POSIX: through host memory",
    ),
    Row(
        "cufile-nvidia-fs-confirmed",
        lambda o: _only(o, "nvidia-fs") and o.nvfs is not None,
        "nvidia-fs",
        "certain",
        "the library counts every block as nvidia-fs's, and so does the driver",
    ),
    Row(
        "cufile-nvidia-fs-strict",
        lambda o: _only(o, "nvidia-fs") and o.compat_allowed is False,
        "nvidia-fs",
        "certain",
        "the library counts every block as nvidia-fs's, and could not have fallen back",
    ),
    Row(
        "cufile-nvidia-fs",
        lambda o: _only(o, "nvidia-fs"),
        "nvidia-fs",
        "likely",
        "the library counts every block as nvidia-fs's; the driver's own counters are off",
    ),
    Row(
        "cufile-c2c",
        lambda o: _only(o, "p2p") and o.c2c is True,
        "c2c",
        "certain",
        "the library counts every block as peer-to-peer, and this GPU is joined by NVLink-C2C",
    ),
    Row(
        "cufile-p2pdma",
        lambda o: _only(o, "p2p") and o.c2c is False,
        "p2pdma",
        "certain",
        "the library counts every block as PCI peer-to-peer",
    ),
    Row(
        "cufile-p2p",
        lambda o: _only(o, "p2p"),
        "p2pdma",
        "likely",
        "the library counts every block as peer-to-peer; whether this GPU has NVLink-C2C instead of PCIe is not known",
    ),
    Row(
        "cufile-partly-counted",
        lambda o: bool(_kinds(o)),
        "unknown",
        "unknown",
        "the library names a path for only a part of the blocks it moved",
    ),
    # --- cuFile without such counts (before 1.20, or of a path that it does not name)
    Row(
        "strict-nvidia-fs",
        lambda o: o.compat_allowed is False and o.nvfs is not None and o.nvfs >= _ALL,
        "nvidia-fs",
        "certain",
        "compat mode was forbidden, so the bytes went direct, and nvidia-fs counted the blocks",
    ),
    Row(
        "counted-nvidia-fs",
        lambda o: o.nvfs is not None and o.nvfs >= _ALL,
        "nvidia-fs",
        "likely",
        "nvidia-fs counted as many blocks as were moved; another process's cannot be told apart",
    ),
    Row(
        "strict-user-rdma",
        lambda o: (
            o.compat_allowed is False
            and o.user_rdma
            and o.counters.nic_bytes is not None
            and o.counters.nic_bytes >= _ALL * o.bytes
        ),
        "rdma",
        "likely",
        "compat mode was forbidden, the file system does its own RDMA, and the NICs moved the bytes",
    ),
    Row(
        "strict-not-nvidia-fs",
        lambda o: o.compat_allowed is False and o.counters.nvfs_maps == 0 and o.c2c is not None and not o.user_rdma,
        "p2pdma",
        "likely",
        "compat mode was forbidden, so the bytes went direct, and nvidia-fs mapped no buffer",
    ),
    Row(
        "strict-which",
        lambda o: o.compat_allowed is False,
        "unknown",
        "unknown",
        "compat mode was forbidden, so the bytes went direct, but no counter tells over which path",
    ),
    Row(
        "cufile-undecided",
        lambda _: True,
        "unknown",
        "unknown",
        "the library's statistics do not tell the path, and compat mode was allowed",
    ),
)


def judge(seen: Observed) -> PathTaken:
    """The first row that holds; the last one always does."""
    row = next(row for row in TABLE if row.holds(seen))
    verdict: PathName = "c2c" if row.name == "strict-not-nvidia-fs" and seen.c2c else row.verdict
    confidence: Confidence = "likely" if row.confidence == "certain" and seen.below.likely_on else row.confidence
    return PathTaken(verdict=verdict, confidence=confidence, because=row.because, evidence=told(seen))


_CERTAINTY: tuple[Confidence, ...] = ("unknown", "likely", "certain")


def joined(found: Mapping[Direction, PathTaken]) -> PathTaken:
    """Reads and writes of one run as one path: `mixed` where they went different ways."""
    if len(found) == 1:
        return next(iter(found.values()))
    evidence = tuple(
        msgspec.structs.replace(piece, fact=f"{direction}s: {piece.fact}")
        for direction, taken in found.items()
        for piece in taken.evidence
    )
    verdicts = {taken.verdict for taken in found.values()}
    confidence = min((taken.confidence for taken in found.values()), key=_CERTAINTY.index)
    if len(verdicts) == 1:
        first = next(iter(found.values()))
        return PathTaken(verdict=first.verdict, confidence=confidence, because=first.because, evidence=evidence)
    because = "; ".join(f"{direction}s: {taken.verdict}, {taken.because}" for direction, taken in found.items())
    verdict: PathName = "unknown" if "unknown" in verdicts else "mixed"
    return PathTaken(verdict=verdict, confidence=confidence, because=because, evidence=evidence)


def told(seen: Observed) -> tuple[PathEvidence, ...]:
    """Every piece of evidence that is at hand, strongest first; what could not be read is told as such."""
    counters, moved = seen.counters, seen.bytes
    column = "read" if seen.direction == "read" else "written"
    pieces: list[PathEvidence] = []

    def add(fact: str, value: str, source: str, says: str) -> None:
        pieces.append(PathEvidence(fact=fact, value=value, source=source, says=says))

    def share(count: int) -> str:
        return f"{words(count)}, {count / moved:.3f} of the bytes moved" if moved else words(count)

    if not seen.host:
        counts = seen.by_cufile
        if counts is None:
            add("blocks by path", "not told", "cuFileGetStatsL3", "nothing")
        else:
            value = f"nvidia-fs {counts.nvidia_fs}, peer-to-peer {counts.p2p}, POSIX {counts.posix}, all {counts.total}"
            add("blocks by path", value, "cuFileGetStatsL3", "the library's own word")
        allowed = {True: "allowed", False: "forbidden", None: "not known"}[seen.compat_allowed]
        says = "what moved went direct" if seen.compat_allowed is False else "nothing: it may fall back unseen"
        add("compat mode", allowed, "properties.allow_compat_mode of this run", says)
        if counters.nvfs_blocks is not None:
            value = f"{counters.nvfs_blocks} of {seen.blocks} blocks"
            add("blocks by nvidia-fs", value, "/proc/driver/nvidia-fs/stats", "its share, other processes included")
        elif counters.nvfs_maps is not None:
            add(
                "blocks by nvidia-fs", "not counted", "/proc/driver/nvidia-fs/stats", "nothing: rw_stats_enabled is off"
            )
        if counters.nvfs_maps is not None:
            says = "nvidia-fs was not used" if counters.nvfs_maps == 0 else "buffers were registered with nvidia-fs"
            add(
                "buffers mapped by nvidia-fs", str(counters.nvfs_maps), "/proc/driver/nvidia-fs/stats, Bar1-map n", says
            )
    if counters.gpu_pcie_bytes is not None:
        verb = "received" if seen.direction == "read" else "sent"
        says = (
            "direct or bounced, both cross it" if counters.gpu_pcie_bytes >= _CONTRADICTS * moved else "not over PCIe"
        )
        add(f"GPUs {verb} over PCIe", share(counters.gpu_pcie_bytes), "NVML, PCIE_COUNT bytes", says)
    if seen.cached is None:
        add("page cache", "not known", "mincore(2)", "nothing: the kernel tells owners only")
    else:
        says = "untouched"
        if _through_cache(seen):
            says = "went through it, or another program's reads did" if _read_by_others(seen) else "went through it"
        value = f"{words(counters.cached_bytes or 0)} of {words(seen.distinct_bytes)}"
        add("page cache holds of the file", value, "mincore(2)", says)
    if seen.host and seen.dirtied is not None:
        says = "a buffered write would be in it" if not _dirtied(seen, _CACHE_USED) else "through it, or others' writes"
        where = "/proc/vmstat nr_dirtied"
        if seen.dirtied is counters.device_dirtied_bytes:
            where = "/sys/kernel/debug/bdi/*/stats, BdiDirtied of this device"
        add("page cache dirtied", share(seen.dirtied), where, says)
    if seen.host:
        value = {True: "set", False: "not set", None: "not seen"}[seen.direct]
        says = {True: "direct I/O was asked for, which is no proof", False: "not direct", None: "nothing"}[seen.direct]
        add("O_DIRECT on the open file", value, seen.direct_from, says)
    if seen.below.likely_on:
        says = "overlayfs likely keeps its files there"
        lower = f"{seen.below.likely_on.fstype} at {seen.below.likely_on.target}"
        add("file system below", lower, "statvfs(2): the same size and free space", says)
    for name in seen.below.loops:
        if name in seen.below.buffered:
            add(
                "loop device below", f"{name}, buffered", f"/sys/block/{name}/loop/dio", "its file is in the page cache"
            )
        else:
            add("loop device below", f"{name}, direct", f"/sys/block/{name}/loop/dio", "asks its file for direct I/O")
    if counters.cached_below_bytes is not None:
        value = f"{words(counters.cached_below_bytes)} more, {words(counters.resident_below_bytes or 0)} in all"
        says = "went through it" if _through_cache_below(seen) else "untouched"
        add("page cache of files below", value, "mincore(2)", "may be" if _perhaps_cached_below(seen) else says)
    for name in seen.below.memory:
        add("at the bottom", name, "/sys/block, /proc/self/mountinfo", "memory, no storage")
    for name in seen.below.unseen:
        add("not seen", name, "/sys/block, /proc/self/mountinfo, LOOP_GET_STATUS64", "nothing")
    if counters.device_bytes is not None:
        add(f"block device {column}", share(counters.device_bytes), "/sys/dev/block/*/stat", _moved(seen))
    if counters.member_bytes is not None:
        add(
            f"drives below {column}", share(counters.member_bytes), "/sys/class/block/*/stat", "with parity and mirrors"
        )
    if counters.nfs_direct_bytes is not None:
        add("NFS by O_DIRECT", share(counters.nfs_direct_bytes), "/proc/self/mountstats", _moved(seen))
    if counters.nfs_server_bytes is not None:
        add("NFS to or from the server", share(counters.nfs_server_bytes), "/proc/self/mountstats", "the wire")
    if counters.nic_bytes is not None:
        add(f"NICs {column}", share(counters.nic_bytes), "port or netdev counters", "everything on these ports")
    if all(getattr(counters, name) is None for name in ("device_bytes", "member_bytes", "nfs_direct_bytes")):
        add("storage counters", "none", "/sys/dev/block, /proc/self/mountstats", "nothing")
    return tuple(pieces)


def _moved(seen: Observed) -> str:
    if seen.storage is None or seen.storage < _CONTRADICTS:
        return "the storage did not move them all"
    return "the storage moved them" if seen.storage < _MUCH_MORE else "the storage moved them, and more for others"

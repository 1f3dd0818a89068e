"""The table of verdicts over simulated evidence: each row has a run that meets it, and why that is right."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gdsctl.model.devices import Mount
from gdsctl.probe.counters import Reading
from gdsctl.probe.engine import CufileCounts
from gdsctl.probe.stack import Stack
from gdsctl.probe.verdict import TABLE, Observed, judge

MIB = 1 << 20
BLOCKS = 1000
BYTES = BLOCKS * MIB


def seen(engine: str = "posix", counters: dict[str, Any] | None = None, **more: Any) -> Observed:
    """1000 blocks of 1 MiB were read, each of another part of the file."""
    return Observed(
        engine=engine,  # type: ignore[arg-type] # literals, spelled in the table below
        direction=more.pop("direction", "read"),
        bytes=more.pop("bytes", BYTES),
        blocks=BLOCKS,
        distinct_bytes=BYTES,
        counters=Reading(**(counters or {})),
        **more,
    )


def counts(nvidia_fs: int = 0, p2p: int = 0, posix: int = 0, total: int = BLOCKS) -> CufileCounts:
    return CufileCounts(nvidia_fs=nvidia_fs, p2p=p2p, posix=posix, total=total)


EMPTY_CACHE = {"cached_bytes": 0}
GUESSED = Mount(target="/d", fstype="xfs", major_minor="259:0", device="nvme0n1")
LOOP = Stack(loops=("loop0",), drives=("nvme0n1",))

CASES: dict[str, tuple[Observed, str, str]] = {
    # Nothing was moved, so nothing went anywhere.
    "nothing-moved": (seen(bytes=0), "unknown", "unknown"),
    # A loop device with direct I/O over a file of a tmpfs: each counter agrees, and it is memory all the same.
    "host-in-memory": (
        seen(counters={**EMPTY_CACHE, "device_bytes": BYTES}, below=Stack(loops=("loop0",), memory=("tmpfs at /t",))),
        "mixed",
        "certain",
    ),
    # Both count every block for themselves. One of them may have counted another process's.
    "cufile-against-nvidia-fs": (
        seen("cufile", {"nvfs_blocks": BLOCKS}, cufile=counts(posix=BLOCKS)),
        "unknown",
        "unknown",
    ),
    # The driver counts all processes' blocks, so it cannot have seen fewer than ours.
    "nvidia-fs-without-its-driver": (
        seen("cufile", {"nvfs_blocks": 10}, cufile=counts(nvidia_fs=BLOCKS)),
        "unknown",
        "unknown",
    ),
    # DMA to the GPU leaves no pages behind; a quarter of the file is there.
    "direct-in-the-page-cache": (
        seen("cufile", {"cached_bytes": BYTES // 4}, cufile=counts(nvidia_fs=BLOCKS)),
        "mixed",
        "likely",
    ),
    # ext4 with data=journal, read again: the whole file was in the page cache before, so none of it came to stand there.
    "host-read-from-cache": (
        seen(counters={**EMPTY_CACHE, "resident_bytes": BYTES, "device_bytes": 0}),
        "mixed",
        "certain",
    ),
    # 1000 MiB came, the disk gave 400, the page cache has none: something in between is not known.
    "storage-did-not-move": (seen(counters={**EMPTY_CACHE, "device_bytes": 400 * MIB}), "unknown", "unknown"),
    # loop1 counted all bytes and was told to be direct; the disk below saw a tenth.
    "drives-did-not-move": (
        seen(counters={**EMPTY_CACHE, "device_bytes": BYTES, "member_bytes": BYTES // 10}, below=LOOP),
        "unknown",
        "unknown",
    ),
    # An existing file, read once: the device moves as many bytes for a buffered read.
    "host-buffered-perhaps": (
        seen(counters={"cached_bytes": BYTES, "resident_bytes": BYTES, "device_bytes": BYTES}, others_file=True),
        "mixed",
        "likely",
    ),
    # A tmpfs, or ext4 with data=journal: O_DIRECT was accepted and ignored.
    "host-buffered": (seen(counters={"cached_bytes": BYTES}), "mixed", "certain"),
    # The flag is not on the open file.
    "host-not-direct": (seen(counters={**EMPTY_CACHE, "device_bytes": BYTES}, direct=False), "mixed", "certain"),
    # Another program, done before anyone could look at its descriptors.
    "host-not-seen-direct": (seen(counters={**EMPTY_CACHE, "device_bytes": BYTES}, direct=None), "unknown", "unknown"),
    # loop0 counted all bytes, and wrote them into the page cache of the file that it stands for.
    "host-over-loop": (
        seen(counters={**EMPTY_CACHE, "device_bytes": BYTES}, below=Stack(loops=("loop0",), buffered=("loop0",))),
        "mixed",
        "certain",
    ),
    # Linux 6.18, a loop device with direct I/O over a btrfs, which reads the file below through the page cache.
    "host-file-below-through-cache": (
        seen(
            counters={**EMPTY_CACHE, "device_bytes": BYTES, "member_bytes": BYTES, "cached_below_bytes": BYTES // 2},
            below=LOOP,
        ),
        "mixed",
        "certain",
    ),
    # An existing file, read three times over: buffered, the second and third time would have moved nothing.
    "host-cached-by-others": (
        seen(
            counters={"cached_bytes": BYTES, "resident_bytes": BYTES, "device_bytes": 3 * BYTES + MIB},
            bytes=3 * BYTES,
            others_file=True,
        ),
        "host-direct",
        "likely",
    ),
    # ext3 filling a hole: written into the page cache, flushed, and dropped from it; mincore sees none of that.
    "host-written-through-cache": (
        seen(counters={**EMPTY_CACHE, "device_bytes": BYTES, "dirtied_bytes": BYTES}, direction="write"),
        "mixed",
        "likely",
    ),
    # Twice as much became dirty: these bytes and others', or others' alone.
    "host-cache-of-others": (
        seen(counters={**EMPTY_CACHE, "device_bytes": BYTES, "dirtied_bytes": 2 * BYTES}, direction="write"),
        "unknown",
        "unknown",
    ),
    # A tenth of it may be another process's.
    "host-busy-cache": (
        seen(counters={**EMPTY_CACHE, "device_bytes": BYTES, "dirtied_bytes": BYTES // 10}, direction="write"),
        "host-direct",
        "likely",
    ),
    # The file of loop0 was unlinked, or stands in another mount namespace.
    "host-below-unseen": (
        seen(counters={**EMPTY_CACHE, "device_bytes": BYTES}, below=Stack(loops=("loop0",), unseen=("its file",))),
        "host-direct",
        "likely",
    ),
    # Written over a file that stood in the page cache before: those pages may have taken the bytes, or were dropped.
    "host-file-below-cached": (
        seen(
            counters={
                **EMPTY_CACHE,
                "device_bytes": BYTES,
                "member_bytes": BYTES,
                "cached_below_bytes": 0,
                "resident_below_bytes": BYTES,
                "dirtied_bytes": 0,
            },
            below=LOOP,
            direction="write",
        ),
        "host-direct",
        "likely",
    ),
    # The one proof: no page, and as many bytes from the device.
    "host-proven": (seen(counters={**EMPTY_CACHE, "device_bytes": BYTES + MIB}), "host-direct", "certain"),
    # Three times the bytes: others use the disk, which takes the exactness from the proof.
    "host-busy-storage": (seen(counters={**EMPTY_CACHE, "device_bytes": 3 * BYTES}), "host-direct", "likely"),
    # An existing file on tmpfs (Linux 6.6 takes O_DIRECT there): nothing came to stand in the page cache, it was there.
    "host-cached-before": (seen(counters={**EMPTY_CACHE, "resident_bytes": BYTES}), "unknown", "unknown"),
    # A network file system without counters: the empty cache alone speaks.
    "host-no-storage-counter": (seen(counters=EMPTY_CACHE), "host-direct", "likely"),
    # Someone else's file: the kernel does not tell what is cached of it.
    "host-no-cache-reading": (seen(counters={"device_bytes": BYTES}), "host-direct", "likely"),
    # Neither is known.
    "host-undecided": (seen(), "unknown", "unknown"),
    # The library itself says it used two ways (unaligned ends, say).
    "cufile-several": (seen("cufile", cufile=counts(nvidia_fs=900, posix=100)), "mixed", "certain"),
    # Compat mode.
    "cufile-posix": (seen("cufile", EMPTY_CACHE, cufile=counts(posix=BLOCKS)), "compat", "certain"),
    # Two independent counts agree.
    "cufile-nvidia-fs-confirmed": (
        seen("cufile", {"nvfs_blocks": BLOCKS}, cufile=counts(nvidia_fs=BLOCKS)),
        "nvidia-fs",
        "certain",
    ),
    # One count, and no way back.
    "cufile-nvidia-fs-strict": (
        seen("cufile", cufile=counts(nvidia_fs=BLOCKS), compat_allowed=False),
        "nvidia-fs",
        "certain",
    ),
    # One count.
    "cufile-nvidia-fs": (seen("cufile", cufile=counts(nvidia_fs=BLOCKS), compat_allowed=True), "nvidia-fs", "likely"),
    # The library counts C2C as peer-to-peer; the GPU tells them apart.
    "cufile-c2c": (seen("cufile", cufile=counts(p2p=BLOCKS), c2c=True), "c2c", "certain"),
    "cufile-p2pdma": (seen("cufile", cufile=counts(p2p=BLOCKS), c2c=False), "p2pdma", "certain"),
    "cufile-p2p": (seen("cufile", cufile=counts(p2p=BLOCKS)), "p2pdma", "likely"),
    # 400 blocks have a path, 600 have none.
    "cufile-partly-counted": (seen("cufile", cufile=counts(nvidia_fs=400)), "unknown", "unknown"),
    # An older library: the driver counted, and compat was forbidden.
    "strict-nvidia-fs": (seen("cufile", {"nvfs_blocks": BLOCKS}, compat_allowed=False), "nvidia-fs", "certain"),
    "counted-nvidia-fs": (seen("cufile", {"nvfs_blocks": BLOCKS}, compat_allowed=True), "nvidia-fs", "likely"),
    # WekaFS: no module of NVIDIA's moves the bytes, the NIC writes to the GPU.
    "strict-user-rdma": (
        seen("cufile", {"nic_bytes": BYTES}, compat_allowed=False, user_rdma=True),
        "rdma",
        "likely",
    ),
    # Direct, and not by nvidia-fs, which maps a buffer before it can use it.
    "strict-not-nvidia-fs": (
        seen("cufile", {"nvfs_maps": 0}, compat_allowed=False, c2c=False),
        "p2pdma",
        "likely",
    ),
    # Direct, but which way is anyone's guess.
    "strict-which": (seen("cufile", compat_allowed=False), "unknown", "unknown"),
    # An older library with compat mode: the mode that was asked for is no evidence.
    "cufile-undecided": (seen("cufile", EMPTY_CACHE, compat_allowed=True), "unknown", "unknown"),
}


def test_every_row_has_a_case() -> None:
    assert list(CASES) == [row.name for row in TABLE]


@pytest.mark.parametrize("name", CASES)
def test_each_row(name: str) -> None:
    run, verdict, confidence = CASES[name]
    first = next(row.name for row in TABLE if row.holds(run))
    assert first == name
    taken = judge(run)
    assert (taken.verdict, taken.confidence) == (verdict, confidence)
    assert taken.because
    assert taken.evidence


def test_a_device_that_counts_nothing_leaves_it_to_those_below() -> None:
    """The head of an NVMe with several paths, Linux 6.1."""
    taken = judge(seen(counters={**EMPTY_CACHE, "device_bytes": 0, "member_bytes": BYTES}))
    assert (taken.verdict, taken.confidence) == ("host-direct", "certain")
    assert judge(seen(counters={**EMPTY_CACHE, "device_bytes": 0, "member_bytes": 0})).verdict == "unknown"


def test_counters_that_are_off_are_not_zeros() -> None:
    """nvidia-fs with rw_stats_enabled=0 prints 0; as None it neither confirms nor contradicts."""
    off = judge(seen("cufile", {"nvfs_blocks": None, "nvfs_maps": 4}, cufile=counts(nvidia_fs=BLOCKS)))
    assert off.verdict == "nvidia-fs"
    assert {piece.value for piece in off.evidence if piece.fact == "blocks by nvidia-fs"} == {"not counted"}


def test_library_statistics_that_count_nothing_are_off() -> None:
    assert judge(seen("cufile", cufile=counts(total=0), compat_allowed=True)).verdict == "unknown"


def test_direct_on_a_machine_with_c2c() -> None:
    assert judge(seen("cufile", {"nvfs_maps": 0}, compat_allowed=False, c2c=True)).verdict == "c2c"


def test_nfs_own_counter_goes_before_the_disks() -> None:
    """The mount's O_DIRECT counter is the mount's alone."""
    taken = judge(seen(counters={**EMPTY_CACHE, "nfs_direct_bytes": BYTES, "nfs_server_bytes": BYTES}))
    assert (taken.verdict, taken.confidence) == ("host-direct", "certain")


@pytest.mark.parametrize("cached", [0.02, 0.04])
def test_a_little_in_the_cache_decides_nothing(cached: float) -> None:
    assert judge(seen(counters={"cached_bytes": int(cached * BYTES), "device_bytes": BYTES})).verdict == "unknown"


def dirtied(**counters: Any) -> tuple[str, str]:
    taken = judge(seen(counters={**EMPTY_CACHE, "device_bytes": BYTES, **counters}, direction="write"))
    return taken.verdict, taken.confidence


def test_the_devices_own_count_of_dirty_pages_goes_before_the_machines() -> None:
    """Others write 5 GB elsewhere meanwhile; on this device nothing became dirty, or all of it did."""
    assert dirtied(dirtied_bytes=5 * BYTES) == ("unknown", "unknown")
    assert dirtied(dirtied_bytes=5 * BYTES, device_dirtied_bytes=4096) == ("host-direct", "certain")
    assert dirtied(dirtied_bytes=5 * BYTES, device_dirtied_bytes=BYTES) == ("mixed", "likely")


def test_a_count_too_coarse_for_so_few_bytes_is_not_relied_on() -> None:
    """On 128 CPUs it may be off by 32 MiB, and by 500 MiB it could hide half of these bytes."""
    coarse = {"dirtied_bytes": BYTES, "device_dirtied_bytes": 0}
    assert dirtied(**coarse, dirtied_grain_bytes=32 * MIB) == ("host-direct", "certain")
    assert dirtied(**coarse, dirtied_grain_bytes=500 * MIB) == ("mixed", "likely")


def test_a_loop_device_over_a_file_that_the_cache_does_not_hold() -> None:
    below = {"device_bytes": BYTES, "member_bytes": BYTES, "cached_below_bytes": 0, "resident_below_bytes": 0}
    taken = judge(seen(counters={**EMPTY_CACHE, **below, "dirtied_bytes": 0}, below=LOOP, direction="write"))
    assert (taken.verdict, taken.confidence) == ("host-direct", "certain")
    unread = judge(seen(counters={**EMPTY_CACHE, **below}, below=LOOP, direction="write"))  # no count of dirty pages
    assert (unread.verdict, unread.confidence) == ("host-direct", "likely")


def test_a_program_not_seen_at_its_writes_is_judged_by_the_count_of_dirty_pages() -> None:
    """A buffered write cannot but make pages dirty."""
    counted = {**EMPTY_CACHE, "device_bytes": BYTES, "dirtied_bytes": 4096}
    assert judge(seen(counters=counted, direct=None, direction="write")).verdict == "host-direct"
    assert (
        judge(seen(counters={**EMPTY_CACHE, "device_bytes": BYTES}, direct=None, direction="write")).verdict
        == "unknown"
    )


def test_what_is_guessed_below_is_never_certain() -> None:
    """The same evidence, with and without a file system below overlayfs that was told by its size."""
    counters = {**EMPTY_CACHE, "device_bytes": BYTES}
    for below in (Stack(), Stack(loops=("loop0",), buffered=("loop0",)), Stack(memory=("tmpfs at /t",))):
        known = judge(seen(counters=counters, below=below))
        guessed = judge(seen(counters=counters, below=msgspec.structs.replace(below, likely_on=GUESSED)))
        assert (known.confidence, guessed.confidence) == ("certain", "likely")
        assert known.verdict == guessed.verdict


def test_drives_that_were_not_counted_did_not_move_the_bytes() -> None:
    """Of a loop device with direct I/O, in a container without sysfs."""
    taken = judge(seen(counters=EMPTY_CACHE, direction="write", below=LOOP))
    assert (taken.verdict, taken.confidence) == ("host-direct", "likely")
    assert "no counter tells what the storage moved" in taken.because

"""The engine on host memory: all blocks once, errors told exactly, each corruption caught."""

from __future__ import annotations

import errno
import os
import resource
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from gdsctl.errors import RefusedError, UsageError
from gdsctl.probe import offsets, sizes, uring
from gdsctl.probe.engine import Job, Lane, Log, OneAtATime, Stop, Uncounted
from gdsctl.probe.pattern import Pattern
from gdsctl.probe.posix import HostBuffer, PosixEngine
from gdsctl.probe.run import run

BLOCK = 16384
BLOCKS = 64
SEED = 5


@pytest.fixture
def descriptor(nameless: int) -> int:
    """A file of 64 blocks of the pattern."""
    pattern = Pattern(SEED, BLOCK)
    buffer = HostBuffer(BLOCK)
    for offset in range(0, BLOCKS * BLOCK, BLOCK):
        buffer.load(pattern.block(offset))
        assert os.pwritev(nameless, [buffer.view], offset) == BLOCK
    return nameless


@pytest.fixture(params=[1, 4], ids=["preadv", "io_uring"])
def depth(request: pytest.FixtureRequest) -> int:
    found: int = request.param
    if found > 1 and not (support := uring.support()).usable:
        pytest.skip(f"no io_uring: {support.why}")
    return found


def jobs(descriptor: int, direction: str, depth: int, threads: int = 2, *, seed: int = SEED) -> list[Job]:
    job = Job(
        descriptor=descriptor,
        direction="read" if direction == "read" else "write",
        block_bytes=BLOCK,
        iodepth=depth,
        seed=seed,
        checked=True,
    )
    return [job] * threads


def parts(threads: int = 2, *, shuffled: bool = False) -> list[Sequence[int]]:
    return [
        offsets.order(part, shuffled=shuffled, seed=at)
        for at, part in enumerate(offsets.regions(BLOCKS * BLOCK, BLOCK, threads))
    ]


def test_all_blocks_are_read_once_and_right(descriptor: int, depth: int) -> None:
    timed = run(PosixEngine(depth), jobs(descriptor, "read", depth, 3), parts(3))
    assert (timed.bytes, timed.blocks) == (BLOCKS * BLOCK, BLOCKS)
    assert timed.mismatch is None
    assert sum(timed.by_thread) == BLOCKS
    assert timed.seconds > 0
    assert timed.latencies.maximum is not None
    assert timed.latencies.maximum <= timed.seconds * 1e9


@pytest.mark.parametrize("shuffled", [False, True])
def test_what_is_written_stands_there(descriptor: int, depth: int, shuffled: bool) -> None:
    run(PosixEngine(depth), jobs(descriptor, "write", depth, seed=77), parts(shuffled=shuffled))
    pattern, buffer = Pattern(77, BLOCK), HostBuffer(BLOCK)
    for offset in range(0, BLOCKS * BLOCK, BLOCK):
        os.preadv(descriptor, [buffer.view], offset)
        assert pattern.check(buffer.address(), offset) is None


def test_for_a_time_it_goes_on_over_and_over(descriptor: int, depth: int) -> None:
    timed = run(PosixEngine(depth), jobs(descriptor, "read", depth), parts(), seconds=1.2)
    assert timed.blocks > BLOCKS
    assert 1.2 <= timed.seconds < 10
    assert len(timed.series_gbs) == int(timed.seconds)
    assert timed.sides["read"].moved_blocks == timed.blocks


def mixed(descriptor: int, depth: int, percent: int, threads: int = 2) -> list[Job]:
    return [
        msgspec.structs.replace(job, read_percent=percent, direction="read")
        for job in jobs(descriptor, "read", depth, threads)
    ]


@pytest.mark.parametrize("percent", [0, 25, 100])
def test_of_a_mixed_run_so_many_are_read(descriptor: int, depth: int, percent: int) -> None:
    """Of each hundred blocks of a thread exactly so many; 2 threads go over their 32 blocks until 400 are through."""
    order = [offset for _ in range(25) for offset in parts(1)[0][:16]]
    timed = run(PosixEngine(depth), mixed(descriptor, depth, percent, 1), [order])
    assert timed.sides["read"].moved_blocks == 400 * percent // 100
    assert timed.sides["write"].moved_blocks == 400 - 400 * percent // 100
    assert timed.latencies.total == timed.blocks == 400
    assert timed.mismatch is None


def test_mixed_leaves_the_contents_as_they_were(descriptor: int, depth: int) -> None:
    run(PosixEngine(depth), mixed(descriptor, depth, 50), parts(shuffled=True))
    timed = run(PosixEngine(depth), jobs(descriptor, "read", depth), parts())
    assert timed.mismatch is None


def test_mixed_finds_corruption(descriptor: int, depth: int) -> None:
    corrupt(descriptor, "stale", 9 * BLOCK)
    timed = run(PosixEngine(depth), mixed(descriptor, depth, 100), parts())
    assert timed.mismatch is not None
    assert (timed.mismatch.kind, timed.mismatch.offset) == ("stale", 9 * BLOCK)


def test_a_rate_is_kept(descriptor: int, depth: int) -> None:
    """Two threads, a block each 50 ms: 20 a second each. One more may have begun at either end."""
    paced = [msgspec.structs.replace(job, every_ns=50_000_000) for job in jobs(descriptor, "read", depth)]
    timed = run(PosixEngine(depth), paced, parts(), seconds=1.0)
    assert 30 <= timed.blocks <= 42
    assert timed.cpu_seconds < 0.5  # it sleeps in between


def test_what_a_ramp_moves_does_not_count(descriptor: int, depth: int) -> None:
    later = [
        msgspec.structs.replace(job, after_ns=400_000_000 * at)
        for at, job in enumerate(jobs(descriptor, "read", depth))
    ]
    timed = run(PosixEngine(depth), later, parts(), seconds=0.5, ramp_seconds=0.8)
    assert 0.5 <= timed.seconds < 5
    assert timed.blocks < timed.sides["read"].moved_blocks
    assert sum(timed.by_thread) == timed.sides["read"].moved_blocks
    # the second thread began half way through the ramp, and every thread moves at about the same pace
    assert timed.by_thread[1] < timed.by_thread[0]


def test_threads_run_where_they_are_bound(descriptor: int) -> None:
    cpu = min(os.sched_getaffinity(0))
    where: list[set[int]] = []

    class Looks(PosixEngine):
        forks = False

        def lane(self, job: Job) -> Lane:
            where.append(os.sched_getaffinity(0))
            return super().lane(job)

    bound = [msgspec.structs.replace(job, cpus=(cpu,)) for job in jobs(descriptor, "read", 1)]
    before = os.sched_getaffinity(0)
    run(Looks(1), bound, parts())
    assert where == [{cpu}, {cpu}]
    assert os.sched_getaffinity(0) == before


def corrupt(descriptor: int, kind: str, at: int) -> None:
    buffer = HostBuffer(BLOCK)
    os.preadv(descriptor, [buffer.view], at)
    if kind == "zeroed":
        buffer.view[:] = bytes(BLOCK)
    elif kind == "misplaced":
        os.preadv(descriptor, [buffer.view], at + 2 * BLOCK)
    elif kind == "stale":
        buffer.load(Pattern(SEED + 1, BLOCK).block(at))
    elif kind == "torn":
        buffer.view[BLOCK // 2 :] = Pattern(SEED + 1, BLOCK).block(at)[BLOCK // 2 :]
    else:
        buffer.view[:] = b"\xa5" * BLOCK
    os.pwritev(descriptor, [buffer.view], at)


@pytest.mark.parametrize("kind", ["zeroed", "misplaced", "stale", "torn", "corrupt"])
def test_each_corruption_is_caught_where_it_is(descriptor: int, depth: int, kind: str) -> None:
    corrupt(descriptor, kind, 9 * BLOCK)
    timed = run(PosixEngine(depth), jobs(descriptor, "read", depth), parts())
    assert timed.mismatch is not None
    assert timed.mismatch.kind == kind
    assert timed.mismatch.offset == 9 * BLOCK + (BLOCK // 2 if kind == "torn" else 0)


def test_a_file_cut_off_underneath(descriptor: int, depth: int) -> None:
    os.ftruncate(descriptor, 10 * BLOCK + 4096)
    with pytest.raises(
        RefusedError,
        match=rf"read of 16 KiB at offset {10 * BLOCK}: only 4096 bytes of it were moved: the file ends at {10 * BLOCK + 4096}, .*",
    ):
        run(PosixEngine(depth), jobs(descriptor, "read", depth, 1), parts(1))


def test_a_write_that_stops_half_way_says_why(descriptor: int, depth: int) -> None:
    """As on a full disk: setrlimit(2) lets a write go up to the limit, and answers the next with EFBIG."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10 * BLOCK + 4096, hard))
    try:
        with pytest.raises(RefusedError) as told:
            run(PosixEngine(depth), jobs(descriptor, "write", depth, 1), parts(1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert str(told.value).startswith(f"write of 16 KiB at offset {10 * BLOCK}: only 4096 bytes of it were moved: ")
    assert str(told.value).endswith(": File too large (EFBIG)")


def test_a_descriptor_that_may_not_write(tmp_path: Path, descriptor: int, depth: int) -> None:
    read_only = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_DIRECT)
    try:
        with pytest.raises(RefusedError, match=r"write of 16 KiB at offset 0: Bad file descriptor \(EBADF\)"):
            run(PosixEngine(depth), jobs(read_only, "write", depth, 1), parts(1))
    finally:
        os.close(read_only)


class _Failing(Uncounted):
    """Moves a few blocks, then does what it was told to."""

    name = how = "failing"
    queues = False
    why_no_queue = ""

    def __init__(self, then: int | threading.Event) -> None:
        self._then = then

    def lane(self, job: Job) -> OneAtATime:
        def transfer(offset: int) -> int:
            if offset < 3 * BLOCK:
                return BLOCK
            if isinstance(self._then, int):
                raise OSError(self._then, os.strerror(self._then))
            self._then.wait(20)
            return BLOCK

        return OneAtATime(job, transfer, HostBuffer(BLOCK))


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.ESTALE, errno.EDQUOT])
def test_the_systems_error_is_told_as_it_is(code: int) -> None:
    with pytest.raises(RefusedError) as caught:
        run(_Failing(code), jobs(-1, "write", 1, 1), parts(1))
    said = str(caught.value)
    assert said == f"write of 16 KiB at offset {3 * BLOCK}: {os.strerror(code)} ({errno.errorcode[code]})"


def test_storage_that_went_away_has_a_time_limit() -> None:
    gone = threading.Event()
    started = time.monotonic()
    timer = threading.Timer(2.0, gone.set)
    timer.start()
    with pytest.raises(RefusedError, match=r"no transfer of 16 KiB was completed for 0\.5 s"):
        run(_Failing(gone), jobs(-1, "write", 1, 1), parts(1), patience_s=0.5)
    assert time.monotonic() - started < 15


def test_a_long_log_is_worked_out_on_the_way() -> None:
    log = Log()
    for end in (5, 9, 10):
        log.ends.append(end * 1_000_000_000)
        log.latencies.append(7)
    log.fold()
    times = log.back_to_back()
    times.extend([times[0] + 10, times[0] + 30])
    assert log.blocks == 5
    log.fold()
    assert log.blocks == 5
    assert (log.histogram.total, log.histogram.minimum, log.histogram.maximum) == (5, 7, 20)
    assert sum(log.done_in_second.values()) == 5


def test_lanes_stop_when_told(descriptor: int, depth: int) -> None:
    stop = Stop()
    stop.now()
    log = Log()
    lane = PosixEngine(depth).lane(jobs(descriptor, "read", depth)[0])
    lane.drive(range(0, BLOCKS * BLOCK, BLOCK), stop, log)
    lane.close()
    assert log.blocks <= 1


@pytest.mark.parametrize(("threads", "size"), [(1, 10), (3, 10), (7, 7), (4, 64)])
def test_regions_cover_the_file_once(threads: int, size: int) -> None:
    parts = offsets.regions(size * BLOCK + 100, BLOCK, threads)
    assert [offset for part in parts for offset in part] == list(range(0, size * BLOCK, BLOCK))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_shuffled_order_has_each_block_once_and_repeats() -> None:
    region = range(0, 100 * BLOCK, BLOCK)
    first = offsets.order(region, shuffled=True, seed=3)
    assert sorted(first) == list(region)
    assert list(first) == list(offsets.order(region, shuffled=True, seed=3))
    assert list(first) != list(region)


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [
        ("4k", 4096),
        ("1M", 1 << 20),
        ("1.5GiB", 3 << 29),
        ("512", 512),
        ("2g", 2 << 30),
        ("64 KiB", 65536),
        ("1T", 1 << 40),
    ],
)
def test_sizes(text: str, bytes_: int) -> None:
    assert sizes.size(text) == bytes_


@pytest.mark.parametrize("text", ["", "k", "-1", "1.3", "1x", "1e3", "٣", "0.0001k"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError):
        sizes.size(text)

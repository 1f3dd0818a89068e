"""What most likely held the throughput back: rows of evidence, first match wins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from gdsctl.probe.sizes import words
from gdsctl.record import Record

LimiterName = Literal[
    "rate", "route", "cpus", "thread", "stalls", "nfs-connection", "small-blocks", "concurrency", "storage", "unknown"
]

_NEARLY = 0.9
_IDLE = 0.7
_BUSY_CORE = 0.85
_SMALL = 64 << 10
_MANY_UNDER_WAY = 16
_MOST = 0.5
STALLED = 10
"""Times the median: a block that took longer stood still, and did not only queue."""


class Limiter(Record, frozen=True, kw_only=True):
    """`likely`: is it more than a hint; `because`: the numbers behind it; `next`: what would show or lift it."""

    name: LimiterName
    likely: bool
    because: str
    next: str = ""


class Held(Record, frozen=True, kw_only=True):
    """What is known of one run. `cores`: CPU seconds by second; `cpus`: that could be used; `under_way`: blocks that were
    kept in flight; `busy`, `queue`: of the block device, the share of the time with a request and the requests at once;
    `ratio`: of the ceiling that is predicted for the route; `remote`: threads that ran away from the device's NUMA node;
    `stalls`: blocks that took more than STALLED times the median, and `stalled`, their share of the time of all blocks.
    """

    gbs: float
    block_bytes: int
    lanes: int
    under_way: int
    cores: float
    cpus: int
    mean_latency_us: float
    rate_gbs: float | None = None
    ratio: float | None = None
    busy: float | None = None
    queue: float | None = None
    nfs_connections: int | None = None
    remote: bool = False
    stalls: int = 0
    stalled: float = 0.0


class Row(NamedTuple):
    name: LimiterName
    likely: bool
    holds: Callable[[Held], bool]
    because: Callable[[Held], str]
    next: str = ""


def _busy(held: Held) -> str:
    queue = f", {held.queue:.1f} requests at once" if held.queue is not None else ""
    return (
        "" if held.busy is None else f"; the block device was busy {100 * min(held.busy, 1):.0f} % of the time{queue}"
    )


TABLE: tuple[Row, ...] = (
    Row(
        "rate", True,
        lambda h: h.rate_gbs is not None and h.gbs >= 0.95 * h.rate_gbs,
        lambda h: f"the {h.rate_gbs:.4g} GB/s that were asked for were kept",
    ),
    Row(
        "route", True,
        lambda h: h.ratio is not None and h.ratio >= _NEARLY,
        lambda h: f"{100 * (h.ratio or 0):.0f} % of the route's ceiling",
        "a wider link or another route; gdsctl inspect names the narrowest one",
    ),
    Row(
        "cpus", True,
        lambda h: h.cores >= _NEARLY * h.cpus,
        lambda h: f"{h.cores:.2f} of {h.cpus} CPUs were busy",
        "larger --bs costs less CPU for each byte",
    ),
    Row(
        "thread", True,
        lambda h: h.cores >= _BUSY_CORE * h.lanes,
        lambda h: f"{h.cores:.2f} CPUs were busy for {h.lanes} thread{'s' * (h.lanes > 1)}: a thread does one thing at a time",
        "more --threads, or larger --bs",
    ),
    Row(
        "stalls", True,
        lambda h: h.stalled >= _MOST,
        lambda h: f"{h.stalls} block{'s' * (h.stalls > 1)} that took over {STALLED} times as long as most made {100 * h.stalled:.0f} % of the time",
        "a longer --duration and --repeat; if it stays, what else uses the storage",
    ),
    Row(
        "nfs-connection", False,
        lambda h: h.nfs_connections == 1 and h.under_way > 1,
        lambda h: f"one connection to the server carried {h.under_way} blocks under way",
        "the mount with nconnect, or with several localports/remoteports",
    ),
    Row(
        "small-blocks", True,
        lambda h: h.block_bytes < _SMALL and h.under_way < _MANY_UNDER_WAY,
        lambda h: f"blocks of {words(h.block_bytes)} took {h.mean_latency_us:.0f} us each, mostly not for their bytes{_busy(h)}",
        "larger --bs, or more --iodepth",
    ),
    Row(
        "concurrency", True,
        lambda h: h.under_way < _MANY_UNDER_WAY and h.busy is not None and h.busy < _IDLE,
        lambda h: f"{h.under_way} block{'s' * (h.under_way > 1)} under way{_busy(h)}: it waited for us",
        "more --threads or --iodepth",
    ),
    Row(
        "concurrency", False,
        lambda h: h.under_way < _MANY_UNDER_WAY,
        lambda h: f"{h.under_way} block{'s' * (h.under_way > 1)} under way at a time, each {h.mean_latency_us:.0f} us{_busy(h)}",
        "more --threads or --iodepth: if that changes nothing, it is the storage",
    ),
    Row(
        "storage", True,
        lambda h: h.busy is not None and h.busy >= _NEARLY,
        lambda h: f"{h.under_way} blocks were under way{_busy(h)}",
    ),
    Row(
        "unknown", False,
        lambda _: True,
        lambda h: f"{h.under_way} blocks were under way, {h.cores:.2f} of {h.cpus} CPUs busy{_busy(h)}: storage or network",
    ),
)  # fmt: skip


def limiter(held: Held) -> Limiter:
    """The first row that holds; the last one always does."""
    row = next(row for row in TABLE if row.holds(held))
    remote = "; the threads ran on another NUMA node than the device (--numa)" if held.remote else ""
    return Limiter(name=row.name, likely=row.likely, because=row.because(held) + remote, next=row.next)

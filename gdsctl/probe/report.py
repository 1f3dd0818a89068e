"""The `probe` document."""

from __future__ import annotations

from typing import Any

from gdsctl.model.node import SCHEMA_VERSION, Tool
from gdsctl.probe.limiter import Limiter
from gdsctl.probe.pattern import Kind
from gdsctl.probe.verdict import PathName, PathTaken
from gdsctl.record import Record


class Latency(Record, frozen=True, kw_only=True):
    """Microseconds from submitting a block to having it, of all threads together; within 0.4 %, min and max exact.

    None: another program moved the blocks, and does not tell.
    """

    min: float | None = None
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    p99_9: float | None = None
    max: float | None = None


class Verified(Record, frozen=True, kw_only=True):
    """`ok`: every block compared held what was written. `first_bad_offset`: in the file, of the first wrong sector."""

    ok: bool
    seed: int
    bytes: int
    first_bad_offset: int | None = None
    kind: Kind | None = None
    found: str | None = None


class Prediction(Record, frozen=True, kw_only=True):
    """What `inspect` says of this GPU and mount. `ratio`: throughput by ceiling, for blocks that went to the GPU."""

    gpu: str | None = None
    mount: str | None = None
    route: str | None = None
    ceiling_gbs: float | None = None
    ratio: float | None = None
    because: str = ""


class Stability(Record, frozen=True, kw_only=True):
    """`coefficient_of_variation`: standard deviation by mean of the seconds' throughputs; None below three seconds."""

    series_gbs: tuple[float, ...] = ()
    coefficient_of_variation: float | None = None


class SideRow(Record, frozen=True, kw_only=True):
    """The reads or the writes of a mixed run."""

    bytes: int
    throughput_gbs: float
    iops: float
    latency_us: Latency


class RepeatRow(Record, frozen=True, kw_only=True):
    """One of several runs alike, in the order in which they ran."""

    throughput_gbs: float
    iops: float
    p50_us: float | None
    p99_us: float | None
    cpu_seconds_per_gb: float
    verdict: PathName


class Spread(Record, frozen=True, kw_only=True):
    """Of the repeats' throughputs in GB/s. `coefficient_of_variation`: standard deviation by mean; None for fewer than three."""

    min: float
    median: float
    max: float
    coefficient_of_variation: float | None = None


class SweepRow(Record, frozen=True, kw_only=True):
    """The figures of one combination of block size, threads and queue depth; of several runs those of the median one."""

    block_bytes: int
    threads: int
    iodepth: int
    bytes: int
    seconds: float
    throughput_gbs: float
    iops: float
    latency_us: Latency
    cpu_seconds_per_gb: float
    stability: Stability
    path_taken: PathTaken
    limiter: Limiter | None = None
    spread: Spread | None = None


class ComparisonRow(Record, frozen=True, kw_only=True):
    """The same job by another engine. `ratio`: this probe's throughput by the other's."""

    engine: str
    carried_by: str
    throughput_gbs: float
    cpu_seconds_per_gb: float | None = None
    p50_us: float | None = None
    p99_us: float | None = None
    verdict: str | None = None
    ratio: float
    says: str


class RequestRow(Record, frozen=True, kw_only=True):
    """kv-cache: whole sessions stored or retrieved, one at a time, by so many threads; open and close are included."""

    operation: str
    threads: int
    requests: int
    seconds: float
    throughput_gbs: float
    latency_us: Latency


class ProbeReport(Record, frozen=True, kw_only=True):
    """What was done, the figures, and the path with its evidence.

    `engine_because`: why this engine; `carried_by`: system calls or library; `direct`: did the verdict show direct I/O
    (None: unknown); `cpu_seconds_per_gb`: user and system time of this process, by 10^9 bytes. Of several combinations
    the figures are those of the fastest, and `sweep` has them all; of `repeats` those of the median run. `read`, `write`:
    the two sides of a mixed run; `numa_cpus`: of each GPU's threads, where they are bound. With a workload `requests` has
    a row for each step.
    """

    schema_version: str = SCHEMA_VERSION
    tool: Tool
    engine: str
    engine_because: str
    carried_by: str
    path: str
    file: str
    direct: bool | None
    rw: str
    block_bytes: int
    threads: int
    iodepth: int
    files: int = 1
    rate_gbs: float | None = None
    gpus: tuple[int, ...] = ()
    numa_cpus: tuple[tuple[int, ...], ...] = ()
    bytes: int
    seconds: float
    throughput_gbs: float
    iops: float
    latency_us: Latency
    cpu_seconds_per_gb: float
    read: SideRow | None = None
    write: SideRow | None = None
    repeats: tuple[RepeatRow, ...] = ()
    spread: Spread | None = None
    fsync_seconds: float | None = None
    stability: Stability
    verify: Verified | None = None
    path_taken: PathTaken
    prediction: Prediction
    limiter: Limiter | None = None
    comparison: tuple[ComparisonRow, ...] = ()
    sweep: tuple[SweepRow, ...] = ()
    requests: tuple[RequestRow, ...] = ()
    notes: tuple[str, ...] = ()
    environment: dict[str, Any] = {}

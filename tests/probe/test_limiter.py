"""What held a run back, row by row: the numbers of each case are reasoned beside it."""

from __future__ import annotations

from typing import Any

import pytest

from gdsctl.probe.limiter import Held, limiter

# 1 GB/s in blocks of 1 MiB by one thread that sleeps in its system calls, on a machine with 8 CPUs.
PLAIN: dict[str, Any] = {
    "gbs": 1.0,
    "block_bytes": 1 << 20,
    "lanes": 1,
    "under_way": 1,
    "cores": 0.1,
    "cpus": 8,
    "mean_latency_us": 1000.0,
}


@pytest.mark.parametrize(
    ("name", "likely", "more"),
    [
        ("rate", True, {"rate_gbs": 1.0}),
        ("concurrency", False, {"rate_gbs": 10.0}),  # a rate that was never reached limits nothing
        ("route", True, {"ratio": 0.93}),
        ("concurrency", False, {"ratio": 0.5}),
        ("cpus", True, {"cores": 7.8, "lanes": 16, "under_way": 16}),
        ("thread", True, {"cores": 0.95}),  # one thread, one core, all of it
        ("cpus", True, {"cores": 0.95, "cpus": 1}),  # the same on a machine with a single CPU
        ("stalls", True, {"stalls": 1, "stalled": 0.9}),  # one block of 900 ms in a second of blocks of 90 us
        ("concurrency", False, {"stalls": 40, "stalled": 0.2}),
        ("nfs-connection", False, {"nfs_connections": 1, "lanes": 8, "under_way": 8}),
        ("concurrency", False, {"nfs_connections": 1}),  # one block would not use a second connection
        ("small-blocks", True, {"block_bytes": 4096}),
        ("concurrency", True, {"busy": 0.6}),  # the drive idled four tenths of the time
        ("concurrency", False, {"busy": 1.0}),  # busy with one block: may do more at once, or not
        ("storage", True, {"busy": 1.0, "lanes": 32, "under_way": 32}),
        ("unknown", False, {"lanes": 32, "under_way": 32}),  # no counter of the device, such as a parallel file system
    ],
)  # fmt: skip
def test_rows(name: str, likely: bool, more: dict[str, Any]) -> None:
    found = limiter(Held(**(PLAIN | more)))
    assert (found.name, found.likely) == (name, likely)
    assert found.because


def test_a_remote_node_is_told() -> None:
    assert "another NUMA node" in limiter(Held(**PLAIN, remote=True)).because

from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    nvfs = view.node.nvidia_fs
    if nvfs.loaded is True and nvfs.rw_stats_enabled is False:
        yield Fail(
            subject="nvidia_fs",
            message="nvidia_fs does not count reads and writes: its zeros mean nothing",
            evidence=seen("IO stats", "Disabled", "/proc/driver/nvidia-fs/stats"),
        )


RULE = Rule(
    id="nvidia-fs.stats-disabled",
    severity="info",
    problem="the read and write counters of nvidia_fs are off",
    why="With rw_stats_enabled=0 the Ops line stays at zero whatever flows, so it proves neither a direct nor a compat path.",
    look_at=("grep 'IO stats' /proc/driver/nvidia-fs/stats",),
    remedy=Remedy(
        text="Switch the counters on while you measure.",
        commands=("echo 1 > /sys/module/nvidia_fs/parameters/rw_stats_enabled",),
        persistent=False,
        risk="a small cost for every I/O",
    ),
    not_to_conclude="'Read=0' does not mean 'no traffic'.",
    source="NVIDIA/gds-nvidia-fs src/nvfs-stat.c",
    check=check,
)

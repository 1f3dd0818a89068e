from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.data.bad_versions import bad_versions
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    nvfs = view.node.nvidia_fs
    for row in bad_versions():
        if nvfs.loaded is True and nvfs.version == row.version:
            yield Fail(
                subject="nvidia_fs",
                message=f"nvidia_fs {row.version} is known to be bad: {row.fault}",
                evidence=seen("nvidia_fs version", nvfs.version, "/proc/driver/nvidia-fs/stats")
                + seen("known fault", row.fault, row.source),
                remedy=Remedy(text=f"Update nvidia_fs to {row.fixed_in} or newer."),
            )


RULE = Rule(
    id="nvidia-fs.known-bad-version",
    severity="error",
    problem="this release of nvidia_fs is known to be bad",
    why="NVIDIA's release notes name releases of nvidia_fs that must not be used with GDS.",
    look_at=("head -3 /proc/driver/nvidia-fs/stats",),
    remedy=Remedy(text="Update nvidia_fs."),
    source="GDS Release Notes, known issues",
    check=check,
)

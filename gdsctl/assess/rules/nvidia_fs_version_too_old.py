from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.data.limits import below, limit
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    nvfs = view.node.nvidia_fs
    if nvfs.loaded is True and nvfs.version and below(nvfs.version, "nvidia_fs_minimum"):
        yield Fail(
            subject="nvidia_fs",
            message=f"nvidia_fs {nvfs.version} is older than libcufile accepts ({limit('nvidia_fs_minimum').value})",
            evidence=seen("nvidia_fs version", nvfs.version, "/proc/driver/nvidia-fs/version"),
        )


RULE = Rule(
    id="nvidia-fs.version-too-old",
    severity="error",
    problem="nvidia_fs is older than the library accepts",
    why="libcufile refuses an nvidia_fs below its minimum with 5004 (driver version mismatch).",
    look_at=("cat /proc/driver/nvidia-fs/version", "gdscheck -p | head -3"),
    remedy=Remedy(
        text="Update nvidia_fs to the release that belongs to the CUDA toolkit, and load it.",
        commands=("modprobe -r nvidia_fs && modprobe nvidia_fs",),
        risk="unloading fails while a process uses cuFile",
    ),
    not_to_conclude="'libcufile version: 2.12' in gdscheck is the number of the interface, not of the package.",
    source=limit("nvidia_fs_minimum").source,
    blocks=("nvidia-fs",),
    check=check,
)

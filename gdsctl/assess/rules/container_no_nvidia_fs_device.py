from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    """In a container; outside nvidia-fs.no-device-node tells the same of the host."""
    inside = view.node.container.kind not in (None, "none")
    nvfs = view.node.nvidia_fs
    if inside and nvfs.loaded is True and nvfs.device_nodes == ():
        yield Fail(
            subject="/dev/nvidia-fs*",
            message="the host has nvidia_fs loaded, but the container was not given /dev/nvidia-fs*",
            evidence=seen("/dev/nvidia-fs*", "none", "/dev"),
        )


RULE = Rule(
    id="container.no-nvidia-fs-device",
    severity="critical",
    problem="the container lacks the device nodes of nvidia_fs",
    why="The container sees the host's /proc/driver/nvidia-fs, so libcufile takes the driver for present and then cannot "
    "open it.",
    look_at=("ls -l /dev/nvidia-fs*",),
    remedy=Remedy(
        text="Run with the devices (--device /dev/nvidia-fs0 ... or NVIDIA_GDS=enabled with the container toolkit).",
        risk="the container is started anew",
    ),
    source="NVIDIA container toolkit, internal/discover/gds.go",
    blocks=("nvidia-fs",),
    after=("nvidia-fs.no-device-node",),
    check=check,
)

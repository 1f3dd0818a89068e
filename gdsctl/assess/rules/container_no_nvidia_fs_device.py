from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    """In a container; outside nvidia-fs.no-device-node tells the same of the host, and of nodes that are not known."""
    container, nvfs = view.node.container, view.node.nvidia_fs
    if not view.in_container or nvfs.loaded is not True or nvfs.device_nodes is None:
        return
    given, made = len(nvfs.device_nodes), container.nvidia_fs_nodes
    if given == 0:
        yield Fail(
            subject="/dev/nvidia-fs*",
            message="the host has nvidia_fs loaded, but the container was not given /dev/nvidia-fs*",
            evidence=seen("/dev/nvidia-fs*", "none", "/dev"),
        )
    elif made is not None and given < made:
        yield Fail(
            subject="/dev/nvidia-fs*",
            message=f"the container was given {given} of the {made} nodes of nvidia_fs, and cuFile opens them all",
            evidence=(
                *seen("/dev/nvidia-fs*", ", ".join(nvfs.device_nodes), "/dev"),
                *seen("devcount", made, "/proc/driver/nvidia-fs/devcount"),
            ),
        )


RULE = Rule(
    id="container.no-nvidia-fs-device",
    severity="critical",
    problem="the container lacks the device nodes of nvidia_fs",
    why="The container sees the host's /proc/driver/nvidia-fs, so libcufile takes the driver for present and then cannot "
    "open it. It wants as many as the module made: 16, unless its parameter max_devices says less.",
    look_at=("ls -l /dev/nvidia-fs*", "cat /proc/driver/nvidia-fs/devcount"),
    remedy=Remedy(
        text="Run with all the devices: --device for each, NVIDIA_GDS=enabled with the toolkit's runtime (--runtime nvidia), or "
        "the device plugin with GDS_ENABLED. A node that is only bind-mounted the device cgroup does not let be opened.",
        risk="the container is started anew",
    ),
    source="NVIDIA container toolkit, internal/discover/gds.go; NVIDIA gds-nvidia-fs, src/nvfs-core.c: MAX_NVFS_DEVICES, "
    "max_devices; gVisor nvproxy: cuFile opens all 16",
    blocks=("nvidia-fs",),
    after=("nvidia-fs.no-device-node",),
    check=check,
)

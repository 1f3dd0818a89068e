from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Cannot, Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    nvfs = view.node.nvidia_fs
    if nvfs.loaded is not True:
        return
    if nvfs.device_nodes is None:
        if view.in_container:  # on a host udev makes them
            yield Cannot(
                subject="nvidia_fs",
                fact="whether the container was given /dev/nvidia-fs* is not known",
                settle_with=view.settle("nvidia_fs", "device_nodes", "ls /dev/nvidia-fs*"),
                blocks=("nvidia-fs",),
            )
    elif not nvfs.device_nodes:
        yield Fail(
            subject="nvidia_fs",
            message="nvidia_fs is loaded but /dev/nvidia-fs* are missing",
            evidence=seen("nvidia_fs loaded", "yes", "/proc/driver/nvidia-fs")
            + seen("/dev/nvidia-fs*", "none", "/dev"),
        )


RULE = Rule(
    id="nvidia-fs.no-device-node",
    severity="critical",
    problem="nvidia_fs is loaded but its device nodes are missing",
    why="libcufile believes /proc/driver/nvidia-fs and then cannot open a device: it goes on with file descriptor 0, so "
    "that I/O can fail or hit the wrong file. A node with neither is harmless; this half state is not.",
    look_at=("ls -l /dev/nvidia-fs*", "cat /proc/driver/nvidia-fs/devcount"),
    remedy=Remedy(
        text="In a container: pass the devices in (--device /dev/nvidia-fs0 ..., or the toolkit's gds mode). On a host: "
        "unload and load nvidia_fs, and see that udev runs.",
        commands=("modprobe -r nvidia_fs && modprobe nvidia_fs",),
        risk="unloading fails while a process uses cuFile; a container is started anew",
    ),
    source="NVIDIA/gds-nvidia-fs and libcufile: open of /dev/nvidia-fs<N> after devcount; field reports of descriptor 0",
    blocks=("nvidia-fs", "compat"),
    after=("nvidia-fs.not-loaded",),
    check=check,
)

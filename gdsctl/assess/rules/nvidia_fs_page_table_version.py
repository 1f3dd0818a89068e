from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.kernel_log import events
from gdsctl.assess.rule import Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    event = next(events(view, "page-table-version"), None)
    if event is not None and view.node.nvidia_fs.loaded is True:
        yield Fail(
            subject="nvidia_fs",
            message="nvidia_fs got page tables of another version than it was built for",
            evidence=seen("kernel log", event.text, "dmesg"),
        )


RULE = Rule(
    id="nvidia-fs.page-table-version",
    severity="error",
    problem="nvidia_fs was built for another NVIDIA driver's page tables",
    why="The driver hands out the physical pages of GPU memory in a structure with a version. A module built for another "
    "version refuses it, and some releases end in a kernel BUG with the process stuck.",
    look_at=(
        "dmesg | grep -i 'page table version'",
        "modinfo nvidia_fs | grep version",
        "cat /proc/driver/nvidia/version",
    ),
    remedy=Remedy(
        text="Rebuild nvidia_fs against the NVIDIA driver that is loaded, and load it anew with no cuFile process running.",
        commands=("dkms autoinstall", "modprobe -r nvidia_fs && modprobe nvidia_fs"),
        risk="after a kernel BUG the module cannot be removed: the node has to be booted anew",
    ),
    not_to_conclude="The line may be of an earlier module: one that was loaded since has said 'Initializing' after it.",
    source="nvidia-fs src/nvfs-mmap.c; GDS Release Notes",
    after=("version.mismatch",),
    check=check,
)

from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Cannot, Fail, Rule, Scope, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    for storage in () if view.gpuless else view.storages:
        if not (storage.takes_nvidia_fs or storage.takes_p2pdma) or not storage.mount.device:
            continue
        stack = view.stack(storage.mount.device)
        marked = [block.name for block in stack if block.integrity]
        # a kernel without integrity support has no such file, and that is no gap
        dark = [block.name for block in stack if block.integrity is None and view.gap("block", "integrity", block.name)]
        if marked:
            yield Fail(
                subject=storage.mount.target,
                message=f"{', '.join(marked)} under {storage.mount.target} is formatted for integrity metadata",
                evidence=tuple(
                    e for name in marked for e in seen("device_is_integrity_capable", 1, f"/sys/block/{name}/integrity")
                ),
                scope=Scope(mounts=frozenset({storage.mount.target})),
            )
        elif dark:
            yield Cannot(
                subject=storage.mount.target,
                fact=f"whether {', '.join(dark)} is formatted for integrity metadata is not known",
                settle_with="cat /sys/block/nvme*/integrity/device_is_integrity_capable",
                scope=Scope(mounts=frozenset({storage.mount.target})),
            )


RULE = Rule(
    id="nvme.integrity-capable",
    severity="error",
    problem="the drive is formatted with protection information",
    why="libcufile refuses the direct route to a device whose device_is_integrity_capable is 1: the CPU would have to see "
    "the bytes to check them.",
    look_at=(
        "cat /sys/block/nvme*/integrity/device_is_integrity_capable",
        "nvme id-ns /dev/nvme0n1 -H | grep -A2 'LBA Format'",
    ),
    remedy=Remedy(
        text="Format the namespace to an LBA format without metadata. THIS ERASES THE DRIVE; gdsctl gives no command for it.",
        risk="all data on the namespace is lost",
    ),
    source="GDS Troubleshooting Guide, 'integrity check capability'; libcufile log text",
    blocks=("nvidia-fs", "p2pdma", "c2c"),
    check=check,
)

from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Scope, Verdict, seen, some
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    """One finding for all: a system installed on LVM has many such mounts."""
    layers: dict[str, None] = {}
    targets: dict[str, None] = {}
    for mount in view.mounts:
        found = [block.name for block in view.stack(mount.device) if block.kind == "dm"] if mount.device else []
        if found or mount.backing.kind == "dm":
            targets[mount.target] = None
            layers.update(dict.fromkeys(found))
    if targets and not view.gpuless:
        yield Fail(
            subject=", ".join(targets),
            message=f"on device-mapper (LVM, LUKS or multipath): {some(tuple(targets))}",
            evidence=seen("layers", ", ".join(layers) or "device-mapper", "/sys/class/block"),
            scope=Scope(mounts=frozenset(targets)),
        )


RULE = Rule(
    id="fs.device-mapper",
    severity="warning",
    problem="the file system is on device-mapper",
    why="cuFile has no direct route through LVM, LUKS or dm-multipath: it cannot tell where a block lies, and encrypted "
    "bytes have to pass the CPU.",
    look_at=("lsblk -o NAME,TYPE,FSTYPE,MOUNTPOINTS",),
    remedy=Remedy(
        text="Use a plain partition, a whole drive, or md RAID0.", risk="moving a file system means copying its data"
    ),
    source="GDS Release Notes, supported block devices; libcufile log text 'dm-0'",
    blocks=("nvidia-fs", "p2pdma", "c2c"),
    check=check,
)

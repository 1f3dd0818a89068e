from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Cannot, Fail, Rule, Scope, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.data.limits import numbers
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    for storage in view.storages:
        if storage.mount.backing.kind != "md" or storage.target is None:
            continue
        target = storage.mount.target
        scope = Scope(mounts=frozenset({target}))
        since = storage.target.nvidia_fs_since
        if storage.md_level is None:
            yield Cannot(
                subject=target,
                fact=f"the RAID level under {target} is not known",
                settle_with="cat /proc/mdstat",
                scope=scope,
            )
        elif storage.target.nvidia_fs == "no":
            yield Fail(
                subject=target,
                message=f"{target} is on md {storage.md_level}, which cuFile does not take",
                evidence=seen("level", storage.md_level, "/sys/class/block/md*/md/level"),
                scope=scope,
            )
        elif since and numbers(since) > (1, 0) and view.version is None:
            yield Cannot(
                subject=target,
                fact=f"which GDS release this is; cuFile takes md {storage.md_level} from {since} on",
                settle_with=view.settle("gds", "version", "gdscheck -v"),
                scope=scope,
            )
        elif since and view.version and numbers(view.version) < numbers(since):
            yield Fail(
                subject=target,
                message=f"{target} is on md {storage.md_level}, which cuFile takes from {since} on; this is {view.version}",
                evidence=seen("level", storage.md_level, "/sys/class/block/md*/md/level")
                + seen("GDS", view.version, "libcufile"),
                scope=scope,
            )


RULE = Rule(
    id="fs.md-level",
    severity="error",
    problem="the md RAID level is not supported",
    why="cuFile splits I/O over the members of RAID0 itself; RAID1 and RAID10 came with GDS 1.19, and levels with parity "
    "need the CPU.",
    look_at=("cat /proc/mdstat", "grep 'RAID level not supported' cufile.log"),
    remedy=Remedy(
        text="Use RAID0, or single drives.",
        risk="changing the level means making the array anew: all data on it is lost",
    ),
    source="GDS Release Notes 1.19; libcufile log text 'RAID level not supported by cuFile'",
    blocks=("nvidia-fs", "p2pdma", "c2c"),
    check=check,
)

from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Scope, Verdict, seen, some
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    mounts = [mount for mount in view.mounts if mount.backing.kind == "tmpfs"]
    if mounts and not view.gpuless:
        yield Fail(
            subject=", ".join(mount.target for mount in mounts),
            message=f"files are in host memory at {some([mount.target for mount in mounts])}",
            evidence=tuple(e for m in mounts for e in seen(m.target, m.fstype, "/proc/self/mountinfo")),
            scope=Scope(mounts=frozenset(mount.target for mount in mounts)),
        )


RULE = Rule(
    id="fs.tmpfs",
    severity="info",
    problem="the path is in host memory",
    why="tmpfs and ramfs have no storage below them; from 1.16 on cuFile takes them in compat mode, before it refuses them.",
    look_at=("findmnt -T PATH",),
    remedy=Remedy(text="Use a file system on a drive or a supported network file system."),
    source="GDS 1.16 Release Notes; libcufile 1.14 refuses tmpfs with 5030, 1.20 registers it",
    blocks=("nvidia-fs", "p2pdma", "c2c", "rdma"),
    check=check,
)

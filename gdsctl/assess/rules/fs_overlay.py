from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Scope, Verdict, seen, some
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    """At a container's `/` one is normal: whether the data lie on it container.no-data-volume tells."""
    mounts = [mount for mount in view.mounts if mount.backing.kind == "overlay"]
    normal = view.in_container and all(mount.target == "/" for mount in mounts)
    if mounts and not view.gpuless:
        yield Fail(
            subject=", ".join(mount.target for mount in mounts),
            message=f"on an overlay, where cuFile finds no device: {some([mount.target for mount in mounts])}",
            evidence=tuple(e for m in mounts for e in seen(m.target, m.fstype, "/proc/self/mountinfo")),
            scope=Scope(mounts=frozenset(mount.target for mount in mounts)),
            severity="info" if normal else None,
        )


RULE = Rule(
    id="fs.overlay",
    severity="warning",
    otherwise={"info": "for a container's root, whose data lie on volumes"},
    problem="the path is on an overlay file system",
    why="An overlay has no device of its own (major number 0), so that there is nothing to go direct to; in a container "
    "every path that is not a volume is one.",
    look_at=("findmnt -T PATH", "grep 'dev_no: 0:' cufile.log"),
    remedy=Remedy(
        text="Put the data on a volume: bind-mount a directory of ext4, xfs or a supported network file system.",
        risk="a container is started anew for a volume",
    ),
    not_to_conclude="The file system is not broken.",
    source="GDS 1.16 Release Notes, compat-only file systems",
    blocks=("nvidia-fs", "p2pdma", "c2c", "rdma"),
    check=check,
)

from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Scope, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    for storage in view.storages:
        mount = storage.mount
        if mount.backing.kind == "nfs" and storage.over_tcp:
            yield Fail(
                subject=mount.target,
                message=f"{mount.target} is NFS over TCP",
                evidence=seen("options", ",".join(mount.options), "/proc/self/mountinfo"),
                scope=Scope(mounts=frozenset({mount.target})),
            )


RULE = Rule(
    id="nfs.tcp",
    severity="error",
    problem="NFS is mounted over TCP",
    why="Over TCP every byte passes the CPU and host memory: only RDMA can place it in the GPU.",
    look_at=("grep nfs /proc/mounts", "grep xprt /proc/self/mountstats"),
    remedy=Remedy(
        text="Mount with proto=rdma,port=20049,vers=3 (gdsctl plan --emit mount), if the server offers NFS over RDMA.",
        risk="unmounting needs every user of the mount to stop",
    ),
    source="GDS Troubleshooting Guide, 'NFS over RDMA'",
    blocks=("nvidia-fs",),
    check=check,
)

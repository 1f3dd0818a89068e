from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Cannot, Fail, Rule, Scope, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy
from gdsctl.model.shell import quoted


def check(view: View) -> Iterator[Verdict]:
    for storage in () if view.gpuless else view.storages:
        mount = storage.mount
        if mount.backing.kind != "nfs":
            continue
        if mount.backing.transport is None:
            yield Cannot(
                subject=mount.target,
                fact=f"whether {mount.target} runs over RDMA or TCP is not known",
                settle_with=f"grep -A20 {quoted(mount.target)} /proc/self/mountstats | grep xprt",
                scope=Scope(mounts=frozenset({mount.target})),
            )
        elif mount.backing.transport != "rdma":
            yield Fail(
                subject=mount.target,
                message=f"{mount.target} is NFS over {mount.backing.transport.upper()}",
                evidence=seen("options", ",".join(mount.options), "/proc/self/mountinfo"),
                scope=Scope(mounts=frozenset({mount.target})),
            )


RULE = Rule(
    id="nfs.tcp",
    severity="warning",
    problem="NFS is mounted over TCP",
    why="Over TCP every byte passes the CPU and host memory: only RDMA can place it in the GPU.",
    look_at=("grep nfs /proc/mounts", "grep xprt /proc/self/mountstats"),
    remedy=Remedy(
        text="Mount with proto=rdma,port=20049,vers=3 (gdsctl plan --emit mount), if the server offers NFS over RDMA.",
        risk="unmounting needs every user of the mount to stop",
    ),
    not_to_conclude="A home directory may stay on TCP: only data that GPUs read gains.",
    source="GDS Troubleshooting Guide, 'NFS over RDMA'",
    blocks=("nvidia-fs",),
    check=check,
)

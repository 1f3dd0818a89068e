from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Scope, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.data.nfs_ports import misplaced
from gdsctl.model.judgement import Remedy
from gdsctl.parse import nfs_options


def check(view: View) -> Iterator[Verdict]:
    for storage in view.storages:
        mount = storage.mount
        if mount.backing.kind != "nfs":
            continue
        options = nfs_options.parse(",".join(mount.options))
        wrong = misplaced(options.proto, options.port)
        if wrong is not None:
            words, severity = wrong
            yield Fail(
                subject=mount.target,
                message=f"{mount.target} uses {words}",
                evidence=seen("port", options.port, "mount options"),
                scope=Scope(mounts=frozenset({mount.target})),
                severity=severity,
            )


RULE = Rule(
    id="nfs.port",
    severity="warning",
    otherwise={"error": "for port 2009"},
    problem="the NFS port is not the one of NFS over RDMA",
    why="NFS over RDMA listens at 20049, NFS over TCP at 2049; 2009 is neither.",
    look_at=("grep nfs /proc/mounts", "cat /etc/fstab"),
    remedy=Remedy(text="Mount with port=20049 where proto=rdma."),
    not_to_conclude="A server may have been told to listen elsewhere; then the mount works.",
    source="IANA service names, nfsrdma 20049; VAST NFS client documentation",
    check=check,
)

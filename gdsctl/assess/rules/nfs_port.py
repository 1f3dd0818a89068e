from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Scope, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy
from gdsctl.parse import nfs_options

RDMA_PORT = 20049
"""IANA's nfsrdma; NFS over TCP has 2049."""


def check(view: View) -> Iterator[Verdict]:
    for storage in view.storages:
        mount = storage.mount
        if mount.backing.kind != "nfs":
            continue
        options = nfs_options.parse(",".join(mount.options))
        if options.port in (None, 0):
            continue
        typing_error = options.port == 2009
        if typing_error or (options.proto == "rdma" and options.port != RDMA_PORT):
            yield Fail(
                subject=mount.target,
                message=f"{mount.target} uses port {options.port}"
                + (", a slip for 20049 (RDMA) or 2049 (TCP)" if typing_error else "; NFS over RDMA is at 20049"),
                evidence=seen("port", options.port, "mount options"),
                scope=Scope(mounts=frozenset({mount.target})),
                severity="error" if typing_error else "warning",
            )


RULE = Rule(
    id="nfs.port",
    severity="warning",
    problem="the NFS port is not the one of NFS over RDMA",
    why="NFS over RDMA listens at 20049, NFS over TCP at 2049; 2009 is neither.",
    look_at=("grep nfs /proc/mounts", "cat /etc/fstab"),
    remedy=Remedy(text="Mount with port=20049 where proto=rdma."),
    not_to_conclude="A server may have been told to listen elsewhere; then the mount works.",
    source="IANA service names, nfsrdma 20049; VAST NFS client documentation",
    check=check,
)

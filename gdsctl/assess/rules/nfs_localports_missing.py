from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Scope, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy
from gdsctl.parse import nfs_options


def check(view: View) -> Iterator[Verdict]:
    for storage in view.storages:
        mount = storage.mount
        if mount.backing.kind != "nfs" or mount.backing.transport != "rdma":
            continue
        options = nfs_options.parse(",".join(mount.options))
        nics = view.nics(mount)
        if options.remoteports and not options.localports and len(nics) > 1:
            yield Fail(
                subject=mount.target,
                message=f"{mount.target} spreads over remoteports but not over this node's {len(nics)} NICs (no localports)",
                evidence=seen("options", ",".join(mount.options), "/proc/self/mountinfo"),
                scope=Scope(mounts=frozenset({mount.target})),
            )


RULE = Rule(
    id="nfs.localports-missing",
    severity="warning",
    problem="a multi-NIC VAST mount has no localports",
    why="localports tells the client which of this node's addresses to connect from; with it the transport can choose the "
    "NIC near the GPU, without it all connections may leave by one NIC.",
    look_at=("grep nfs /proc/mounts", "ip -4 addr"),
    remedy=Remedy(text="Mount with localports= the IPv4 addresses of the storage NICs (gdsctl plan --emit mount)."),
    source="VAST NFS client documentation, multipathing and GPUDirect Storage",
    check=check,
)

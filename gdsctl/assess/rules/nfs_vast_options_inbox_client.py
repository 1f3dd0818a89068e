from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Scope, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy
from gdsctl.parse import nfs_options


def check(view: View) -> Iterator[Verdict]:
    """Options of the VAST client in a mount while the rpcrdma in use is certain to be the kernel's own."""
    hook = view.node.nvfs_hooks.get("rpcrdma")
    rpcrdma = view.node.modules.get("rpcrdma")
    inbox = hook is not None and hook.state == "stock" and rpcrdma is not None and not rpcrdma.version
    for storage in view.storages:
        mount = storage.mount
        if mount.backing.kind == "nfs" and inbox and nfs_options.parse(",".join(mount.options)).vast:
            yield Fail(
                subject=mount.target,
                message=f"{mount.target} has options of the VAST client, but rpcrdma is the kernel's own",
                evidence=seen("options", ",".join(mount.options), "/proc/self/mountinfo")
                + seen("rpcrdma hooks", "stock", "/proc/kallsyms"),
                scope=Scope(mounts=frozenset({mount.target})),
            )


RULE = Rule(
    id="nfs.vast-options-inbox-client",
    severity="warning",
    problem="VAST's mount options meet the kernel's own NFS client",
    why="localports, remoteports and spread_* belong to the VAST NFS client; the kernel's client refuses them, and without "
    "the VAST client there are no nvidia-fs hooks either.",
    look_at=("vastnfs-ctl status", "modinfo sunrpc | grep -E 'filename|version'", "grep nfs /proc/mounts"),
    remedy=Remedy(
        text="Install the VAST NFS client, built for the running kernel and RDMA stack, and reload it.",
        risk="all NFS mounts must be unmounted",
    ),
    source="VAST NFS client documentation, mount options",
    after=("rpcrdma.unpatched",),
    check=check,
)

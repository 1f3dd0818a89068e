from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Scope, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    hook = view.node.nvfs_hooks.get("rpcrdma")
    if hook is not None and hook.registered:
        return  # it was loaded since
    mounts = frozenset(storage.mount.target for storage in view.storages_with_hook("rpcrdma"))
    for line in view.node.platform.kernel_log or ():
        if "rpcrdma" in line and ("GPL-only" in line or "non-GPL" in line):
            yield Fail(
                subject="rpcrdma",
                message="the kernel refused rpcrdma because of a licence-bound symbol",
                evidence=seen("kernel log", line, "dmesg"),
                scope=Scope(mounts=mounts),
            )
            return


RULE = Rule(
    id="rpcrdma.non-gpl-symbol",
    severity="error",
    problem="rpcrdma was refused because of a symbol's licence",
    why="nvidia_fs asks the kernel for rpcrdma's hooks by name. Kernels from 6.6 on (and stable ones) hand out only symbols "
    "that are exported to GPL modules; an rpcrdma that exports its hooks to all is refused, and NFS does not go direct.",
    look_at=("dmesg | grep rpcrdma", "modinfo -F license rpcrdma nvidia_fs nvidia"),
    remedy=Remedy(
        text="Take an rpcrdma that exports its hooks with EXPORT_SYMBOL_GPL: a newer VAST NFS client or DOCA-OFED.",
        risk="all NFS over RDMA mounts must be unmounted",
    ),
    source="Linux kernel/module/main.c, __symbol_get(); field reports with MLNX_OFED's nfsrdma",
    blocks=("nvidia-fs",),
    after=("nvidia-fs.proprietary-driver",),
    check=check,
)

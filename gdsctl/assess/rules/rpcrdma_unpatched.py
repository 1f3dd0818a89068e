from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.hooks import unpatched
from gdsctl.assess.rule import Rule, Verdict
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    yield from unpatched(view, "rpcrdma")


RULE = Rule(
    id="rpcrdma.unpatched",
    severity="error",
    problem="the module rpcrdma has no nvidia-fs hooks",
    why="nvidia_fs can map GPU memory for NFS over RDMA only through functions that rpcrdma exports when it is built for GDS; "
    "the stock module exports none, and every file falls back to compat mode.",
    look_at=(
        "grep nvfs_dma_ops /proc/kallsyms",
        "cat /proc/driver/nvidia-fs/modules",
        "modinfo rpcrdma | grep -E 'filename|version'",
    ),
    remedy=Remedy(
        text="Use an rpcrdma with the hooks: the VAST NFS client built for GDS, or mlnx-nfsrdma of DOCA-OFED/MLNX_OFED.",
        risk="all NFS over RDMA mounts must be unmounted while sunrpc and rpcrdma are exchanged",
    ),
    source="NVIDIA/gds-nvidia-fs src/nvfs-dma.c; GDS Troubleshooting Guide, the chapter on NFS over RDMA",
    blocks=("nvidia-fs",),
    after=("nvidia-fs.not-loaded",),
    check=check,
)

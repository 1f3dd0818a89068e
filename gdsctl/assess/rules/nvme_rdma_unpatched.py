from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.hooks import unpatched
from gdsctl.assess.rule import Rule, Verdict
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    yield from unpatched(view, "nvme_rdma")


RULE = Rule(
    id="nvme-rdma.unpatched",
    severity="error",
    problem="the module nvme_rdma has no nvidia-fs hooks",
    why="nvidia_fs can map GPU memory for NVMe over RDMA only through functions that nvme_rdma exports when it is built for GDS; "
    "the stock module exports none, and every file falls back to compat mode.",
    look_at=(
        "grep nvfs_dma_ops /proc/kallsyms",
        "cat /proc/driver/nvidia-fs/modules",
        "modinfo nvme_rdma | grep -E 'filename|version'",
    ),
    remedy=Remedy(
        text="Use the nvme_rdma of DOCA-OFED or MLNX_OFED (mlnx-nvme), installed with its GDS option.",
        needs_reboot=True,
        risk="replaces the driver of the fabrics drives: unmount them first",
    ),
    source="NVIDIA/gds-nvidia-fs src/nvfs-dma.c; GDS Troubleshooting Guide, the chapter on NVMe over RDMA",
    blocks=("nvidia-fs",),
    after=("nvidia-fs.not-loaded",),
    check=check,
)

from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.hooks import unpatched
from gdsctl.assess.rule import Rule, Verdict
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    yield from unpatched(view, "beegfs")


RULE = Rule(
    id="beegfs.unpatched",
    severity="error",
    problem="the module beegfs has no nvidia-fs hooks",
    why="nvidia_fs can map GPU memory for BeeGFS only through functions that beegfs exports when it is built for GDS; "
    "the stock module exports none, and every file falls back to compat mode.",
    look_at=(
        "grep nvfs_dma_ops /proc/kallsyms",
        "cat /proc/driver/nvidia-fs/modules",
        "modinfo beegfs | grep -E 'filename|version'",
    ),
    remedy=Remedy(
        text="Build the BeeGFS client (7.3.0 or newer) with OFED_INCLUDE_PATH and NVFS_H_PATH set (from 7.4.3 on NVFS_INCLUDE_PATH "
        "and NVIDIA_INCLUDE_PATH).",
        risk="the file system must be unmounted while its client is rebuilt",
    ),
    source="NVIDIA/gds-nvidia-fs src/nvfs-dma.c; GDS Troubleshooting Guide, the chapter on BeeGFS",
    blocks=("nvidia-fs",),
    after=("nvidia-fs.not-loaded",),
    check=check,
)

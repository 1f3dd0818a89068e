from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.hooks import unpatched
from gdsctl.assess.rule import Rule, Verdict
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    yield from unpatched(view, "scatefs")


RULE = Rule(
    id="scatefs.unpatched",
    severity="error",
    problem="the module scatefs has no nvidia-fs hooks",
    why="nvidia_fs can map GPU memory for ScaTeFS only through functions that scatefs exports when it is built for GDS; "
    "the stock module exports none, and every file falls back to compat mode.",
    look_at=(
        "grep nvfs_dma_ops /proc/kallsyms",
        "cat /proc/driver/nvidia-fs/modules",
        "modinfo scatefs | grep -E 'filename|version'",
    ),
    remedy=Remedy(
        text="Install the ScaTeFS client that NEC builds for GPUDirect Storage, and nvidia_fs 2.25.6 or newer.",
        risk="the file system must be unmounted while its client is exchanged",
    ),
    source="NVIDIA/gds-nvidia-fs src/nvfs-dma.c; GDS 1.14 Release Notes, ScaTeFS",
    blocks=("nvidia-fs",),
    after=("nvidia-fs.not-loaded",),
    check=check,
)

from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.hooks import unpatched
from gdsctl.assess.rule import Rule, Verdict
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    yield from unpatched(view, "lnet")


RULE = Rule(
    id="lnet.unpatched",
    severity="error",
    problem="the module lnet has no nvidia-fs hooks",
    why="nvidia_fs can map GPU memory for Lustre only through functions that lnet exports when it is built for GDS; "
    "the stock module exports none, and every file falls back to compat mode.",
    look_at=(
        "grep nvfs_dma_ops /proc/kallsyms",
        "cat /proc/driver/nvidia-fs/modules",
        "modinfo lnet | grep -E 'filename|version'",
    ),
    remedy=Remedy(
        text="Install a Lustre client that is built with GDS support (2.15, or EXAScaler's 2.12.3_ddn28 and newer).",
        risk="the file system must be unmounted while its client is exchanged",
    ),
    source="NVIDIA/gds-nvidia-fs src/nvfs-dma.c; GDS Troubleshooting Guide, the chapter on Lustre",
    blocks=("nvidia-fs",),
    after=("nvidia-fs.not-loaded",),
    check=check,
)

from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess import p2pdma
from gdsctl.assess.rule import Cannot, Fail, Rule, Scope, Verdict, seen
from gdsctl.assess.view import View, gpu_key
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    if p2pdma.scope(view) is None:
        return
    for gpu in view.gpus:
        row = p2pdma.model(view, gpu)
        name = gpu.name or gpu_key(gpu)
        scope = Scope(gpus=frozenset({gpu_key(gpu)}))
        if row is not None and (row.p2pdma_listed or row.c2c):
            continue
        if row is not None and (row.kind in ("geforce", "integrated", "vgpu") or not row.static_bar1):
            yield Fail(
                subject=gpu_key(gpu),
                message=f"{name} cannot offer its memory for P2PDMA",
                evidence=seen("GPU", f"{row.name} ({row.kind})", row.source),
                scope=scope,
            )
        else:
            yield Cannot(
                subject=gpu_key(gpu),
                fact=f"{name} is not on NVIDIA's list of GPUs for P2PDMA",
                settle_with="gdscheck -p",
                scope=scope,
            )


RULE = Rule(
    id="p2pdma.gpu-unsupported",
    severity="error",
    problem="the GPU cannot do P2PDMA",
    why="The driver maps a GPU's whole memory at BAR1 only on data-centre GPUs that NVIDIA names; others never get the "
    "pages that a drive could write to.",
    look_at=("nvidia-smi -L", "ls /sys/bus/pci/devices/*/p2pmem"),
    remedy=Remedy(
        text="Use nvidia-fs for this GPU, or a GPU of NVIDIA's list (A100, A40, L4, L40S, H100, H200, B100, B200, B300)."
    ),
    not_to_conclude="A GPU that is not on the list may still work; the list is what NVIDIA tests.",
    source="GDS Troubleshooting Guide, 'GPUs that support P2PDMA'",
    blocks=("p2pdma",),
    check=check,
)

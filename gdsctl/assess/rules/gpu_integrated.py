from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess import p2pdma
from gdsctl.assess.rule import Fail, Rule, Scope, Verdict, seen
from gdsctl.assess.view import View, gpu_key
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    for gpu in view.gpus:
        row = p2pdma.model(view, gpu)
        if gpu.kind == "integrated" or (row is not None and row.kind == "integrated"):
            yield Fail(
                subject=gpu_key(gpu),
                message=f"GPU {gpu.index} ({gpu.name or 'integrated'}) shares the CPU's memory: compat mode only",
                evidence=seen("GPU", gpu.name or "integrated", row.source if row else "NVML"),
                scope=Scope(gpus=frozenset({gpu_key(gpu)})),
            )


RULE = Rule(
    id="gpu.integrated",
    severity="info",
    problem="the GPU has no memory of its own",
    why="On an integrated GPU host memory is GPU memory: there is nothing to go around, and no PCIe BAR to send bytes to.",
    look_at=("nvidia-smi -L",),
    remedy=Remedy(text="Leave GDS aside on this machine; do not load nvidia-fs on DGX Spark."),
    source="GDS Release Notes, DGX Spark",
    blocks=("nvidia-fs", "p2pdma", "c2c", "rdma"),
    check=check,
)

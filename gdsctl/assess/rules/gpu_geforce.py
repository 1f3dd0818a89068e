from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess import p2pdma
from gdsctl.assess.rule import Fail, Rule, Scope, Verdict, seen
from gdsctl.assess.view import View, gpu_key
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    for gpu in view.gpus:
        row = p2pdma.model(view, gpu)
        if gpu.kind == "geforce" or (row is not None and row.kind == "geforce"):
            yield Fail(
                subject=gpu_key(gpu),
                message=f"GPU {gpu.index} ({gpu.name or 'GeForce'}) is a GeForce: compat mode only",
                evidence=seen("GPU", gpu.name or "GeForce", row.source if row else "NVML"),
                scope=Scope(gpus=frozenset({gpu_key(gpu)})),
            )


RULE = Rule(
    id="gpu.geforce",
    severity="error",
    problem="the GPU is a GeForce",
    why="The driver pins GPU memory for other devices only on data-centre and professional GPUs; on GeForce the call "
    "fails with -22 and cuFile stays in compat mode, although gdscheck may say that the GPU supports GDS.",
    look_at=("nvidia-smi -L", "dmesg | grep -i get_pages"),
    remedy=Remedy(text="Use a data-centre or professional GPU, or accept compat mode."),
    source="NVIDIA GPUDirect RDMA documentation, 'Supported systems'; GDS Release Notes, supported GPUs",
    not_to_conclude="Compat mode works on it.",
    blocks=("nvidia-fs", "p2pdma", "c2c", "rdma"),
    check=check,
)

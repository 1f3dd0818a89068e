from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess import p2pdma
from gdsctl.assess.rule import Cannot, Fail, Rule, Scope, Verdict, seen
from gdsctl.assess.view import View, gpu_key
from gdsctl.data.limits import below, numbers
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    recent = None if view.version is None else numbers(view.version)[:2] >= (1, 15)
    for gpu in view.gpus:
        row = p2pdma.model(view, gpu)
        capability = gpu.compute_capability or (row.compute_capability if row else None)
        scope = Scope(gpus=frozenset({gpu_key(gpu)}))
        if "geforce" in (gpu.kind, row and row.kind) or "integrated" in (gpu.kind, row and row.kind):
            continue  # compat mode only, whatever the capability
        if capability is None:
            yield Cannot(
                subject=gpu_key(gpu),
                fact=f"the compute capability of GPU {gpu.index} is not known",
                settle_with="nvidia-smi --query-gpu=name,compute_cap --format=csv",
                scope=scope,
            )
        elif (
            recent is None
            and below(capability, "compute_capability_from_1_15")
            and not below(capability, "compute_capability")
        ):
            yield Cannot(
                subject=gpu_key(gpu),
                fact=f"which GDS release this is; from 1.15 on it does not take GPU {gpu.index} (compute capability {capability})",
                settle_with=view.settle("gds", "version", "gdscheck -v"),
                scope=scope,
            )
        elif below(capability, "compute_capability_from_1_15" if recent else "compute_capability"):
            yield Fail(
                subject=gpu_key(gpu),
                message=f"GPU {gpu.index} ({gpu.name or 'unnamed'}) has compute capability {capability}, too old for GDS",
                evidence=seen(
                    "compute capability", capability, "NVML" if gpu.compute_capability else (row.source if row else "")
                ),
                scope=scope,
            )


RULE = Rule(
    id="gpu.compute-capability",
    severity="error",
    problem="the GPU is too old for GDS",
    why="libcufile takes GPUs of compute capability 6 and above, releases from 1.15 on only from Turing on; older ones do "
    "not go direct, and a node with no other GPU fails with 5007.",
    look_at=("nvidia-smi --query-gpu=name,compute_cap --format=csv",),
    remedy=Remedy(text="Use a newer GPU, or compat mode with an older GDS release."),
    source="libcufile 1.20 log text 'arch=N(needs >=6)'; GDS 1.15 Release Notes",
    blocks=("nvidia-fs", "p2pdma", "c2c", "rdma"),
    check=check,
)

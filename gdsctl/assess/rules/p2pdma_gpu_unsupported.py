from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess import p2pdma
from gdsctl.assess.rule import Cannot, Fail, Rule, Scope, Verdict, seen
from gdsctl.assess.view import View, gpu_key
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    wanted = p2pdma.scope(view)
    if wanted is None:
        return
    on_arm = view.node.platform.arch == "aarch64"
    for gpu in view.gpus:
        row = p2pdma.model(view, gpu)
        name = gpu.name or gpu_key(gpu)
        scope = Scope(gpus=frozenset({gpu_key(gpu)}), mounts=wanted.mounts)
        coherent = gpu.c2c if gpu.c2c is not None else row.c2c if row is not None else None
        if coherent or (not on_arm and row is not None and row.p2pdma_listed):
            continue
        if on_arm and coherent is False:
            yield Fail(
                subject=gpu_key(gpu),
                message=f"{name} hangs on PCIe, and on ARM only GPUs on NVLink-C2C offer their memory",
                evidence=seen("C2C", "no", "NVML or GPU model"),
                scope=scope,
            )
        elif row is not None and (row.kind in ("geforce", "integrated", "vgpu") or not row.static_bar1):
            yield Fail(
                subject=gpu_key(gpu),
                message=f"{name} cannot offer its memory for P2PDMA",
                evidence=seen("GPU", f"{row.name} ({row.kind})", row.source),
                scope=scope,
            )
        elif not _proven(view):
            yield Cannot(
                subject=gpu_key(gpu),
                fact=f"{name} is not on NVIDIA's list of GPUs for P2PDMA, so whether it does it is not known",
                settle_with="gdscheck -p | grep NVMe",
                scope=scope,
            )


def _proven(view: View) -> bool:
    """Libcufile asks CUDA for peer-to-peer addresses of every GPU before it offers P2PDMA, and gdscheck shows what it offers."""
    row = ((view.node.gds.gdscheck or {}).get("drivers") or {}).get("NVMe")
    return isinstance(row, dict) and not {"p2pdma", "c2c"}.isdisjoint(row.get("modes") or ())


RULE = Rule(
    id="p2pdma.gpu-unsupported",
    severity="error",
    problem="the GPU cannot do P2PDMA",
    why="The driver maps a GPU's whole memory at BAR1 only on data-centre GPUs that NVIDIA names; others never get the "
    "pages that a drive could write to.",
    look_at=("nvidia-smi -L", "gdscheck -p | grep NVMe", "cat /sys/bus/pci/devices/*/p2pmem/size"),
    remedy=Remedy(
        text="Use nvidia-fs for this GPU, or a GPU of NVIDIA's list (A100, A40, L4, L40S, H100, H200, B100, B200, B300)."
    ),
    not_to_conclude="A GPU that is not on the list may still work; the list is what NVIDIA tests. A GPU's p2pmem/size that "
    "equals its BAR1 is proof; that p2pmem is missing proves nothing, since it appears with the first CUDA program.",
    source="GDS Troubleshooting Guide, 'GPUs that support P2PDMA'; open-gpu-kernel-modules, kernel-open/nvidia-uvm/uvm_pmm_gpu.c",
    blocks=("p2pdma", "c2c"),
    check=check,
)

from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess import p2pdma
from gdsctl.assess.rule import Cannot, Fail, Rule, Scope, Verdict, seen
from gdsctl.assess.view import View, gpu_key
from gdsctl.data.limits import limit
from gdsctl.model.judgement import Remedy

_MIB = 1 << 20


def check(view: View) -> Iterator[Verdict]:
    p2pdma_on = p2pdma.scope(view)
    forced = (view.node.nvidia_driver.registry_dwords or {}).get("RMForceStaticBar1") in ("1", "0x1")
    for gpu in view.gpus:
        if gpu.c2c or gpu.kind in ("geforce", "integrated"):
            continue
        if p2pdma_on and not forced and None in (gpu.bar1_bytes, gpu.memory_bytes):
            # with RMForceStaticBar1=1 a GPU whose BAR1 does not suffice would not have come up
            yield Cannot(
                subject=gpu_key(gpu),
                fact=f"whether BAR1 of GPU {gpu.index} covers its memory is not known",
                settle_with="nvidia-smi -q -d MEMORY",
                scope=Scope(gpus=frozenset({gpu_key(gpu)}), mounts=p2pdma_on.mounts),
            )
        if gpu.bar1_bytes is None:
            continue
        scope = Scope(gpus=frozenset({gpu_key(gpu)}))
        size = f"{gpu.bar1_bytes // _MIB} MiB"
        if p2pdma_on and gpu.memory_bytes and gpu.bar1_bytes < gpu.memory_bytes:
            yield Fail(
                subject=gpu_key(gpu),
                message=f"BAR1 of GPU {gpu.index} is {size}, smaller than its memory: P2PDMA needs all of it mapped",
                evidence=seen("BAR1", size, "NVML or sysfs resource"),
                scope=scope,
                severity="error",
            )
        elif gpu.bar1_bytes <= int(limit("bar1_small_bytes").value):
            yield Fail(
                subject=gpu_key(gpu),
                message=f"BAR1 of GPU {gpu.index} is only {size}",
                evidence=seen("BAR1", size, "NVML or sysfs resource"),
                scope=scope,
                blocks=(),
            )


RULE = Rule(
    id="gpu.bar1-small",
    severity="warning",
    otherwise={"error": "where P2PDMA is wanted and BAR1 is smaller than the GPU's memory"},
    problem="the GPU's BAR1 is small",
    why="Every buffer that goes direct is pinned in BAR1; with 256 MiB a few large buffers fill it, and registration fails "
    "with ENOMEM. P2PDMA maps the whole memory there.",
    look_at=("nvidia-smi -q -d MEMORY | grep -A3 BAR1", "lspci -vv -d 10de: | grep 'Region 1'"),
    remedy=Remedy(
        text="Switch on resizable BAR and 'above 4G decoding' in the firmware, or NVIDIA's display mode selector on "
        "workstation cards; or keep registered buffers small.",
        needs_reboot=True,
        risk="old firmware may fail to boot with large BARs",
    ),
    not_to_conclude="The GPU is not unsupported: smaller I/O goes direct.",
    source="GDS Troubleshooting Guide, 'BAR1 memory'; GDS Best Practices Guide, buffer registration",
    blocks=("p2pdma",),
    check=check,
)

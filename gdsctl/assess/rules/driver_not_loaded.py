from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Cannot, Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    if not view.gpus:
        return
    module = view.node.modules.get("nvidia")
    if view.node.nvidia_driver.version is not None or (module is not None and module.loaded is True):
        return
    if module is None or module.loaded is None:
        yield Cannot(
            subject="nvidia",
            fact="whether the NVIDIA driver is loaded is not known",
            settle_with=view.settle("modules", "loaded", "cat /proc/driver/nvidia/version", key="nvidia"),
        )
        return
    yield Fail(
        subject="nvidia",
        message="the NVIDIA driver is not loaded",
        evidence=seen("nvidia loaded", "no", "/proc/modules"),
    )


RULE = Rule(
    id="driver.not-loaded",
    severity="critical",
    problem="the NVIDIA driver is not loaded",
    why="Without the driver there is no CUDA, so no cuFile, neither direct nor in compat mode.",
    look_at=("cat /proc/driver/nvidia/version", "dmesg | grep -iE 'nvidia|nvrm|nouveau'"),
    remedy=Remedy(
        text="Install the NVIDIA driver with the open kernel modules, and load it; its package has it loaded at boot.",
        commands=("modprobe nvidia",),
        persistent=False,
        risk="nouveau must be kept from loading: it cannot share the GPU",
    ),
    source="NVIDIA GDS Troubleshooting Guide, 'Installing GPUDirect Storage'",
    blocks=("nvidia-fs", "p2pdma", "c2c", "rdma", "compat"),
    check=check,
)

from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Cannot, Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.data.limits import below, limit
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    driver = view.node.nvidia_driver
    module = view.node.modules.get("nvidia")
    if view.gpuless or (driver.version is None and module is not None and module.loaded is False):
        return
    old_enough = bool(view.node.nvidia_fs.version and below(view.node.nvidia_fs.version, "nvidia_fs_open_only"))
    if driver.kind == "unknown":
        yield Cannot(
            subject="nvidia",
            fact="whether the NVIDIA kernel modules are the open ones is not known",
            settle_with="cat /proc/driver/nvidia/version",
        )
    elif driver.kind == "proprietary":
        needed = view.p2pdma_wanted is True or not old_enough
        yield Fail(
            subject="nvidia",
            message=f"the NVIDIA driver {driver.version or ''} runs with the proprietary kernel modules".replace(
                "  ", " "
            ),
            evidence=seen("kernel modules", "proprietary", driver.sources.get("kind", "/proc/driver/nvidia/version")),
            severity="error" if needed else "warning",
        )


RULE = Rule(
    id="driver.proprietary",
    severity="error",
    otherwise={"warning": "where nvidia-fs is old enough to run with it and P2PDMA is not wanted"},
    problem="the proprietary NVIDIA kernel modules are loaded",
    why="P2PDMA exists only in the open kernel modules, and nvidia-fs from "
    f"{limit('nvidia_fs_open_only').value} on loads only beside them, since it uses GPL-only symbols.",
    look_at=("cat /proc/driver/nvidia/version", "modinfo -F license nvidia"),
    remedy=Remedy(
        text="Install the open kernel modules of the same driver version and load them in place of the proprietary ones.",
        needs_reboot=True,
        risk="GPUs older than Turing have no open modules",
    ),
    not_to_conclude="CUDA itself need not be installed again.",
    source="NVIDIA/gds-nvidia-fs CHANGELOG 2.17.5; GDS Troubleshooting Guide, 'P2PDMA requirements'",
    blocks=("p2pdma", "c2c"),
    after=("driver.not-loaded",),
    check=check,
)

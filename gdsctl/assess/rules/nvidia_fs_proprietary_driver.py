from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Scope, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.data.limits import below, limit
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    node = view.node
    kind = node.nvidia_driver.kind
    if view.gpuless or node.nvidia_fs.loaded is True or kind == "open":
        return
    refused = [line for line in node.platform.kernel_log or () if "nvidia_fs" in line and "GPL-only" in line]
    module = node.modules.get("nvidia_fs")
    version = node.nvidia_fs.version or (module.version if module else None)
    too_new = bool(version and below(version, "nvidia_fs_open_only") is False)
    if not refused and not (kind == "proprietary" and too_new and view.nvidia_fs_storages):
        return
    evidence = seen("kernel modules", "proprietary", "/proc/driver/nvidia/version") if kind == "proprietary" else ()
    if version:
        evidence += seen("nvidia_fs version", version, "modinfo nvidia_fs")
    if refused:
        evidence += seen("kernel log", refused[-1], "dmesg")
    yield Fail(
        subject="nvidia_fs",
        message="nvidia_fs cannot load beside the proprietary NVIDIA kernel modules: its symbols are GPL-only",
        evidence=evidence,
        scope=Scope(mounts=frozenset(storage.mount.target for storage in view.nvidia_fs_storages)),
    )


RULE = Rule(
    id="nvidia-fs.proprietary-driver",
    severity="error",
    problem="nvidia_fs is refused because the NVIDIA driver is proprietary",
    why=f"nvidia-fs from {limit('nvidia_fs_open_only').value} on uses GPL-only symbols; beside proprietary modules the "
    "kernel refuses to load it, and cuFile falls back to compat mode.",
    look_at=("dmesg | grep -i 'GPL-only'", "modinfo -F license nvidia", "modinfo -F version nvidia_fs"),
    remedy=Remedy(
        text="Install the open NVIDIA kernel modules of the same version, then load nvidia_fs.",
        needs_reboot=True,
        risk="GPUs older than Turing have no open modules",
    ),
    not_to_conclude="Building nvidia_fs anew does not help: the licence is what is refused, not the build.",
    source="NVIDIA/gds-nvidia-fs CHANGELOG 2.17.5",
    blocks=("nvidia-fs",),
    after=("driver.proprietary",),
    check=check,
)

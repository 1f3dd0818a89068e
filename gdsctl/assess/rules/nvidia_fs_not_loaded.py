from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gdsctl.assess.rule import Cannot, Fail, Rule, Scope, Verdict, some
from gdsctl.assess.view import View
from gdsctl.model.judgement import Evidence, Remedy

_LACKING = ("stock", "not_loaded")


def check(view: View) -> Iterator[Verdict]:
    storages = view.nvidia_fs_storages
    if not storages or view.gpuless or view.node.nvidia_fs.loaded is True:
        return
    scope = Scope(mounts=frozenset(storage.mount.target for storage in storages))
    if view.node.nvidia_fs.loaded is None:
        yield Cannot(
            subject="nvidia_fs",
            fact="whether nvidia_fs is loaded is not known",
            settle_with=view.settle("nvidia_fs", "loaded", "grep nvidia_fs /proc/modules"),
            scope=scope,
        )
        return
    without = {s.hook for s in storages if (hook := view.node.nvfs_hooks.get(s.hook or "")) and hook.state in _LACKING}
    helped = [s.mount.target for s in storages if s.hook not in without]
    remedy = RULE.remedy
    if without:
        names = ", ".join(sorted(filter(None, without)))
        gain = f"makes no more than {some(helped)} direct" if helped else "makes nothing direct"
        first = f"By itself this {gain}: {names} has to carry nvidia-fs's hooks first. "
        remedy = msgspec.structs.replace(remedy, text=first + remedy.text)
    yield Fail(
        subject="nvidia_fs",
        message="the kernel module nvidia_fs is not loaded",
        evidence=(Evidence(fact="nvidia_fs loaded", value="no", source="/proc/modules"),),
        remedy=remedy,
        scope=scope,
    )


RULE = Rule(
    id="nvidia-fs.not-loaded",
    severity="error",
    problem="nvidia_fs is not loaded",
    why="Without nvidia_fs only the kernel's own P2PDMA can move bytes straight to the GPU; network filesystems and "
    "local disks that are not set up for P2PDMA fall back to compat mode without a word.",
    look_at=("grep nvidia_fs /proc/modules", "ls /proc/driver/nvidia-fs", "dmesg | grep -i nvidia_fs"),
    remedy=Remedy(
        text="Load nvidia_fs, and have it loaded at boot. If it refuses, the kernel log says why: its symbols are "
        "GPL-only (needs the open NVIDIA driver) or of another version (rebuild it).",
        commands=("modprobe nvidia_fs", "echo nvidia_fs > /etc/modules-load.d/nvidia-fs.conf"),
        risk="none; processes that use cuFile see it when they start anew",
    ),
    not_to_conclude="GDS is not impossible: on local NVMe the kernel's P2PDMA needs no nvidia_fs.",
    source="NVIDIA GDS Troubleshooting Guide, 'Installing GPUDirect Storage'",
    blocks=("nvidia-fs",),
    after=("driver.not-loaded", "nvidia-fs.proprietary-driver", "nvidia-fs.symbol-version", "secure-boot.unsigned"),
    check=check,
)

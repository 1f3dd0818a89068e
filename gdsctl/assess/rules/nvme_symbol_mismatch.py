from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Cannot, Fail, Rule, Scope, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    hook = view.node.nvfs_hooks.get("nvme")
    storages = [s for s in view.nvidia_fs_storages if s.hook == "nvme"]
    if hook is None or not storages or view.gpuless:
        return
    if hook.state == "patched" and hook.wanted_symbol is None and not hook.registered:
        yield Cannot(
            subject="nvme",
            fact="which version of the hooks nvidia_fs asks nvme for is not known",
            settle_with=view.settle("nvfs_hooks", "wanted_symbol", "head -3 /proc/driver/nvidia-fs/stats", key="nvme"),
            scope=Scope(mounts=frozenset(storage.mount.target for storage in storages)),
        )
    elif hook.mismatched:
        yield Fail(
            subject="nvme",
            message=f"nvme exports {hook.symbol}, but nvidia_fs asks for {hook.wanted_symbol}",
            evidence=seen("exported", hook.symbol, "/proc/kallsyms")
            + seen("wanted", hook.wanted_symbol, "nvidia_fs version and kernel"),
            scope=Scope(mounts=frozenset(storage.mount.target for storage in storages)),
        )


RULE = Rule(
    id="nvme.symbol-mismatch",
    severity="error",
    problem="nvme and nvidia_fs speak different versions of the hooks",
    why="From kernels with the block layer's DMA-map iterator (6.17, or backports) on, nvidia_fs 2.28.2 and newer registers "
    "through nvme_v2_*; an nvme module that exports only nvme_v1_* is patched, and yet not reached.",
    look_at=(
        "grep -E 'nvme_v[12]_register_nvfs_dma_ops' /proc/kallsyms",
        "head -3 /proc/driver/nvidia-fs/stats",
        "dkms status",
    ),
    remedy=Remedy(
        text="Take nvme and nvidia_fs from releases that belong together (DOCA 3.3.0 or newer for kernels from 6.17 on, "
        "any other before), or use P2PDMA.",
        needs_reboot=True,
        risk="replaces the driver of the local drives, the boot drive's as well: have a rescue path",
    ),
    not_to_conclude="Neither module is broken by itself.",
    source="NVIDIA/gds-nvidia-fs src/nvfs-dma.c and configure; GDS Release Notes, DOCA versions",
    blocks=("nvidia-fs",),
    after=("nvidia-fs.not-loaded",),
    check=check,
)

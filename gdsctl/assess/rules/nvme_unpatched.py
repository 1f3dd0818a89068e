from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gdsctl.assess import p2pdma
from gdsctl.assess.hooks import unpatched
from gdsctl.assess.rule import Fail, Rule, Verdict
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    for verdict in unpatched(view, "nvme"):
        if isinstance(verdict, Fail):
            barred = p2pdma.obstacles(view, verdict.scope.mounts or frozenset())
            other = f"P2PDMA, which needs no hooks, is no way out here: {'; '.join(barred)}." if barred else _WITHOUT
            text = f"{_HOOKS} {other}"
            yield msgspec.structs.replace(verdict, remedy=msgspec.structs.replace(RULE.remedy, text=text))
        else:
            yield verdict


_HOOKS = (
    "Use an nvme module that carries the hooks: the one of DOCA-OFED or MLNX_OFED (mlnx-nvme), or a kernel that "
    "ships it (Ubuntu's linux-nvidia)."
)
_WITHOUT = "Or leave nvidia_fs aside for local NVMe and set up P2PDMA (gdsctl plan --mode p2pdma)."


RULE = Rule(
    id="nvme.unpatched",
    severity="error",
    problem="the nvme module has no nvidia-fs hooks",
    why="nvidia_fs can map GPU memory for a drive only through functions that a patched nvme module exports. The stock "
    "module exports none, and every file on local NVMe falls back to compat mode.",
    look_at=(
        "grep -E 'nvme_v[12]_register_nvfs_dma_ops' /proc/kallsyms",
        "cat /proc/driver/nvidia-fs/modules",
        "modinfo nvme | grep -E 'filename|version'",
    ),
    remedy=Remedy(
        text=f"{_HOOKS} {_WITHOUT}",
        needs_reboot=True,
        risk="replaces the driver of the local drives, the boot drive's as well: have a rescue path",
    ),
    not_to_conclude="Neither RAID0 nor PeerDirect is what is missing.",
    source="NVIDIA/gds-nvidia-fs src/nvfs-dma.c; GDS Troubleshooting Guide, 'NVMe Driver not registered with nvidia-fs'",
    blocks=("nvidia-fs",),
    after=("nvidia-fs.not-loaded", "driver.proprietary", "nvme.symbol-mismatch"),
    check=check,
)

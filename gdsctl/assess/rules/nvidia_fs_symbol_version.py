from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy

_SIGNS = ("disagrees about version of symbol", "Unknown symbol", "no symbol version for")


def check(view: View) -> Iterator[Verdict]:
    if view.node.nvidia_fs.loaded is True:
        return
    for line in view.node.platform.kernel_log or ():
        sign = next((sign for sign in _SIGNS if sign in line), None)
        if sign and "nvidia_fs" in line and "GPL-only" not in line:
            yield Fail(
                subject="nvidia_fs",
                message=f"the kernel refused nvidia_fs: {sign}",
                evidence=seen("kernel log", line, "dmesg"),
            )
            return


RULE = Rule(
    id="nvidia-fs.symbol-version",
    severity="error",
    problem="nvidia_fs was built against another NVIDIA driver",
    why="A module loads only beside the very driver whose symbol versions it was built with. 'disagrees about version' is "
    "another build, 'Unknown symbol' a provider that is not loaded, 'no symbol version' a provider without versions.",
    look_at=("dmesg | grep nvidia_fs", "modinfo nvidia_fs | grep -E 'vermagic|version'"),
    remedy=Remedy(
        text="Load the NVIDIA driver first; if the message stays, rebuild nvidia_fs against the driver that is loaded.",
        commands=("dkms autoinstall && modprobe nvidia_fs",),
    ),
    source="GDS Release Notes (driver 580.82.05 changed the symbol versions); Linux kernel/module/version.c",
    blocks=("nvidia-fs",),
    after=("nvidia-fs.proprietary-driver",),
    check=check,
)

from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy

_REBUILD = "dkms autoinstall && modprobe nvidia_fs"
_RISK = "none: nvidia_fs is not loaded now"
_SIGNS = {
    "disagrees about version of symbol": Remedy(
        text="Rebuild nvidia_fs against the NVIDIA driver that is loaded; a driver update asks for it.",
        commands=(_REBUILD,),
        risk=_RISK,
    ),
    "Unknown symbol": Remedy(
        text="Load the NVIDIA driver first. If the message stays, the driver lacks the symbol: take an nvidia_fs that "
        "belongs to it, and rebuild.",
        commands=("modprobe nvidia && modprobe nvidia_fs",),
        risk=_RISK,
    ),
    "no symbol version for": Remedy(
        text="The driver is loaded, but nvidia_fs was built without its symbol versions: rebuild it where the driver's "
        "Module.symvers is found (a compressed nvidia.ko hides them from nvidia_fs's build).",
        commands=(_REBUILD,),
        risk=_RISK,
    ),
}


def check(view: View) -> Iterator[Verdict]:
    if view.node.nvidia_fs.loaded is True:
        return
    for line in reversed(view.node.platform.kernel_log or ()):
        sign = next((sign for sign in _SIGNS if sign in line), None)
        if sign and "nvidia_fs" in line and "GPL-only" not in line:
            yield Fail(
                subject="nvidia_fs",
                message=f"the kernel refused nvidia_fs: {sign}",
                evidence=seen("kernel log", line, "dmesg"),
                remedy=_SIGNS[sign],
            )
            return


RULE = Rule(
    id="nvidia-fs.symbol-version",
    severity="error",
    problem="nvidia_fs was built against another NVIDIA driver",
    why="A module loads only beside the very driver whose symbol versions it was built with. 'disagrees about version' is "
    "another build, 'Unknown symbol' a provider that is not loaded or lacks it, 'no symbol version' a provider without versions.",
    look_at=("dmesg | grep nvidia_fs", "modinfo nvidia_fs | grep -E 'vermagic|version'"),
    remedy=Remedy(
        text="Load the NVIDIA driver first; if the message stays, rebuild nvidia_fs against the driver that is loaded.",
        commands=(_REBUILD,),
        risk=_RISK,
    ),
    source="GDS Release Notes (driver 580.82.05 changed the symbol versions); Linux kernel/module/version.c",
    blocks=("nvidia-fs",),
    after=("nvidia-fs.proprietary-driver",),
    check=check,
)

from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess import p2pdma
from gdsctl.assess.rule import Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.data.limits import below, limit
from gdsctl.model.judgement import Remedy

_FLOOR = limit("driver_p2pdma")


def check(view: View) -> Iterator[Verdict]:
    scope = p2pdma.scope(view)
    version = view.node.nvidia_driver.version
    if scope is not None and version and below(version, "driver_p2pdma"):
        yield Fail(
            subject="nvidia",
            message=f"driver {version} is older than P2PDMA asks for ({_FLOOR.value})",
            evidence=seen(
                "driver", version, view.node.nvidia_driver.sources.get("version", "/proc/driver/nvidia/version")
            ),
            scope=scope,
        )


RULE = Rule(
    id="p2pdma.driver-too-old",
    severity="error",
    problem="the NVIDIA driver is too old for P2PDMA",
    why=f"Drivers before {_FLOOR.value} do not hand GPU memory to the kernel's peer-to-peer DMA.",
    look_at=("cat /proc/driver/nvidia/version",),
    remedy=Remedy(
        text=f"Update the NVIDIA driver to {_FLOOR.value} or newer, with the open kernel modules.",
        needs_reboot=True,
        risk="nvidia_fs and other modules built against the driver must be rebuilt",
    ),
    not_to_conclude="nvidia-fs works with older drivers.",
    source=_FLOOR.source,
    blocks=("p2pdma", "c2c"),
    after=("driver.not-loaded",),
    check=check,
)

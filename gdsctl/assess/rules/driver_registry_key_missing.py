from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess import p2pdma
from gdsctl.assess.rule import Cannot, Fail, Rule, Verdict, seen
from gdsctl.assess.rules import driver_pending_reboot
from gdsctl.assess.view import View
from gdsctl.data.driver_registry import RegistryKey, registry_keys
from gdsctl.model.judgement import Remedy


def needed(view: View) -> tuple[RegistryKey, ...]:
    """The keys that P2PDMA asks of this node's driver; none on other architectures than x86-64."""
    if view.node.platform.arch != "x86_64":
        return ()
    models = [p2pdma.model(view, gpu) for gpu in view.gpus]
    old = any(row is not None and row.force_p2p for row in models)
    return tuple(key for key in registry_keys() if old or not key.before_hopper)


def check(view: View) -> Iterator[Verdict]:
    scope = p2pdma.scope(view)
    driver = view.node.nvidia_driver
    module = view.node.modules.get("nvidia")
    if scope is None or (driver.version is None and module is not None and module.loaded is False):
        return
    if view.node.platform.arch is None:
        yield Cannot(subject="nvidia", fact="the architecture is not known", settle_with="uname -m", scope=scope)
        return
    keys = needed(view)
    if not keys:
        return
    if driver.registry_dwords is None:
        yield Cannot(
            subject="nvidia",
            fact="the driver's RegistryDwords are not known",
            settle_with=view.settle(
                "nvidia_driver", "registry_dwords", "grep RegistryDwords /proc/driver/nvidia/params"
            ),
            scope=scope,
        )
        return
    missing = [key for key in keys if not key.satisfied_by(driver.registry_dwords.get(key.name))]
    if missing:
        wanted = ";".join(f"{key.name}={key.set_to}" for key in missing)
        coming = driver.modprobe_registry_dwords or {}
        on_host = not view.in_container
        waiting = [key for key in missing if on_host and key.satisfied_by(coming.get(key.name))]
        told, remedy = "", RULE.remedy
        if waiting:
            names = "they" if waiting == missing else ", ".join(key.name for key in waiting)
            told = f"; {names} already stand{'s' if len(waiting) == 1 != len(missing) else ''} in modprobe.d, for the next load"
        if waiting == missing:
            remedy = driver_pending_reboot.RULE.remedy
        running = ";".join(f"{name}={value}" for name, value in driver.registry_dwords.items()) or "none"
        yield Fail(
            subject="nvidia",
            message=f"the running driver lacks the registry keys that P2PDMA needs: {wanted}{told}",
            evidence=seen("RegistryDwords", running, "/proc/driver/nvidia/params"),
            remedy=remedy,
            scope=scope,
        )


RULE = Rule(
    id="driver.registry-key-missing",
    severity="error",
    problem="registry keys that P2PDMA needs are not set in the running driver",
    why="The kernel can offer GPU memory to a drive only if the whole of it is mapped at BAR1 and not write-combined; "
    "the driver does neither by default.",
    look_at=(
        "grep RegistryDwords /proc/driver/nvidia/params",
        "grep -r NVreg_RegistryDwords /etc/modprobe.d /usr/lib/modprobe.d",
    ),
    remedy=Remedy(
        text="Write the keys into one modprobe.d line together with those that are there (gdsctl plan --emit modprobe), "
        "rebuild the initramfs and reboot. The case of the names matters: RMForce..., RmForce...",
        commands=("gdsctl plan --mode p2pdma --emit modprobe --output-dir .",),
        needs_reboot=True,
        risk="a second NVreg_RegistryDwords line elsewhere overrides the first: keep one; with RMForceStaticBar1=1 a GPU "
        "whose BAR1 is smaller than its memory does not start",
    ),
    not_to_conclude="A driver that lacks them is not broken; nvidia-fs does not need them.",
    source="GDS Troubleshooting Guide, 'P2PDMA: driver registry keys'",
    blocks=("p2pdma",),
    after=("driver.proprietary", "driver.pending-reboot"),
    check=check,
)

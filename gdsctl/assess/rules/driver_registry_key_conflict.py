from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess import p2pdma
from gdsctl.assess.rule import Fail, Rule, Verdict, seen
from gdsctl.assess.rules.driver_registry_key_missing import needed
from gdsctl.assess.view import View
from gdsctl.data.driver_registry import registry_keys
from gdsctl.model.judgement import Evidence, Remedy


def check(view: View) -> Iterator[Verdict]:
    driver = view.node.nvidia_driver
    foreign = view.in_container  # the image's modprobe.d is not the host's
    coming = {} if foreign else driver.modprobe_registry_dwords or {}
    told: dict[tuple[str, str], tuple[Evidence, ...]] = {}
    for source, values in (("/proc/driver/nvidia/params", driver.registry_dwords or {}), ("modprobe.d", coming)):
        for name, value in values.items():
            told[name, value] = told.get((name, value), ()) + seen(name, value, source)
    asked = needed(view) if p2pdma.scope(view) is not None else ()
    for (name, value), evidence in told.items():
        key = next((key for key in registry_keys() if key.name.lower() == name.lower()), None)
        if key is not None and key.name != name:
            message = f"the registry key is spelled {name}; the driver knows only {key.name}"
            yield Fail(subject=name, message=message, evidence=evidence)
        elif key in asked and key is not None and not key.satisfied_by(value):
            message = f"{name}={value} stands against P2PDMA, which needs {name}={key.set_to}"
            yield Fail(subject=name, message=message, evidence=evidence)
    lost = {place: file for place, file in (driver.modprobe_files or {}).items() if place not in coming}
    if lost and not foreign:
        yield Fail(
            subject="NVreg_RegistryDwords",
            message=f"NVreg_RegistryDwords is set more than once: what {', '.join(lost)} says is lost",
            evidence=seen("lost lines", ", ".join(lost), "modprobe.d"),
        )


RULE = Rule(
    id="driver.registry-key-conflict",
    severity="warning",
    problem="registry keys of the driver contradict each other or are misspelled",
    why="NVreg_RegistryDwords is one text: a second line replaces the first, and a key in the wrong case is ignored "
    "without a word.",
    look_at=("grep -rn NVreg_RegistryDwords /etc/modprobe.d /run/modprobe.d /usr/lib/modprobe.d",),
    remedy=Remedy(
        text="Keep one options line with all keys, spelled as the driver spells them, and rebuild the initramfs.",
        commands=("gdsctl plan --emit modprobe",),
        needs_reboot=True,
        risk="with RMForceStaticBar1=1 a GPU whose BAR1 is smaller than its memory does not start",
    ),
    source="open-gpu-kernel-modules src/nvidia/interface/nvrm_registry.h; modprobe.d(5)",
    check=check,
)

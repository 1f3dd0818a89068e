from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.data.driver_registry import registry_keys
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    driver = view.node.nvidia_driver
    places = {"/proc/driver/nvidia/params": driver.registry_dwords, "modprobe.d": driver.modprobe_registry_dwords}
    for source, values in places.items():
        for name, value in (values or {}).items():
            key = next((key for key in registry_keys() if key.name.lower() == name.lower()), None)
            if key is None:
                continue
            if key.name != name:
                yield Fail(
                    subject=name,
                    message=f"the registry key is spelled {name}; the driver knows only {key.name}",
                    evidence=seen(name, value, source),
                )
            elif view.p2pdma_wanted is True and not key.satisfied_by(value):
                yield Fail(
                    subject=name,
                    message=f"{name}={value} stands against P2PDMA, which needs {name}={key.set_to}",
                    evidence=seen(name, value, source),
                )
    files = sorted(set((driver.modprobe_files or {}).values()))
    if len(files) > 1:
        yield Fail(
            subject="NVreg_RegistryDwords",
            message=f"{len(files)} files of modprobe.d set NVreg_RegistryDwords; the last one read hides the others",
            evidence=seen("files", ", ".join(files), "modprobe.d"),
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
    ),
    source="open-gpu-kernel-modules src/nvidia/interface/nvrm_registry.h; modprobe.d(5)",
    check=check,
)

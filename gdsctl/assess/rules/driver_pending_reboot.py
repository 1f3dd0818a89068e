from __future__ import annotations

import re
from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy

_NUMBER = re.compile(r"0[xX][0-9a-fA-F]{1,16}|0|[1-9][0-9]{0,19}")


def check(view: View) -> Iterator[Verdict]:
    driver = view.node.nvidia_driver
    running, coming = driver.registry_dwords, driver.modprobe_registry_dwords
    if driver.version is None or running is None or coming is None or _numbers(running) == _numbers(coming):
        return
    if view.in_container:
        return  # the image's modprobe.d is not the host's
    yield Fail(
        subject="nvidia",
        message="the driver runs with other RegistryDwords than modprobe.d names: a reload or reboot is pending",
        evidence=seen("running", _shown(running), "/proc/driver/nvidia/params")
        + seen(
            "at the next load",
            _shown(coming),
            ", ".join(sorted(set((driver.modprobe_files or {}).values()))) or "modprobe.d",
        ),
    )


def _numbers(values: dict[str, str]) -> dict[str, int | str]:
    """The driver reads 1 and 0x1 alike."""
    return {name: int(value, 0) if _NUMBER.fullmatch(value) else value for name, value in values.items()}


def _shown(values: dict[str, str]) -> str:
    return ";".join(f"{name}={value}" for name, value in values.items()) or "none"


RULE = Rule(
    id="driver.pending-reboot",
    severity="warning",
    problem="modprobe.d and the running driver differ",
    why="What modprobe.d says counts only at the next load of the module, and from the copy in the initramfs: until then "
    "the node behaves as the running values say.",
    look_at=("grep RegistryDwords /proc/driver/nvidia/params", "modprobe --showconfig | grep NVreg_RegistryDwords"),
    remedy=Remedy(
        text="Rebuild the initramfs (update-initramfs -u or dracut -f, as the distribution has it) and reboot.",
        commands=("update-initramfs -u -k all || dracut -f",),
        needs_reboot=True,
        risk="a new initramfs that does not boot: keep the entry of the old kernel",
    ),
    not_to_conclude="The file is not necessarily wrong: it may only be newer than the boot.",
    source="GDS Troubleshooting Guide, 'P2PDMA: driver registry keys'; modprobe.d(5)",
    check=check,
)

from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Cannot, Fail, Rule, Scope, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy
from gdsctl.model.shell import quoted


def check(view: View) -> Iterator[Verdict]:
    for storage in () if view.gpuless else view.storages:
        if storage.mount.backing.kind != "md" or not storage.mount.device or storage.target is None:
            continue
        array = next((block for block in view.stack(storage.mount.device) if block.kind == "md"), None)
        if array is None:
            continue
        wanted = storage.target.udev_properties
        scope = Scope(mounts=frozenset({storage.mount.target}))
        if array.udev is not None and any(name not in array.udev for name in wanted):
            missing = ", ".join(name for name in wanted if name not in array.udev)
            yield Fail(
                subject=array.name,
                message=f"udev does not know {missing} of {array.name}: cuFile cannot tell its level and members",
                evidence=seen("missing udev properties", missing, f"udevadm info /dev/{array.name}"),
                scope=scope,
            )
        elif array.udev is None and view.node.gds.udev_rule_md is False:
            yield Fail(
                subject=array.name,
                message=f"no udev rule asks mdadm about {array.name}: cuFile cannot tell its level and members",
                evidence=seen("IMPORT of mdadm --detail", "missing", "63-md-raid-arrays.rules"),
                scope=scope,
            )
        elif array.udev is None and wanted and view.node.gds.udev_rule_md is None:
            yield Cannot(
                subject=array.name,
                fact=f"what udev knows of {array.name} is not known",
                settle_with=f"udevadm info --query=property {quoted('/dev/' + array.name)}",
                scope=scope,
            )


RULE = Rule(
    id="fs.md-udev-rule",
    severity="error",
    problem="udev does not know the properties of the md array",
    why="libcufile learns an array's level and members from udev's MD_* properties and from nowhere else; RHEL 8.3 and newer "
    "ship rules without the line that sets them.",
    look_at=(
        "udevadm info --query=property /dev/md0 | grep MD_",
        "grep -n IMPORT /lib/udev/rules.d/63-md-raid-arrays.rules",
    ),
    remedy=Remedy(
        text='Put the line IMPORT{program}="/usr/sbin/mdadm --detail --export $devnode" into a rule of your own '
        "under /etc/udev/rules.d, then trigger udev.",
        commands=("udevadm control --reload && udevadm trigger --subsystem-match=block",),
        risk="none: the rule only reads",
    ),
    source="GDS Troubleshooting Guide, 'Adding udev rules for RAID volumes'",
    blocks=("nvidia-fs", "p2pdma", "c2c"),
    after=("container.no-udev",),
    check=check,
)

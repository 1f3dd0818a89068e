from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Scope, Verdict
from gdsctl.assess.system_mounts import is_system
from gdsctl.assess.view import View
from gdsctl.model.judgement import Evidence, Remedy
from gdsctl.model.shell import quoted


def check(view: View) -> Iterator[Verdict]:
    for storage in () if view.gpuless else view.storages:
        wanted = storage.filesystem.required_option if storage.filesystem else None
        mount = storage.mount
        if not wanted or wanted in mount.options or not (storage.takes_nvidia_fs or storage.takes_p2pdma):
            continue
        mode = next((option for option in mount.options if option.startswith("data=")), None)
        yield Fail(
            subject=mount.target,
            message=f"{mount.target} is {mount.fstype} without {wanted} in its mount options",
            evidence=(Evidence(fact="mount options", value=",".join(mount.options), source="/proc/self/mountinfo"),),
            remedy=_remedy(wanted, mount.target, mode),
            scope=Scope(mounts=frozenset({mount.target})),
            severity="warning" if is_system(mount.target) else None,
        )


def _remedy(wanted: str, target: str, mode: str | None) -> Remedy:
    """`mode`: another journal mode that the mount names; the kernel refuses to change it while mounted."""
    risk = (
        "none: it is the kernel's default, only written out"
        if mode is None
        else f"the journal mode changes from {mode}"
    )
    if target == "/":
        return Remedy(
            text=f"Write {wanted} into the mount options: for the root filesystem as rootflags= on the kernel command line.",
            needs_reboot=True,
            risk=risk,
        )
    if mode is not None:
        return Remedy(
            text=f"Write {wanted} into fstab in place of {mode}, unmount the filesystem and mount it again.",
            commands=(f"umount {quoted(target)} && mount {quoted(target)}",),
            risk=f"{risk}; unmounting needs every user of it to stop",
        )
    return Remedy(
        text=f"Write {wanted} into the mount options, and into fstab so that it stays.",
        commands=(f"mount -o remount,{wanted} {quoted(target)}",),
        persistent=False,
        risk=f"{risk}; a filesystem in use may refuse the remount, then unmount it first",
    )


RULE = Rule(
    id="fs.ext4-data-ordered",
    severity="error",
    problem="ext4 is mounted without a visible data=ordered",
    why="libcufile looks for the journal mode in the mount table and refuses the direct route where it finds none. "
    "data=ordered is the kernel's default, and for that very reason the kernel does not print it.",
    look_at=("grep ext4 /proc/mounts", "grep -i 'ext4 journal' cufile.log"),
    remedy=Remedy(
        text="Mount with data=ordered written out, in fstab too; the root filesystem takes rootflags=data=ordered.",
        commands=("mount -o remount,data=ordered TARGET",),
        persistent=False,
        risk="none: it is the kernel's default, only written out",
    ),
    not_to_conclude="The journal mode itself is right; only its mention is missing.",
    source="NVIDIA GDS Troubleshooting Guide, 'Adding or mounting an EXT4 file system'",
    blocks=("nvidia-fs", "p2pdma", "c2c"),
    check=check,
)

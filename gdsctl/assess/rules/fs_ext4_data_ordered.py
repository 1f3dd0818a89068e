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
    """`mode`: another journal mode that the mount names; the kernel refuses to change it while mounted, and a remount
    to the mode that holds changes nothing, not even what the mount table shows (Linux 6.18).
    """
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
    where = "" if mode is None else f" in place of {mode}"
    return Remedy(
        text=f"Write {wanted} into its line of fstab{where}, unmount the filesystem and mount it again. A remount says yes and "
        "changes nothing.",
        commands=(f"umount {quoted(target)} && mount {quoted(target)}",),
        risk=f"{risk}; unmounting needs every user of it to stop",
    )


RULE = Rule(
    id="fs.ext4-data-ordered",
    severity="error",
    problem="ext4 is mounted without a visible data=ordered",
    why="libcufile looks for the journal mode in the mount table and refuses the direct route where it finds none. "
    "data=ordered is the kernel's default, and for that very reason the kernel does not print it.",
    look_at=("grep ext4 /proc/mounts", "grep -i 'ext4 journal' cufile.log"),
    remedy=Remedy(
        text="Write data=ordered into its line of fstab, unmount the filesystem and mount it again (a remount says yes and "
        "changes nothing); the root filesystem takes rootflags=data=ordered.",
        commands=("umount TARGET && mount TARGET",),
        risk="it is the kernel's default, only written out; unmounting needs every user of it to stop",
    ),
    not_to_conclude="The journal mode itself is right; only its mention is missing.",
    source="NVIDIA GDS Troubleshooting Guide, 'Adding or mounting an EXT4 file system'",
    blocks=("nvidia-fs", "p2pdma", "c2c"),
    check=check,
)

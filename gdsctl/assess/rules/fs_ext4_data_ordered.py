from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Scope, Verdict
from gdsctl.assess.system_mounts import is_system
from gdsctl.assess.view import View
from gdsctl.model.devices import Mount, lasts
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
            remedy=_remedy(view, mount, wanted, mode),
            scope=Scope(mounts=frozenset({mount.target})),
            severity="warning" if is_system(mount.target) else None,
        )


def _remedy(view: View, mount: Mount, wanted: str, mode: str | None) -> Remedy:
    """`mode`: another journal mode that the mount names; the kernel refuses to change it while mounted, and a remount
    to the mode that holds changes nothing, not even what the mount table shows (Linux 6.18).

    The command names device, type and options: `mount TARGET` alone fails for a mount without a line in fstab, and takes
    the old options of one that has a line.
    """
    target = mount.target
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
    device, unsure = _device(view, mount)
    kept = [option for option in mount.options if option not in _SHOWN_ONLY and option != mode]
    options = quoted(",".join((*kept, wanted)))
    mounting = f"mount -t {quoted(mount.fstype)} -o {options} -- {quoted(device)} {quoted(target)}"
    return Remedy(
        text=f"Unmount the filesystem and mount it again with {wanted}; a remount says yes and changes nothing. "
        f"{_at_boot(view, target, wanted, mode)}{unsure}",
        commands=(f"umount -- {quoted(target)}", mounting),
        persistent=False,
        risk=f"{risk}; unmounting needs every user of it to stop",
    )


_SHOWN_ONLY = frozenset({"seclabel"})  # from the LSM, not for mount(8)


def _device(view: View, mount: Mount) -> tuple[str, str]:
    """What to mount, and a sentence where its name is not one that lasts: the kernel numbers devices as they come."""
    block = view.block(mount.device) if mount.device else None
    if block is not None and block.lasting_name:
        return block.lasting_name, ""
    source = mount.source or f"/dev/{mount.device}"
    if lasts(source):
        return source, ""
    return (
        source,
        f" {source} may be another device after a boot, and no UUID or link by-id of it is known: look with blkid.",
    )


def _at_boot(view: View, target: str, wanted: str, mode: str | None) -> str:
    """One sentence: what mounts it at the next boot."""
    lines = view.node.fstab
    line = next((entry for entry in lines or () if entry.target == target), None)
    if line is not None:
        where = "" if mode is None else f" in place of {mode}"
        return f"For the boots to come write {wanted} into line {line.line} of /etc/fstab{where}."
    if lines is None:
        return f"For the boots to come write {wanted} where it is mounted from: its line of /etc/fstab, a unit, an automounter."
    return (
        f"It has no line in /etc/fstab: give {wanted} where it is mounted from (a unit, an automounter), or add a line."
    )


RULE = Rule(
    id="fs.ext4-data-ordered",
    severity="error",
    otherwise={"warning": "for a mount of the system itself"},
    problem="ext4 is mounted without a visible data=ordered",
    why="libcufile looks for the journal mode in the mount table and refuses the direct route where it finds none. "
    "data=ordered is the kernel's default, and for that very reason the kernel does not print it.",
    look_at=("grep ext4 /proc/mounts", "grep -i 'ext4 journal' cufile.log"),
    remedy=Remedy(
        text="Unmount the filesystem and mount it again with data=ordered (a remount says yes and changes nothing), and write it "
        "where it is mounted from: its line of fstab, a unit, an automounter. The root filesystem takes "
        "rootflags=data=ordered.",
        commands=("umount TARGET", "mount -t ext4 -o OPTIONS,data=ordered -- UUID=UUID TARGET"),
        persistent=False,
        risk="it is the kernel's default, only written out; unmounting needs every user of it to stop",
    ),
    not_to_conclude="The journal mode itself is right; only its mention is missing.",
    source="NVIDIA GDS Troubleshooting Guide, 'Adding or mounting an EXT4 file system'",
    blocks=("nvidia-fs", "p2pdma", "c2c"),
    check=check,
)

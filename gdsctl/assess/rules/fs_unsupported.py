from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Cannot, Fail, Rule, Scope, Verdict, seen
from gdsctl.assess.view import Storage, View
from gdsctl.data.limits import numbers
from gdsctl.model.judgement import Remedy

_TOLD_ELSEWHERE = ("overlay", "tmpfs", "dm", "md")


def check(view: View) -> Iterator[Verdict]:
    for storage in view.storages:
        yield from _direct(storage)
        yield from _compat(view, storage)


def _direct(storage: Storage) -> Iterator[Verdict]:
    mount = storage.mount
    if (
        mount.backing.kind in _TOLD_ELSEWHERE
        or storage.takes_nvidia_fs
        or storage.takes_p2pdma
        or storage.takes_user_rdma
    ):
        return
    scope = Scope(mounts=frozenset({mount.target}))
    if storage.filesystem is None:
        message = f"{mount.target} is {mount.fstype}, a file system that gdsctl has no knowledge of"
    elif storage.filesystem.backing == "block" and storage.filesystem.nvidia_fs != "no":
        if mount.device is None:
            yield Cannot(
                subject=mount.target,
                fact=f"which device {mount.target} is on is not known",
                settle_with="findmnt -o TARGET,SOURCE,MAJ:MIN",
                scope=scope,
                blocks=("nvidia-fs", "p2pdma", "compat"),
            )
            return
        message = f"{mount.target} is on {mount.device}, which is no NVMe drive"
    elif storage.over_tcp:
        return
    else:
        message = f"{mount.target} is {mount.fstype}: no direct route exists"
    yield Fail(
        subject=mount.target,
        message=message,
        evidence=seen("filesystem", mount.fstype, "/proc/self/mountinfo"),
        scope=scope,
    )


def _compat(view: View, storage: Storage) -> Iterator[Verdict]:
    """File systems that even compat mode takes only from some release on."""
    row = storage.filesystem
    mount = storage.mount
    if row is None or row.pseudo or not view.version:
        return
    if row.compat_since and numbers(view.version) < numbers(row.compat_since):
        yield Fail(
            subject=mount.target,
            message=f"cuFile {view.version} refuses files on {mount.fstype}; compat mode takes it from {row.compat_since} on",
            evidence=seen("filesystem", mount.fstype, "/proc/self/mountinfo") + seen("GDS", view.version, "libcufile"),
            scope=Scope(mounts=frozenset({mount.target})),
            blocks=("compat",),
        )


RULE = Rule(
    id="fs.unsupported",
    severity="info",
    problem="no direct route exists for this file system or device",
    why="cuFile goes direct on ext4 and xfs over NVMe, on md RAID0, and on the network file systems that work with it; all "
    "else is read and written through host memory, or refused by older releases.",
    look_at=("findmnt -T PATH", "gdscheck -f FILE"),
    remedy=Remedy(text="Use ext4 or xfs on local NVMe, or a supported network file system over RDMA."),
    not_to_conclude="Nothing is broken; the bytes only take the longer way.",
    source="GDS Release Notes, supported file systems",
    blocks=("nvidia-fs", "p2pdma", "c2c", "rdma"),
    check=check,
)

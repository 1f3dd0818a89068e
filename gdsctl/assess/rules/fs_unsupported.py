from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Cannot, Fail, Rule, Scope, Verdict, seen, some
from gdsctl.assess.view import Storage, View
from gdsctl.data.limits import numbers
from gdsctl.model.judgement import Remedy
from gdsctl.model.shell import quoted


def check(view: View) -> Iterator[Verdict]:
    """One finding a reason: a system has many small mounts that nobody would send to a GPU."""
    if view.gpuless:
        return
    reasons: dict[str, list[Storage]] = {}
    refused: dict[str, list[Storage]] = {}
    for storage in view.storages:
        doubt = _doubt(storage)
        if doubt is not None:
            yield doubt
        elif reason := _reason(view, storage):
            reasons.setdefault(reason, []).append(storage)
        if reason := _refusal(view, storage):
            refused.setdefault(reason, []).append(storage)
    for reason, storages in reasons.items():
        yield _fail(reason, storages)
    for reason, storages in refused.items():
        yield _fail(reason, storages, version=view.version)


def _fail(reason: str, storages: list[Storage], *, version: str | None = None) -> Fail:
    """`version`: of a library that refuses even compat mode."""
    targets = [storage.mount.target for storage in storages]
    return Fail(
        subject=", ".join(targets),
        message=f"{reason}: {some(targets)}",
        evidence=tuple(e for s in storages for e in seen(s.mount.target, s.mount.fstype, "/proc/self/mountinfo"))
        + (seen("GDS", version, "libcufile") if version else ()),
        scope=Scope(mounts=frozenset(targets)),
        blocks=("compat",) if version else None,
    )


def _doubt(storage: Storage) -> Cannot | None:
    """What is not known of storage that could go direct; compat mode is left open with it, as the better answer may come."""
    mount, row = storage.mount, storage.filesystem
    if row is None or mount.backing.kind in ("overlay", "tmpfs"):
        return None
    if row.backing == "block" and row.nvidia_fs != "no" and mount.device is None:
        fact = f"which device {mount.target} is on is not known"
        settle_with = f"findmnt -o TARGET,SOURCE,MAJ:MIN {quoted(mount.target)}"
    elif (mount.backing.kind == "nvme-of" and mount.backing.transport is None) or (
        mount.backing.kind == "nvme" and not mount.backing.nvme and row.nvidia_fs != "no"
    ):
        fact, settle_with = (
            f"by which transport the drive of {mount.target} is reached is not known",
            "nvme list-subsys",
        )
    elif row.nvidia_fs == "unknown":
        fact, settle_with = f"whether {mount.fstype} goes direct is documented nowhere", "gdscheck -p"
    elif mount.backing.kind == "lustre" and mount.backing.transport is None:
        fact, settle_with = f"whether {mount.target} runs over RDMA or TCP is not known", "lnetctl net show"
        return _cannot(storage, fact, settle_with, compat=False)
    else:
        return None
    return _cannot(storage, fact, settle_with, compat=True)


def _cannot(storage: Storage, fact: str, settle_with: str, *, compat: bool) -> Cannot:
    target = storage.mount.target
    return Cannot(
        subject=target,
        fact=fact,
        settle_with=settle_with,
        scope=Scope(mounts=frozenset({target})),
        blocks=("nvidia-fs", "p2pdma", "c2c", "rdma", *(("compat",) if compat else ())),
    )


def _reason(view: View, storage: Storage) -> str | None:
    """Why nothing can be direct here, unless another rule of the area tells it."""
    mount, row, kind = storage.mount, storage.filesystem, storage.mount.backing.kind
    if row is None:
        return f"{mount.fstype or 'a nameless file system'} is a file system that gdsctl has no knowledge of"
    if kind in ("overlay", "tmpfs"):
        return None
    if row.nvidia_fs == "no" and not row.p2pdma and not storage.takes_user_rdma:
        return f"no direct route exists for {mount.fstype}"
    if kind == "md":
        others = [name for name in _leaves(view, storage) if not name.startswith("nvme")]
        return f"members of {mount.device} are no NVMe drives ({', '.join(others)})" if others else None
    if kind == "dm" or storage.takes_nvidia_fs or storage.takes_p2pdma or storage.takes_user_rdma:
        return None
    if storage.over_tcp:
        return None if kind == "nfs" else f"{_name(storage)} runs over TCP, and only RDMA can reach the GPU"
    return f"{_name(storage)} is no NVMe drive" if kind == "other" else f"no direct route exists for {_name(storage)}"


def _name(storage: Storage) -> str:
    return storage.mount.device or storage.mount.fstype


def _leaves(view: View, storage: Storage) -> tuple[str, ...]:
    array = view.block(storage.mount.device or "")
    return array.members if array else ()


def _refusal(view: View, storage: Storage) -> str | None:
    """File systems that even compat mode takes only from some release on."""
    row = storage.filesystem
    if row is None or row.pseudo or not row.compat_since or not view.version:
        return None
    if numbers(view.version) >= numbers(row.compat_since):
        return None
    return f"cuFile {view.version} refuses files on {storage.mount.fstype}; compat mode takes them from {row.compat_since} on"


RULE = Rule(
    id="fs.unsupported",
    severity="info",
    problem="no direct route exists for this file system or device",
    why="cuFile goes direct on ext4 and xfs over NVMe, on md RAID0, and on the network file systems that work with it; all "
    "else is read and written through host memory, or refused by older releases.",
    look_at=("findmnt -T PATH", "gdscheck -f FILE"),
    remedy=Remedy(
        text="Use ext4 or xfs on local NVMe, or a supported network file system over RDMA.",
        risk="moving a file system means copying its data",
    ),
    not_to_conclude="Nothing is broken; the bytes only take the longer way.",
    source="GDS Release Notes, supported file systems",
    blocks=("nvidia-fs", "p2pdma", "c2c", "rdma"),
    check=check,
)

"""A file for /etc/nfsmount.conf.d: the options of each NFS mount, whoever mounts it (nfsmount.conf(5))."""

from __future__ import annotations

from gdsctl.emit.comment import comment
from gdsctl.plan.desired import Plan
from gdsctl.plan.documents import Artifact
from gdsctl.plan.mounts import MountPlan, read_from_fstab

PATH = "/etc/nfsmount.conf.d/gdsctl.conf"
_GENERIC = frozenset({"rw", "ro", "relatime", "noatime", "nodiratime", "nosuid", "nodev", "noexec", "sync"})
_NAMES = {"vers": "Nfsvers", "proto": "Proto", "port": "Port"}


def _fitting(plan: Plan) -> list[MountPlan]:
    return [wish for wish in plan.mounts if wish.fstype in ("nfs", "nfs4")]


def applies(plan: Plan) -> bool:
    return bool(_fitting(plan))


def emit(plan: Plan) -> Artifact:
    """One section a mount point; a name that the file's quotes cannot hold is left out, with the reason."""
    lines: list[str] = []
    reasons: dict[str, str] = {}
    for wish in _fitting(plan):
        if '"' in wish.target or not wish.target.isprintable():
            lines.append(comment(f"{wish.target}: left out, its name cannot be written here"))
            reasons[str(len(lines))] = "left out: a quote or a control character in its name"
            continue
        lines += [comment(wish.why), f'[ MountPoint "{wish.target}" ]']
        reasons[str(len(lines))] = wish.why
        for option in wish.options:
            name, _, value = option.partition("=")
            if name not in _GENERIC and not read_from_fstab(name):
                lines.append(f"{_NAMES.get(name, name)}={value or 'True'}")
    if not lines:
        lines = [comment("no NFS mount to set options for")]
    return Artifact(path=PATH, content="\n".join(lines) + "\n", reasons=reasons)

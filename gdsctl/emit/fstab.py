"""Lines for /etc/fstab."""

from __future__ import annotations

from gdsctl.emit.comment import comment
from gdsctl.plan.desired import Plan
from gdsctl.plan.documents import Artifact
from gdsctl.plan.mounts import MountPlan
from gdsctl.plan.mounts import fstab_line as line


def applies(plan: Plan) -> bool:
    return any(_counts(wish) for wish in plan.mounts)


def _counts(wish: MountPlan) -> bool:
    """The root filesystem takes flags from here, its own options from the kernel command line; some keep their own line."""
    return wish.mount_with is None and (not wish.on_root or bool(wish.flags))


def emit(plan: Plan) -> Artifact:
    """A line a mount, each under what to do with it. The rest of /etc/fstab stays."""
    lines: list[str] = []
    reasons: dict[str, str] = {}
    for wish in plan.mounts:
        if not _counts(wish):
            continue
        if wish.fstab.right:
            lines += [comment(f"{wish.target}: {wish.fstab.place} is right"), comment(line(wish))]
            continue
        doing = {"new": "line to add", "none": "line as it should stand"}.get(
            wish.change, "options to change in its line"
        )
        if wish.fstab.entry is not None:
            doing = f"for {wish.fstab.place}, which lacks {','.join(wish.fstab.lacks)}"
        lines += [comment(f"{doing}: {wish.why}{'' if wish.fstab.entry else wish.by_name}"), line(wish)]
        reasons[str(len(lines))] = wish.why
    if not lines:
        lines = [comment("no mount needs a line of its own")]
    return Artifact(path="/etc/fstab", content="\n".join(lines) + "\n", reasons=reasons)

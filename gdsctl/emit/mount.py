"""Mount commands for a shell."""

from __future__ import annotations

from gdsctl.emit.comment import comment
from gdsctl.model.shell import quoted
from gdsctl.plan.desired import Plan
from gdsctl.plan.documents import Artifact


def applies(plan: Plan) -> bool:
    return bool(plan.mounts)


def emit(plan: Plan) -> Artifact:
    """One command a mount; a mount that stands as it should is a comment."""
    lines: list[str] = []
    reasons: dict[str, str] = {}
    for wish in plan.mounts:
        target = quoted(wish.target)
        lines.append(comment(wish.why))
        if wish.change == "none":
            lines.append(comment(wish.mount_command))
        elif wish.change in ("remount", "rootflags"):
            if wish.at_boot:
                lines.append(comment(f"rootflags={','.join(wish.at_boot)} on the kernel command line"))
            if wish.flags:
                lines.append(f"mount -o {quoted('remount,' + ','.join(wish.flags))} -- {target}")
        else:
            before = wish.unmount_command if wish.change == "again" else f"mkdir -p -- {target}"
            lines.append(f"{before} && {wish.mount_command}")
        reasons[str(len(lines))] = wish.why
    if not lines:
        lines = [comment("nothing to mount, and no options to change")]
    return Artifact(path="mount.sh", content="\n".join(lines) + "\n", reasons=reasons)

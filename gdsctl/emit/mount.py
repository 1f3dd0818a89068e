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
        target, source = quoted(wish.target), quoted(wish.source)
        fstype = quoted(wish.fstype)
        options = quoted(",".join(wish.options))
        lines.append(comment(wish.why))
        if wish.change == "none":
            lines.append(comment(f"mount -t {fstype} -o {options} -- {source} {target}"))
        elif wish.change in ("remount", "rootflags"):
            if wish.at_boot:
                lines.append(comment(f"rootflags={','.join(wish.at_boot)} on the kernel command line"))
            if wish.flags:
                lines.append(f"mount -o {quoted('remount,' + ','.join(wish.flags))} -- {target}")
        else:
            before = {"again": f"umount -- {target} && ", "new": f"mkdir -p -- {target} && "}[wish.change]
            lines.append(f"{before}mount -t {fstype} -o {options} -- {source} {target}")
        reasons[str(len(lines))] = wish.why
    if not lines:
        lines = [comment("nothing to mount, and no options to change")]
    return Artifact(path="mount.sh", content="\n".join(lines) + "\n", reasons=reasons)

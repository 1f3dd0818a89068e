"""The steps as text to work through by hand; lines without `#` may be pasted into a root shell."""

from __future__ import annotations

from gdsctl.emit.comment import comment
from gdsctl.plan.desired import Plan
from gdsctl.plan.documents import Artifact


def applies(plan: Plan) -> bool:
    return bool(plan.steps)


def emit(plan: Plan) -> Artifact:
    """Never a script to run as a whole: there may be a reboot in the middle, and each step wants a look."""
    lines = [comment(f"gdsctl plan, mode {plan.mode}: work through it step by step, in the folder of the artifacts")]
    if not plan.steps:
        lines.append(comment("nothing to do"))
    for step in plan.steps:
        lines += ["", comment(f"{step.order}. {step.what}")]
        if step.held:
            lines.append(comment(f"   held back, do not apply it: {step.held}"))
        if step.needs_reboot:
            lines.append(comment("   needs a reboot"))
        if step.risk:
            lines.append(comment(f"   risk: {step.risk}"))
        lines += [comment(f"   changes {change}") for change in step.changes]
        lines += list(step.commands)
        lines += [comment(f"   check: {command}") for command in step.check]
        lines += [comment(f"   undo: {command}") for command in step.undo]
    if plan.steps:
        lines += ["", comment(f"then look: {plan.verify}")]
    return Artifact(
        path="steps.txt", content="\n".join(lines) + "\n", reasons={str(s.order): s.what for s in plan.steps}
    )

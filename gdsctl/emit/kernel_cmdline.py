"""Words to add to the kernel command line, on one line."""

from __future__ import annotations

from gdsctl.plan.desired import Plan
from gdsctl.plan.documents import Artifact


def applies(plan: Plan) -> bool:
    return bool(plan.driver.arguments)


def emit(plan: Plan) -> Artifact:
    """Nothing at all where there is nothing to add. A word with `;` has quotes, which belong in the boot loader's file."""
    words = [argument.word for argument in plan.driver.arguments]
    return Artifact(
        path="kernel-cmdline",
        content=" ".join(words) + "\n" if words else "",
        reasons={
            argument.word: argument.why + ("" if argument.needed else "; advised, not needed for any route")
            for argument in plan.driver.arguments
        },
    )

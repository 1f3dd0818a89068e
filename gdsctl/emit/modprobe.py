"""A file for /etc/modprobe.d."""

from __future__ import annotations

from gdsctl.emit.comment import comment
from gdsctl.plan.desired import Plan
from gdsctl.plan.documents import Artifact
from gdsctl.plan.driver import MODPROBE


def applies(plan: Plan) -> bool:
    return plan.driver.registry_here or plan.driver.multipath_off


def emit(plan: Plan) -> Artifact:
    """Options of modprobe.d(5); NVreg_RegistryDwords is one text in double quotes."""
    lines: list[str] = []
    reasons: dict[str, str] = {}
    if plan.driver.registry is not None and not plan.driver.registry_here:
        where = ", ".join(plan.driver.other_files) or "another file"
        lines.append(
            comment(f"NVreg_RegistryDwords stands in {where} as P2PDMA needs it; a second line would replace it")
        )
    if plan.driver.registry is not None and plan.driver.registry_here:
        why = "P2PDMA: BAR1 maps all GPU memory once, not write-combined; keys that were set before are kept"
        dwords = "".join(f"{name}={value};" for name, value in plan.driver.registry.items())
        lines += [comment(why), f'options nvidia NVreg_RegistryDwords="{_safe(dwords)}"']
        reasons[str(len(lines))] = why
    if plan.driver.multipath_off:
        why = "P2PDMA: a drive behind a native multipath head has lost the kernel's mark"
        lines += [comment(why), "options nvme_core multipath=N"]
        reasons[str(len(lines))] = why
    if not lines:
        lines = [comment(f"gdsctl plan, mode {plan.mode}: no module options are needed")]
    return Artifact(path=MODPROBE, content="\n".join(lines) + "\n", reasons=reasons)


def _safe(text: str) -> str:
    """Without what would end the quotes or the line."""
    return "".join(
        character for character in text if character.isascii() and character.isprintable() and character not in '"\\'
    )

"""Lines for /etc/fstab."""

from __future__ import annotations

from gdsctl.emit.comment import comment
from gdsctl.plan.desired import Plan
from gdsctl.plan.documents import Artifact

# What separates fields, quotes, starts a comment or an escape; fstab(5) and libmount take octal.
_SPECIAL = frozenset(' "#\\')


def applies(plan: Plan) -> bool:
    return any(wish.change != "rootflags" for wish in plan.mounts)


def emit(plan: Plan) -> Artifact:
    """Six fields a mount. Local file systems are checked at boot (pass 2), network ones wait for the network."""
    lines: list[str] = []
    reasons: dict[str, str] = {}
    for wish in plan.mounts:
        if wish.change == "rootflags":
            continue
        network = wish.device is None
        options = list(wish.options)
        if network and "_netdev" not in options:
            options.append("_netdev")
        fields = (
            field(wish.source),
            field(wish.target),
            wish.fstype,
            ",".join(map(field, options)),
            "0",
            "0" if network else "2",
        )
        lines += [comment(wish.why), " ".join(fields)]
        reasons[str(len(lines))] = wish.why
    if not lines:
        lines = [comment("no mount needs a line of its own")]
    return Artifact(path="/etc/fstab", content="\n".join(lines) + "\n", reasons=reasons)


def field(text: str) -> str:
    r"""A name as one field: blanks, quotes, backslashes, `#` and control characters as `\040` and its like."""
    return "".join(c if c.isprintable() and c not in _SPECIAL else _octal(c) for c in text)


def _octal(character: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", "surrogateescape"))

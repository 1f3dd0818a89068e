"""Lines for /etc/fstab."""

from __future__ import annotations

import re

from gdsctl.emit.comment import comment
from gdsctl.plan.desired import Plan
from gdsctl.plan.documents import Artifact

# What separates or ends fields, starts a comment, or is no printable character; fstab(5) and getmntent(3) take octal.
_TO_ESCAPE = re.compile(r"[^\x21\x24-\x5b\x5d-\x7e\u00a1-\U0010ffff]|[\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


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
    return _TO_ESCAPE.sub(_octal, text)


def _octal(match: re.Match[str]) -> str:
    return "".join(f"\\{byte:03o}" for byte in match[0].encode("utf-8", "surrogateescape"))

"""systemd mount units, one after the other, each under a comment with its file name."""

from __future__ import annotations

from gdsctl.emit.comment import comment
from gdsctl.plan.desired import Plan
from gdsctl.plan.documents import Artifact
from gdsctl.plan.mounts import MountPlan

_KEPT = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789:_.")


def applies(plan: Plan) -> bool:
    return any(_counts(wish) for wish in plan.mounts)


def _counts(wish: MountPlan) -> bool:
    """The root is mounted before systemd starts, and what has a command of its own is not mounted by systemd."""
    return wish.target != "/" and wish.mount_with is None


def emit(plan: Plan) -> Artifact:
    """Names with control characters, or with blanks at an end, have no place in a unit file: left out, with the reason."""
    units: list[str] = []
    reasons: dict[str, str] = {}
    for wish in plan.mounts:
        if not _counts(wish):
            continue
        name = f"{unit_name(wish.target)}.mount"
        if not "".join((wish.target, wish.source, wish.fstype, *wish.options)).isprintable():
            units.append(comment(f"{name}: left out, a unit file cannot hold its name"))
            reasons[name] = "left out: control characters in its name"
            continue
        # Blanks around a value are taken off, and no quotes keep them (systemd.syntax(7)).
        if wish.target != wish.target.strip() or wish.named != wish.named.strip():
            units.append(comment(f"{name}: left out, a unit file cannot hold a name with blanks at an end"))
            reasons[name] = "left out: blanks at an end of its name"
            continue
        network = wish.network
        order = ["After=network-online.target", "Wants=network-online.target"] if network else []
        limits = []
        for option in wish.boot_options:  # what systemd's fstab generator makes of them (systemd.mount(5))
            option_name, _, value = option.partition("=")
            if option_name == "x-systemd.requires":
                order += [f"After={value}", f"Requires={value}"]
            elif option_name == "x-systemd.mount-timeout":
                limits = [f"TimeoutSec={value}"]
        units.append(
            "\n".join(
                (
                    comment(f"/etc/systemd/system/{name}"),
                    "[Unit]",
                    comment(f"{wish.why}{wish.by_name}"),
                    *order,
                    "",
                    "[Mount]",
                    f"What={_value(wish.named)}",
                    f"Where={_value(wish.target)}",
                    f"Type={wish.fstype}",
                    f"Options={_value(','.join(wish.options))}",
                    *limits,
                    "",
                    "[Install]",
                    f"WantedBy={'remote-fs.target' if network else 'local-fs.target'}",
                )
            )
        )
        reasons[name] = wish.why
    if not units:
        units = [comment("no mount needs a unit")]
    return Artifact(path="/etc/systemd/system", content="\n\n".join(units) + "\n", reasons=reasons)


def unit_name(path: str) -> str:
    r"""As systemd-escape --path: `/` is `-`, all but letters, digits, `:_.` is `\xNN`, a leading dot too (systemd.unit(5))."""
    text = path.strip("/")
    if not text:
        return "-"
    out = []
    for position, byte in enumerate(text.encode("utf-8", "surrogateescape")):
        character = chr(byte)
        if character == "/":
            out.append("-")
        elif character in _KEPT and not (position == 0 and character == "."):
            out.append(character)
        else:
            out.append(f"\\x{byte:02x}")
    return "".join(out)


def _value(text: str) -> str:
    """`%` starts a specifier and a backslash at the end joins lines (systemd.syntax(7))."""
    text = text.replace("%", "%%")
    return text + "/" if text.endswith("\\") else text

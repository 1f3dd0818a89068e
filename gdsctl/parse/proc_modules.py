"""/proc/modules. Layout: Linux, kernel/module/procfs.c, m_show()."""

from __future__ import annotations

import re

from gdsctl.errors import InputError
from gdsctl.parse import pasted, terminal
from gdsctl.record import Record, Warned


class LoadedModule(Record, frozen=True, kw_only=True):
    """`size`: bytes; `refcount` None: the kernel does not count; `used_by` None: not readable.

    `state`: Live | Loading | Unloading, None where the text does not say; `taint`: letters without parentheses, "" for
    a module that taints nothing, None where the text does not say.
    """

    size: int
    refcount: int | None = None
    used_by: tuple[str, ...] | None = ()
    state: str | None = None
    taint: str | None = None


class Modules(Record, frozen=True, kw_only=True):
    modules: dict[str, LoadedModule]
    truncated: bool = False
    warnings: tuple[Warned, ...] = ()


_ROW = re.compile(
    r"\s*(?P<name>[\w.-]{1,128})[ \t]+(?P<size>\d{1,18})[ \t]+(?P<refcount>-?\d{1,9}|-)[ \t]+(?P<users>-|[\w.\[\],-]+)"
    r"[ \t]+(?P<state>Live|Loading|Unloading)[ \t]+(?:0x)?[0-9a-fA-F]+(?:[ \t]+\((?P<taint>[A-Z+-]*)\))?\s*",
    re.ASCII,
)


def read_row(line: str) -> tuple[str, LoadedModule] | None:
    """One line of /proc/modules as (name, module), or None."""
    match = _ROW.fullmatch(line)
    if match is None:
        return None
    count = match["refcount"]
    users = () if match["users"] == "-" else tuple(user for user in match["users"].split(",") if user)
    return match["name"], LoadedModule(
        size=int(match["size"]),
        refcount=None if count.startswith("-") else int(count),
        used_by=tuple(user for user in users if user != "[permanent]"),
        state=match["state"],
        taint=match["taint"] or "",
    )


def parse(text: str) -> Modules:
    """Modules by name, in the order listed (newest first). An empty text is a kernel without modules."""
    modules: dict[str, LoadedModule] = {}
    warnings: list[Warned] = []
    truncated = False
    for number, line in enumerate(pasted.lines(text), 1):
        if not line.strip() or terminal.is_chrome(line):
            continue
        row = read_row(line)
        truncated = row is None
        if row is None:
            warnings.append(Warned(line=number, message="not a line of /proc/modules"))
        elif row[0] in modules:
            warnings.append(Warned(line=number, message=f"{row[0]} stands here twice; the first is kept"))
        else:
            modules[row[0]] = row[1]
    if warnings and not modules:
        raise InputError("not the text of /proc/modules", line=warnings[0].line)
    return Modules(modules=modules, truncated=truncated, warnings=tuple(warnings))

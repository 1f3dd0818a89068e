"""`lsmod`, whole or through grep, as people paste it. Layout: kmod, tools/lsmod.c."""

from __future__ import annotations

import re

from gdsctl.errors import InputError
from gdsctl.parse import pasted, terminal
from gdsctl.parse.proc_modules import LoadedModule, Modules, read_row
from gdsctl.record import Warned

_HEADER = re.compile(r"\s*Module\s+Size\s+Used\s+by\s*")
_NAME = re.compile(r"\s*([\w.-]{1,128})\s*", re.ASCII)
_ROW = re.compile(r"\s*([\w.-]{1,128})[ \t]+(\d{1,18})[ \t]+(-?\d{1,9})(?:[ \t]+(\S.*))?", re.ASCII)
_NUMBERS = re.compile(r"\s*\d{1,18}[ \t]+-?\d{1,9}(?:[ \t].*)?", re.ASCII)
_USERS = re.compile(r"\s*,?[A-Za-z_][\w.-]*(?:,[ \t]*[\w.-]+)*,?\s*", re.ASCII)
_USER = re.compile(r"[\w.-]+|\[permanent\]", re.ASCII)

_MOST_TAILS = 64


class _Row:
    """A row while its lines come in. `users` None: the column could not be read."""

    def __init__(self, name: str, size: int, refcount: int | None, users: str | None, line: int) -> None:
        self.name, self.size, self.refcount, self.users, self.line = name, size, refcount, users, line
        self.tails: list[tuple[int, str]] = []


def _users(cell: str | None) -> tuple[str, ...] | None:
    names = [name.strip() for name in (cell or "").split(",")]
    names = [name for name in names if name]
    if any(_USER.fullmatch(name) is None for name in names):
        return None
    return tuple(name for name in names if name != "[permanent]")


def _with_tails(row: _Row, known: set[str], warnings: list[Warned]) -> LoadedModule:
    """The row with its wrapped lines. A name cut by the wrap is joined only to the name of a listed module."""
    cell = (row.users or "").rstrip()
    if len(row.tails) > _MOST_TAILS:
        warnings.append(Warned(line=row.line, message=f"users of {row.name} run over too many lines"))
        return LoadedModule(size=row.size, refcount=row.refcount, used_by=None)
    for number, tail in row.tails:
        if not cell or cell.endswith(",") or tail.startswith(","):
            cell += tail
            continue
        head, _, left = cell.rpartition(",")
        right, _, rest = tail.partition(",")
        if left + right in known:
            cell = ",".join(part for part in (head, left + right, rest) if part)
        else:
            warnings.append(Warned(line=number, message=f"users of {row.name} are wrapped inside a name"))
            return LoadedModule(size=row.size, refcount=row.refcount, used_by=None)
    users = _users(cell)
    if users is None:
        warnings.append(Warned(line=row.line, message=f"users of {row.name} can't be read"))
    return LoadedModule(size=row.size, refcount=row.refcount, used_by=users)


def parse(text: str) -> Modules:
    """Modules by name, in the order listed; `state` and `taint` stay None. Lines of /proc/modules are read as well."""
    rows: list[_Row] = []
    finished: dict[str, LoadedModule] = {}
    order: dict[str, None] = {}
    warnings: list[Warned] = []
    header = truncated = False
    pending: tuple[int, str] | None = None

    for number, pasted_line in enumerate(pasted.lines(text), 1):
        line = pasted_line
        if not line.strip() or terminal.is_chrome(line):
            continue
        if _HEADER.fullmatch(line):
            header = True
            continue
        truncated = False
        if (direct := read_row(line)) is not None:
            if direct[0] not in order:
                finished[direct[0]] = direct[1]
                order[direct[0]] = None
            continue
        if pending is not None:
            joined, pending = (pending, None)
            if _NUMBERS.fullmatch(line):
                line = f"{joined[1]} {line.strip()}"
            elif rows and rows[-1].users and _USERS.fullmatch(joined[1]):
                rows[-1].tails.append((joined[0], joined[1].strip()))
            else:
                warnings.append(Warned(line=joined[0], message="not a row of lsmod"))
        match = _ROW.fullmatch(line.rstrip())
        if match is not None:
            name, size, count, users = match.groups()
            if name in order:
                warnings.append(Warned(line=number, message=f"{name} stands here twice; the first is kept"))
                continue
            order[name] = None
            rows.append(_Row(name, int(size), None if count.startswith("-") else int(count), users, number))
        elif rows and rows[-1].users and rows[-1].users.rstrip().endswith(",") and _USERS.fullmatch(line):
            rows[-1].tails.append((number, line.strip()))
        elif _NAME.fullmatch(line):
            pending = (number, line.strip())
            truncated = True
        elif rows and rows[-1].users and _USERS.fullmatch(line):
            rows[-1].tails.append((number, line.strip()))
        else:
            truncated = True
            warnings.append(Warned(line=number, message="not a row of lsmod"))

    if pending is not None:
        warnings.append(Warned(line=pending[0], message="a row without its size"))
    if not order and not header:
        raise InputError("not the output of lsmod", line=warnings[0].line if warnings else 1)
    known = set(order)
    for row in rows:
        finished[row.name] = _with_tails(row, known, warnings)
    if rows and not truncated:
        last = rows[-1]
        if (last.tails[-1][1] if last.tails else last.users or "").rstrip().endswith(","):
            truncated = True
            warnings.append(Warned(line=last.line, message=f"users of {last.name} end in a comma"))
    return Modules(
        modules={name: finished[name] for name in order},
        truncated=truncated,
        warnings=tuple(sorted(warnings, key=lambda warned: warned.line)),
    )

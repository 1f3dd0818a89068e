"""Names of nodes folded as ClusterShell, pdsh and Slurm write them: gpu[001-003,007]."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable

_NUMBERED = re.compile(r"(.*?)(\d{1,15})(\D*)", re.DOTALL)
_PLAIN = re.compile(r"[A-Za-z0-9_.-]+")


def fold(names: Iterable[str]) -> str:
    """One expression for a set of names, ClusterShell's own where that is installed; names in numeric order."""
    wanted = sorted(set(names), key=_order)
    if all(_PLAIN.fullmatch(name) for name in wanted):
        try:
            library = importlib.import_module("ClusterShell.NodeSet")
        except ImportError:
            pass
        else:
            return str(library.NodeSet.fromlist(wanted))
    return _fold(wanted)


def _fold(names: list[str]) -> str:
    """Over the last number of a name; `01` and `1` are different names, so the padding is part of a group."""
    groups: dict[tuple[str, str, int], list[int]] = {}
    parts: list[tuple[str, str, int] | str] = []
    split = [_NUMBERED.fullmatch(name) for name in names]
    padded = {(m[1], m[3], len(m[2])) for m in split if m and m[2].startswith("0") and len(m[2]) > 1}
    for name, match in zip(names, split, strict=True):
        if match is None:
            parts.append(name)
            continue
        key = (match[1], match[3], len(match[2]))
        key = key if key in padded else (match[1], match[3], 0)
        if key not in groups:
            parts.append(key)
        groups.setdefault(key, []).append(int(match[2]))
    return ",".join(part if isinstance(part, str) else _group(part, groups[part]) for part in parts)


def _group(key: tuple[str, str, int], numbers: list[int]) -> str:
    before, after, width = key
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    told = ",".join(f"{a:0{width}d}" if a == b else f"{a:0{width}d}-{b:0{width}d}" for a, b in runs)
    return f"{before}{told}{after}" if len(numbers) == 1 else f"{before}[{told}]{after}"


def _order(name: str) -> tuple[str, str, int, str]:
    match = _NUMBERED.fullmatch(name)
    return (match[1], match[3], int(match[2]), match[2]) if match else (name, "", -1, "")

"""Sizes as fio and dd take them."""

from __future__ import annotations

import re

from gdsctl.errors import UsageError

_SIZE = re.compile(r"(\d{1,15})(?:\.(\d{1,6}))?\s*([kmgt]?)(i?b)?", re.IGNORECASE | re.ASCII)
_UNITS: dict[str, int] = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def size(text: str) -> int:
    """Bytes of `4k`, `1M`, `1.5GiB`, `4096`: always powers of 1024, as fio has it. Raises UsageError for anything else."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a size such as 4k, 1M or 2G")
    unit: int = _UNITS[match[3].lower()]
    fraction = match[2] or ""
    scaled, rest = divmod(int(match[1] + fraction) * unit, int("1" + "0" * len(fraction)))
    if rest:
        raise UsageError(f"{text!r} is not a whole number of bytes")
    return scaled


def words(count: float) -> str:
    """Bytes with a binary unit, whole where they are: `4 KiB`, `1.5 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"

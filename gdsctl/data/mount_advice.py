"""What a mount needs besides its options: rows of `mount_advice.toml`."""

from __future__ import annotations

import functools

from gdsctl.data.tables import load
from gdsctl.record import Record


class Advice(Record, frozen=True, kw_only=True):
    """`kind`: of a mount's backing; `check`: commands that show whether it is so, names in capitals to be filled in."""

    kind: str
    advice: str
    check: str
    source: str


class _Table(Record, frozen=True, kw_only=True):
    advice: tuple[Advice, ...]


@functools.cache
def _by_kind() -> dict[str, Advice]:
    return {row.kind: row for row in load("mount_advice.toml", _Table).advice}


def advice(kind: str) -> Advice | None:
    """The row of a backing's kind; None where there is none."""
    return _by_kind().get(kind)

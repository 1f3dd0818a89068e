"""What a mount needs besides its options: rows of `mount_advice.toml`."""

from __future__ import annotations

import functools

from gdsctl.data.tables import load
from gdsctl.record import Record


class Advice(Record, frozen=True, kw_only=True):
    """`kind`: of a mount's backing; `since`: first versions of the client and of what it needs.

    `check`: commands that show whether it is so, names in capitals to be filled in.
    """

    kind: str
    advice: str
    since: str | None = None
    check: str
    source: str

    @property
    def said(self) -> str:
        """One sentence with its versions and where to look."""
        return f"{self.advice}{f' (from {self.since})' if self.since else ''} (look: {self.check})"


class _Table(Record, frozen=True, kw_only=True):
    advice: tuple[Advice, ...]


@functools.cache
def _rows() -> tuple[Advice, ...]:
    return load("mount_advice.toml", _Table).advice


def advice(kind: str) -> tuple[Advice, ...]:
    """The rows of a backing's kind, in their order."""
    return tuple(row for row in _rows() if row.kind == kind)

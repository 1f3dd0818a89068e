"""What one process wrote into cufile.log."""

from __future__ import annotations

from gdsctl.record import Record


class CufileRun(Record, frozen=True, kw_only=True):
    """`first`, `last`: ISO 8601 in the process's local time; `levels`, `meanings` (ids of `cufile_log.toml`): counts.

    `findings`: ids that `gdsctl explain` knows, of what the meanings may come from.
    """

    pid: int
    first: str
    last: str
    lines: int
    levels: dict[str, int]
    meanings: dict[str, int]
    findings: tuple[str, ...] = ()

"""The base of every record: immutable, keyword-only, unknown fields refused."""

from __future__ import annotations

import msgspec


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row of facts. Field names carry their unit (`_bytes`, `_gts`, `_gbps`); None means not known or none."""


class Warned(Record, frozen=True, kw_only=True):
    """A line that a parser could not read, and why."""

    line: int
    message: str

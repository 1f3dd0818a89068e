"""Which files hold nothing but an identity, and which identities are no secret."""

from __future__ import annotations

from functools import cache
from typing import Literal

from gdsctl.data.tables import load
from gdsctl.record import Record


class SecretFile(Record, frozen=True, kw_only=True):
    """`match`: the end of a path after a slash; `kind`: how its content is read; `source`: who defines the file."""

    match: str
    kind: Literal["serial", "host", "words", "hex"]
    source: str


class PublicUuid(Record, frozen=True, kw_only=True):
    """A UUID that names a kind of thing, the same on every machine."""

    uuid: str
    source: str


class _Table(Record, frozen=True, kw_only=True):
    files: tuple[SecretFile, ...]
    public: tuple[PublicUuid, ...]


@cache
def _table() -> _Table:
    return load("redaction.toml", _Table)


@cache
def secret_files() -> dict[str, SecretFile]:
    """Rows by the last part of their path; a row of two parts also asks for the folder."""
    return {row.match.rpartition("/")[2]: row for row in _table().files}


def public_digits() -> tuple[str, ...]:
    """The 32 hexadecimal digits of UUIDs that stay."""
    return tuple(row.uuid.replace("-", "") for row in _table().public)

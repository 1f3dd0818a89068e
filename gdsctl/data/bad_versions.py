"""Releases of nvidia_fs that must not be used: rows of `bad_versions.toml`."""

from __future__ import annotations

import functools

from gdsctl.data.tables import load
from gdsctl.record import Record


class BadVersion(Record, frozen=True, kw_only=True):
    version: str
    fixed_in: str
    fault: str
    source: str


class _Table(Record, frozen=True, kw_only=True):
    release: tuple[BadVersion, ...]


@functools.cache
def bad_versions() -> tuple[BadVersion, ...]:
    return load("bad_versions.toml", _Table).release

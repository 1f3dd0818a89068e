"""What `verify --require` may name, and the profiles made of it: rows of `profiles.toml`."""

from __future__ import annotations

import functools
from typing import Literal

from gdsctl.data.tables import load
from gdsctl.record import Record


class Fact(Record, frozen=True, kw_only=True):
    """`read`: dotted path into the `inspect` document, or `cufile:` and a cufile.json key; `values`: words it may be."""

    read: str
    type: Literal["word", "version", "boolean", "count"]
    values: tuple[str, ...] = ()
    settle_with: str
    source: str


class Profile(Record, frozen=True, kw_only=True):
    about: str
    require: tuple[str, ...]
    source: str


class _Table(Record, frozen=True, kw_only=True):
    facts: dict[str, Fact]
    profiles: dict[str, Profile]


@functools.cache
def _table() -> _Table:
    return load("profiles.toml", _Table)


def facts() -> dict[str, Fact]:
    return _table().facts


def profiles() -> dict[str, Profile]:
    return _table().profiles

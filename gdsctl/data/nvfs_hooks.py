"""Symbols by which a storage module lets nvidia-fs in: rows of `nvfs_hooks.toml`."""

from __future__ import annotations

import functools

from gdsctl.data.tables import load
from gdsctl.record import Record


class NvfsHookFacts(Record, frozen=True, kw_only=True):
    """One storage module that nvidia-fs knows.

    `name`: as in /proc/driver/nvidia-fs/modules; `module`: the kernel module that exports the symbols. `register` and
    `unregister` run parallel, one pair an interface version (v1, then v2); a patched module exports both of a pair;
    empty for an entry that is always listed. `serves`: kinds of target; `since`: nvidia-fs release, None: all.
    `gdscheck`: the driver row that says `Supported`, or from GDS 1.16 on lists `nvfs`, exactly where nvidia-fs runs and
    lists this module; None where other modules or user-space RDMA decide as well. `denied_with`: further kinds of
    target that denylist.drivers shuts out under this module's name.
    """

    name: str
    module: str
    register: tuple[str, ...] = ()
    unregister: tuple[str, ...] = ()
    serves: tuple[str, ...] = ()
    since: str | None = None
    gdscheck: str | None = None
    denied_with: tuple[str, ...] = ()
    source: str


class _Table(Record, frozen=True, kw_only=True):
    hook: tuple[NvfsHookFacts, ...]


@functools.cache
def hooks() -> dict[str, NvfsHookFacts]:
    """The rows by the name that /proc/driver/nvidia-fs/modules shows."""
    return {row.name: row for row in load("nvfs_hooks.toml", _Table).hook}


@functools.cache
def symbols() -> tuple[str, ...]:
    """Every register and unregister symbol."""
    return tuple(symbol for row in hooks().values() for symbol in row.register + row.unregister)

"""Kernel modules that decide whether a path goes direct: rows of `modules.toml`."""

from __future__ import annotations

import functools

from gdsctl.data.tables import load
from gdsctl.record import Record


class ModuleFacts(Record, frozen=True, kw_only=True):
    """`in_tree`: part of Linux, so that it may be built in; `parameters`: the ones worth reading.

    `modinfo`: name of the command in `gdsctl.source.commands` that describes the module's file.
    """

    name: str
    meaning: str
    in_tree: bool = False
    parameters: tuple[str, ...] = ()
    modinfo: str | None = None
    source: str


class _Table(Record, frozen=True, kw_only=True):
    module: tuple[ModuleFacts, ...]


@functools.cache
def modules() -> dict[str, ModuleFacts]:
    """The rows by module name, underscores as the kernel writes them."""
    return {row.name: row for row in load("modules.toml", _Table).module}

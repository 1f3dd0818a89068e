"""PCI class codes by name: rows of `pci_classes.toml`."""

from __future__ import annotations

import functools

from gdsctl.data.tables import load
from gdsctl.record import Record


class PciClass(Record, frozen=True, kw_only=True):
    """`code`: class and subclass, 4 hex digits; `interface`: the only programming interface there is, 2 hex digits."""

    name: str
    code: str
    interface: str | None = None
    source: str


class _Tables(Record, frozen=True, kw_only=True, rename={"classes": "class"}):
    classes: tuple[PciClass, ...]


@functools.cache
def classes() -> tuple[PciClass, ...]:
    return load("pci_classes.toml", _Tables).classes


@functools.cache
def _by_name() -> dict[str, PciClass]:
    return {row.name.lower(): row for row in classes()}


@functools.cache
def _by_code() -> dict[str, PciClass]:
    return {row.code: row for row in classes()}


def code(name: str) -> str | None:
    """Class and subclass of a name as lspci prints it; None for one that is not in the table."""
    row = _by_name().get(name.lower())
    return row.code if row else None


def with_interface(class_code: str) -> str:
    """Six digits where four leave no choice, else the four."""
    row = _by_code().get(class_code)
    return class_code + (row.interface or "" if row else "")

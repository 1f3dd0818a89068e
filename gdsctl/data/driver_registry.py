"""Driver registry keys that P2PDMA needs: rows of `driver_registry.toml`."""

from __future__ import annotations

import functools

from gdsctl.data.tables import load
from gdsctl.record import Record


class RegistryKey(Record, frozen=True, kw_only=True):
    """`set_to`: what to write; `accepted`: values that do; `before_hopper`: asked for by older GPUs only."""

    name: str
    set_to: str
    accepted: tuple[str, ...]
    default: str
    arch: str
    before_hopper: bool = False
    meaning: str
    source: str

    def satisfied_by(self, value: str | None) -> bool:
        """Does a value as /proc/driver/nvidia/params or modprobe.d writes it (decimal or 0x hex) do?"""
        if value is None:
            return False
        try:
            return str(int(value, 0)) in self.accepted
        except ValueError:
            return False


class _Table(Record, frozen=True, kw_only=True):
    key: tuple[RegistryKey, ...]


@functools.cache
def registry_keys() -> tuple[RegistryKey, ...]:
    return load("driver_registry.toml", _Table).key

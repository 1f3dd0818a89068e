"""What differs between distributions in the steps of a plan: rows of `distributions.toml`."""

from __future__ import annotations

import functools
from typing import Literal

from gdsctl.data.tables import load
from gdsctl.record import Record


class Distribution(Record, frozen=True, kw_only=True):
    """`ids`: of os-release. `initramfs`: rebuilds all of them; `initramfs_check`: prints a line where the image of the
    running kernel holds /etc/modprobe.d/gdsctl.conf. `boot_loader`: who keeps the kernel's arguments.
    """

    name: str
    ids: tuple[str, ...]
    initramfs: str
    initramfs_check: str
    boot_loader: Literal["grub.d", "grubby", "pbl"]
    install: str
    source: str


class _Table(Record, frozen=True, kw_only=True):
    distribution: tuple[Distribution, ...]


@functools.cache
def distributions() -> tuple[Distribution, ...]:
    return load("distributions.toml", _Table).distribution


def distribution(os_id: str | None) -> Distribution | None:
    """The row of an os-release ID; None for one that no row names."""
    return next((row for row in distributions() if os_id in row.ids), None)

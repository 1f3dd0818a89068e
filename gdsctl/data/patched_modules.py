"""Which package or kernel brings storage modules that nvidia-fs can register with: rows of `patched_modules.toml`."""

from __future__ import annotations

import functools

from gdsctl.data.tables import load
from gdsctl.record import Record


class Package(Record, frozen=True, kw_only=True):
    """`hooks`: names of nvfs_hooks.toml. `kernel_from`, `kernel_below`: mainline (major, minor) it is for.

    `ids`: distributions (os-release ID), none: all. `except_versions`: which of its own versions. `verified` false: no
    page or source of its maker says so.
    """

    hooks: tuple[str, ...]
    name: str
    how: str
    kernel_from: tuple[int, int] | None = None
    kernel_below: tuple[int, int] | None = None
    except_versions: str = ""
    ids: tuple[str, ...] = ()
    verified: bool = True
    source: str

    @property
    def said(self) -> str:
        limits = [self.except_versions] if self.except_versions else []
        if not self.verified:
            limits.append("not verified: look for nvfs_dma_ops in /proc/kallsyms once the module is loaded")
        return self.how + (f" ({'; '.join(limits)})" if limits else "")


class _Table(Record, frozen=True, kw_only=True):
    package: tuple[Package, ...]


@functools.cache
def packages() -> tuple[Package, ...]:
    return load("patched_modules.toml", _Table).package


def bringing(hook: str, kernel: tuple[int, int, int] | None, os_id: str | None) -> tuple[Package, ...]:
    """Those that fit a kernel and distribution; what is not known of them excludes none."""
    return tuple(
        row
        for row in packages()
        if hook in row.hooks
        and (kernel is None or row.kernel_from is None or kernel[:2] >= row.kernel_from)
        and (kernel is None or row.kernel_below is None or kernel[:2] < row.kernel_below)
        and (os_id is None or not row.ids or os_id in row.ids)
    )

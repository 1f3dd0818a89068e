"""What stands against nvidia-fs and P2PDMA on this node, mount by mount, and what would have to change."""

from __future__ import annotations

from collections.abc import Collection

from gdsctl.assess.view import Storage
from gdsctl.data import cufile_keys
from gdsctl.data.patched_modules import bringing
from gdsctl.plan.context import Context


def against(context: Context, told: Collection[str] = ()) -> tuple[str, ...]:
    """One sentence a mode and reason, mounts with the same reason together; nothing where a mode can carry a mount.

    `told`: mounts of which it is said elsewhere why P2PDMA does not carry them.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for wish, storage in context.direct_storages:
        for mode, why in (
            ("p2pdma", None if wish.target in told else _p2pdma(context, storage)),
            ("nvidia-fs", _nvidia_fs(context, storage)),
        ):
            if why:
                found.setdefault((mode, why), []).append(wish.target)
    return tuple(f"against {mode} for {', '.join(targets)}: {why}" for (mode, why), targets in found.items())


def _p2pdma(context: Context, storage: Storage) -> str | None:
    row, platform = storage.direct, context.node.platform
    if context.p2pdma_able(storage) or row is None:
        return None
    kind = getattr(row, "label", row.name)
    if not storage.takes_p2pdma:
        return f"P2PDMA does not carry {kind}"
    kernel = platform.kernel_version
    if row.p2pdma_kernel and kernel and kernel[:2] < row.p2pdma_kernel:
        wanted = ".".join(map(str, row.p2pdma_kernel))
        return f"{kind} needs Linux {wanted} or newer for it, this is {platform.kernel}"
    since = row.p2pdma_since
    if since and context.version and cufile_keys.release(context.version) < cufile_keys.release(since):
        return f"{kind} needs GDS {since} or newer for it, this is {context.version}"
    return None


def _nvidia_fs(context: Context, storage: Storage) -> str | None:
    if storage.takes_user_rdma:  # libcufile goes there itself
        return None
    name = storage.hook or ""
    hook = context.node.nvfs_hooks.get(name)
    if not storage.takes_nvidia_fs:
        return f"nvidia-fs does not carry {storage.mount.fstype}"
    if hook is None or context.nvidia_fs_able(storage):
        return None
    platform = context.node.platform
    ways = " or ".join(row.said for row in bringing(name, platform.kernel_version, platform.os_id)[:2])
    what = "registers by another version of the symbol" if hook.mismatched else "is the stock one"
    return f"the module {name} {what}" + (f"; {ways} brings one" if ways else "")

from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Scope, Verdict, seen
from gdsctl.assess.view import Storage, View
from gdsctl.data.nvfs_hooks import hooks
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    for kind in ("drivers", "devices", "mounts", "filesystems"):
        key = f"denylist.{kind}"
        named = view.config.get(key) or ()
        hit = [storage.mount.target for storage in view.storages if not _names(view, storage, kind).isdisjoint(named)]
        if hit:
            yield Fail(
                subject=key,
                message=f"{key} shuts {', '.join(hit)} out of GDS",
                evidence=seen(
                    key, ", ".join(map(str, named)), view.config.origin_of(f"/denylist/{kind}") or "cufile.json"
                ),
                scope=Scope(mounts=frozenset(hit)),
            )


def _names(view: View, storage: Storage, kind: str) -> frozenset[str]:
    """What a list of this kind may call the storage."""
    mount = storage.mount
    if kind == "mounts":
        return frozenset({mount.target})
    if kind == "filesystems":
        return frozenset({mount.fstype})
    if kind == "drivers":
        hook = storage.hook or ""
        served = hooks()[hook].serves if hook in hooks() else ()
        also = {row.module for row in hooks().values() if not set(row.denied_with).isdisjoint(served)}
        return frozenset({hook, *also}) - {""}
    return frozenset(f"/dev/{block.name}" for block in view.stack(mount.device)) if mount.device else frozenset()


RULE = Rule(
    id="cufile.denylisted",
    severity="warning",
    problem="cufile.json shuts a mount out of GDS",
    why="The section denylist names drivers, devices, mounts or file systems that libcufile does not touch; the log says "
    "'cuFile support has been disabled'.",
    look_at=("grep -A8 denylist /etc/cufile.json", "grep 'support has been disabled' cufile.log"),
    remedy=Remedy(text="Take the entry out of denylist where the mount is meant to go direct."),
    not_to_conclude="It may be meant so: an administrator's choice.",
    source="NVIDIA GDS Configuration Guide, denylist; libcufile log texts 'cuFile support has been disabled for'",
    blocks=("nvidia-fs", "p2pdma", "c2c", "rdma"),
    check=check,
)

"""StorageClasses, volumes and claims by themselves: what they tell of the way of the bytes, and what they leave open."""

from __future__ import annotations

from gdsctl.data import app_storage, filesystems
from gdsctl.data.app_edges import Helps
from gdsctl.kvcache.launch import Place, StorageObject
from gdsctl.kvcache.stack import EdgeRoute
from gdsctl.parse import nfs_options
from gdsctl.record import Record

_HELPS: dict[str, Helps] = {"yes": "yes", "reads": "half", "no": "no", "unknown": "unknown"}


class Stored(Record, frozen=True, kw_only=True):
    """`gds_helps`: could GPUDirect Storage carry what such storage holds, by its kind alone; `needs`: what to give beside it.

    `routes`: of the node's mount that it becomes, None where no node was looked at or none is it.
    """

    kind: str
    name: str
    source: Place
    gds_helps: Helps
    because: str
    needs: tuple[str, ...] = ()
    routes: tuple[EdgeRoute, ...] | None = None


def stored(storage: tuple[StorageObject, ...], *, started: bool) -> tuple[Stored, ...]:
    """`started`: do the files start a program that keeps a KV cache or loads weights?"""
    told = []
    for found in storage:
        helps, because = _carried(found, storage)
        needs = _needs(found, storage)
        if not started:
            needs = (*needs, "the manifest of the pod that mounts it and of the program that it runs")
        told.append(
            Stored(kind=found.kind, name=found.name, source=found.place, gds_helps=helps, because=because, needs=needs)
        )
    return tuple(told)


def _carried(found: StorageObject, storage: tuple[StorageObject, ...]) -> tuple[Helps, str]:
    if found.kind == "PersistentVolumeClaim":
        behind = _behind(found, storage)
        if behind is None:
            return "unknown", "a claim says how much and from which class, not what is mounted"
        helps, because = _carried(behind, storage)
        return helps, f"{behind.kind} {behind.name}: {because}"
    if found.source is not None:
        return _of("nfs", f"a volume on {found.source}", found.options)
    if found.host_path is not None:
        return "unknown", f"{found.host_path} on the node: its file system and its drives decide"
    row = app_storage.driver(found.driver or "")
    if row is None:
        what = f"what {found.driver} mounts" if found.driver else "what is mounted"
        return "unknown", f"{what} is not known to gdsctl"
    return _of(row.filesystem, row.name, found.options)


def _of(filesystem: str, what: str, options: tuple[str, ...]) -> tuple[Helps, str]:
    row = next(row for row in filesystems.tables().filesystem if row.name == filesystem)
    if filesystem != "nfs":
        return _HELPS[row.nvidia_fs], f"{what}: {row.name}"
    if nfs_options.parse(",".join(options)).proto == "rdma":
        return "yes", f"{what}: NFS over RDMA, which goes direct where rpcrdma is registered with nvidia-fs"
    return "no", f"{what}: NFS without proto=rdma in its mountOptions goes over TCP, every byte through the CPU"


def _behind(claim: StorageObject, storage: tuple[StorageObject, ...]) -> StorageObject | None:
    """The claim's volume, else its class, where the files hold it."""
    named = {(found.kind, found.name): found for found in storage}
    return (
        named.get(("PersistentVolume", claim.volume or ""))
        or next((v for v in storage if v.kind == "PersistentVolume" and v.claim == claim.name), None)
        or named.get(("StorageClass", claim.storage_class or ""))
    )


def _needs(found: StorageObject, storage: tuple[StorageObject, ...]) -> tuple[str, ...]:
    if found.kind == "PersistentVolumeClaim" and _behind(found, storage) is None:
        if found.volume is not None:
            return (f"PersistentVolume {found.volume}",)
        if found.storage_class is not None:
            return (f"StorageClass {found.storage_class}",)
        return ("its StorageClass or PersistentVolume",)
    claims = [one for one in storage if one.kind == "PersistentVolumeClaim"]
    if found.kind == "StorageClass" and not any(claim.storage_class == found.name for claim in claims):
        return (f"a PersistentVolumeClaim of class {found.name}",)
    if found.kind == "PersistentVolume" and not any(_behind(claim, storage) is found for claim in claims):
        return (f"the PersistentVolumeClaim that {found.name} belongs to",)
    return ()

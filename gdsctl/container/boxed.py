"""The container around a KV cache's program as what it is given: the same that the readers of container files tell."""

from __future__ import annotations

from collections.abc import Mapping

from gdsctl.container.given import Bind, Given, Kind
from gdsctl.container.read import UNLIMITED_BYTES, through_runtime, visible
from gdsctl.kvcache.launch import Container, Volume

_KINDS: dict[str, Kind] = {"compose": "compose", "kubernetes": "kubernetes"}


def given(box: Container, mounts: Mapping[str, str]) -> Given:
    """`mounts`: path in the container -> mount of the node, for volumes whose place is known by more than the container."""
    kubernetes = box.kind == "kubernetes"
    cdi = tuple(device for device in box.devices if not device.startswith("/") and "=" in device)
    gpus = any("gpu" in name or name == "claim" for name in box.resources)
    plugin = bool(cdi) or (kubernetes and gpus)
    others = [name for name in box.resources if "gpu" not in name and name not in ("cpu", "memory")]
    ipc_lock = box.privileged or any(name in ("IPC_LOCK", "CAP_IPC_LOCK", "ALL") for name in box.capabilities)
    return Given(
        name=box.name,
        kind=_KINDS.get(box.kind, "docker"),
        file=box.place.file,
        line=box.place.line or 1,
        image=box.image,
        binds=tuple(_bind(volume, mounts) for volume in box.volumes if volume.path.startswith("/")),
        # A device that a pod only mounts as a folder its device cgroup does not let be opened.
        devices=() if kubernetes else tuple(device for device in box.devices if device not in cdi),
        env=box.env,
        cdi=cdi,
        gpus=True if gpus else None if kubernetes else through_runtime(box.toolkit, visible(box.env)),
        toolkit=box.toolkit,
        plugin=plugin,
        rdma_plugin=plugin or bool(others),
        privileged=box.privileged,
        ipc_lock=ipc_lock,
        memlock_bytes=UNLIMITED_BYTES if box.memlock_unlimited else None,
        host_network=True if box.host_network else None,
    )


def _bind(volume: Volume, mounts: Mapping[str, str]) -> Bind:
    source = volume.host_path if (volume.host_path or "").startswith("/") else mounts.get(volume.path)
    kind = "tmpfs" if volume.kind == "tmpfs" else "bind" if source is not None else volume.kind or "volume"
    return Bind(target=volume.path, source=source, kind=kind)

"""Stacks held against a node: the route of each tier's mount for its GPUs, and what the container around them lacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from gdsctl.kvcache.findings import finding, seen
from gdsctl.kvcache.launch import Claim, Container, Volume
from gdsctl.kvcache.stack import Draft, Edge, EdgeRoute
from gdsctl.model.devices import Mount
from gdsctl.model.judgement import Evidence, Finding, Route
from gdsctl.model.node import Report

_DIRECT = ("nvidia-fs", "p2pdma", "c2c", "rdma")


def on_node(
    drafts: tuple[Draft, ...], node: Report, claims: Mapping[str, Claim]
) -> tuple[tuple[Draft, ...], tuple[Finding, ...]]:
    """The drafts with routes on their edges, and what keeps them from going direct. `claims`: by name."""
    changed: list[Draft] = []
    told: list[Finding] = []
    for draft in drafts:
        edges = tuple(
            msgspec.structs.replace(edge, routes=_routes(draft, edge, node, claims)) if _asks(edge) else edge
            for edge in draft.stack.edges
        )
        stack = msgspec.structs.replace(draft.stack, edges=edges)
        draft = msgspec.structs.replace(draft, stack=stack)  # noqa: PLW2901 -- the same draft, with what is now known
        changed.append(draft)
        told += _not_direct(draft, node)
        told += _lacks(draft, node)
    return tuple(changed), tuple(told)


def _asks(edge: Edge) -> bool:
    """Does the edge's gain hang on the node's own route for cuFile?"""
    return edge.gds_helps in ("yes", "unknown") and "gpu" in (edge.from_, edge.to) and "cuFile" in edge.api


def _routes(draft: Draft, edge: Edge, node: Report, claims: Mapping[str, Claim]) -> tuple[EdgeRoute, ...]:
    every = tuple(gpu.address or str(gpu.index) for gpu in node.gpus)
    mount, why = _mount(draft, edge.path, node, claims)
    if mount is None:
        return (EdgeRoute(gpus=every, mount=None, route="unknown", because=why),)
    groups: dict[tuple[str, str], list[Route]] = {}
    for route in node.routes:
        if route.mount == mount:
            groups.setdefault((route.route, route.because), []).append(route)
    return tuple(
        EdgeRoute(gpus=tuple(route.gpu for route in routes), mount=mount, route=routes[0].route, because=because)
        for (_, because), routes in groups.items()
    ) or (EdgeRoute(gpus=every, mount=mount, route="unknown", because=f"the node has no route for {mount}"),)


def _mount(draft: Draft, path: str | None, node: Report, claims: Mapping[str, Claim]) -> tuple[str | None, str]:
    """The node's mount that holds a path of the stack, or why that is not known."""
    if path is None or not path.startswith("/"):
        return None, "the path is not said" if path is None else f"{path} is not a path on the node"
    host: str | None = path
    if draft.box is not None:
        inner = max(
            (v for v in draft.box.volumes if _holds(v.path, path)), key=lambda volume: len(volume.path), default=None
        )
        if inner is None and draft.box.kind == "image":
            return (
                None,
                f"what is mounted at {path} is said where the image is started: give that file, or line, as well",
            )
        if inner is None:
            return None, f"{path} lies in the container's own layers, on an overlay: no volume is mounted there"
        claim = claims.get(inner.claim or "")
        folder = inner.host_path or (claim.host_path if claim is not None else None)
        if folder is None:
            target = _of_the_kubelet(inner, claim, node)
            if target is None:
                what = f"{inner.kind} {inner.claim}" if inner.claim else inner.kind or "volume"
                return None, f"{inner.path} is a {what}: which mount of the node it becomes is not written in the files"
            host = target
        else:
            host = folder.rstrip("/") + path[len(inner.path.rstrip("/")) :]
    targets = {route.mount for route in node.routes}
    holding = [target for target in targets if host is not None and _holds(target, host)]
    if not holding:
        return None, f"no mount of the node that could hold data has {host} below it"
    return max(holding, key=len), ""


def _of_the_kubelet(volume: Volume, claim: Claim | None, node: Report) -> str | None:
    """The node's mount of a volume, by its PersistentVolume's name, its SERVER:PATH, or its class's export.

    The kubelet mounts at .../pods/UID/volumes/PLUGIN/PV-NAME[/mount]. Below one export there may be many volumes: any of
    them will do where all have the same routes.
    """
    mounts = [mount for mount in node.mounts if mount.can_hold_data]
    name = claim.volume if claim is not None else None
    source = volume.source or (claim.source if claim is not None else None)
    for mount in mounts:
        if (name and name in mount.target.split("/")) or (source and mount.source == source):
            return mount.target
    below = [m.target for m in mounts if claim and claim.root and _exported(m, claim.root)]
    routes = {t: tuple((r.gpu, r.route) for r in node.routes if r.mount == t) for t in below}
    if below and len(set(routes.values())) == 1:
        return below[0]
    return next((mount.target for mount in mounts if mount.target == volume.path), None)


def _exported(mount: Mount, root: str) -> bool:
    _, sign, path = (mount.source or "").rpartition(":")
    return bool(sign) and mount.fstype.startswith("nfs") and _holds(root, path)


def _holds(folder: str, path: str) -> bool:
    return folder == "/" or path == folder.rstrip("/") or path.startswith(folder.rstrip("/") + "/")


def _not_direct(draft: Draft, node: Report) -> Iterator[Finding]:
    for edge in draft.stack.edges:
        for route in edge.routes or ():
            if route.route in _DIRECT or route.route == "unknown":
                continue
            place = draft.stack.source
            blockers = sorted(
                {b for r in node.routes if r.mount == route.mount and r.gpu in route.gpus for b in r.blockers}
            )
            why = f" ({', '.join(blockers)})" if blockers else ""
            yield finding(
                "app.path-not-direct",
                place,
                f"{edge.path} is on {route.mount}, where {len(route.gpus)} GPUs get the route {route.route}{why}: {_plain(route)}",
                (
                    *seen("path", edge.path, place),
                    Evidence(fact=f"route of {route.mount}", value=route.route, source="gdsctl inspect"),
                ),
            )


def _plain(route: EdgeRoute) -> str:
    return route.because.removeprefix(f"{route.route}, ").removeprefix("because ")


def _lacks(draft: Draft, node: Report) -> Iterator[Finding]:
    """What a direct route needs in a container and this one is not seen to have."""
    box = draft.box
    routes = [route for edge in draft.stack.edges for route in edge.routes or () if route.route in _DIRECT]
    if box is None or box.kind == "image" or not routes or box.privileged:
        return
    over_rdma = any(m.backing.transport == "rdma" for m in node.mounts if any(r.mount == m.target for r in routes))
    needs = _needs(box, nvidia_fs=any(r.route == "nvidia-fs" for r in routes), over_rdma=over_rdma)
    missing = [what for what, there in needs if not there]
    if missing:
        yield finding(
            "app.pod-lacks",
            box.place,
            f"the {box.kind} container {box.name} does not mount or ask for: {'; '.join(missing)}",
            seen("volumes", ", ".join(volume.path for volume in box.volumes) or "none", box.place),
            severity="warning" if box.kind == "kubernetes" else "error",  # a device plugin may add them unseen
        )


def _needs(box: Container, *, nvidia_fs: bool, over_rdma: bool) -> Iterator[tuple[str, bool]]:
    paths = [volume.path for volume in box.volumes]

    def mounted(path: str) -> bool:
        return any(_holds(folder, path) for folder in paths if folder != "/")

    def given(device: str) -> bool:
        return any(found.startswith(device) for found in (*box.devices, *paths))

    yield "/run/udev", mounted("/run/udev")
    cufile = mounted("/etc/cufile.json") or any("cufile" in path for path in paths)
    yield "/etc/cufile.json (or a file that CUFILE_ENV_PATH_JSON names)", cufile
    if nvidia_fs:
        yield "/dev/nvidia-fs*", given("/dev/nvidia-fs") or mounted("/dev/nvidia-fs0")
    if over_rdma:
        plugin = any("rdma" in name or name == "claim" for name in box.resources)
        yield "/dev/infiniband", plugin or given("/dev/infiniband") or mounted("/dev/infiniband/uverbs0")
        yield "memory that may be locked (IPC_LOCK, memlock)", box.memlock_unlimited or "IPC_LOCK" in box.capabilities
    yield "a GPU", any("gpu" in name or name == "claim" for name in box.resources)

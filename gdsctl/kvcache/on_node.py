"""Stacks held against a node: the route of each tier's mount for its GPUs, and what the container around them lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from gdsctl.data.app_findings import remedy_for
from gdsctl.kvcache.findings import finding, seen
from gdsctl.kvcache.launch import Claim, Container, Volume
from gdsctl.kvcache.stack import Draft, Edge, EdgeRoute
from gdsctl.kvcache.stored import Stored
from gdsctl.model.devices import Mount
from gdsctl.model.judgement import Evidence, Finding, Route, Severity
from gdsctl.model.node import Report
from gdsctl.record import Record


class Lack(Record, frozen=True, kw_only=True):
    """What a container lacks, by the rule of the node that asks for it. `certain`: False where the files do not show it."""

    id: str
    what: str
    certain: bool


# Of a container, and path in it -> mount of the node for the volumes that count.
Lacking = Callable[[Container, Mapping[str, str]], Iterable[Lack]]
_LACKING: dict[str, Severity] = {"lacks": "error", "is not seen to have": "warning"}
_DIRECT = ("nvidia-fs", "p2pdma", "c2c", "rdma")


def on_node(
    drafts: tuple[Draft, ...], node: Report, claims: Mapping[str, Claim], lacking: Lacking | None = None
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
        if lacking is not None:
            told += _lacks(draft, lacking)
    return tuple(changed), tuple(told)


def _asks(edge: Edge) -> bool:
    """Does the edge's gain hang on the node's own route for cuFile?"""
    return edge.gds_helps in ("yes", "unknown") and "gpu" in (edge.from_, edge.to) and "cuFile" in edge.api


def _routes(draft: Draft, edge: Edge, node: Report, claims: Mapping[str, Claim]) -> tuple[EdgeRoute, ...]:
    every = tuple(gpu.address or str(gpu.index) for gpu in node.gpus)
    mount, why = _mount(draft, edge.path, node, claims)
    if mount is None:
        return (EdgeRoute(gpus=every, mount=None, route="unknown", because=why),)
    return _grouped(mount, node) or (
        EdgeRoute(gpus=every, mount=mount, route="unknown", because=f"the node has no route for {mount}"),
    )


def _grouped(mount: str, node: Report) -> tuple[EdgeRoute, ...]:
    groups: dict[tuple[str, str], list[Route]] = {}
    for route in node.routes:
        if route.mount == mount:
            groups.setdefault((route.route, route.because), []).append(route)
    return tuple(
        EdgeRoute(gpus=tuple(route.gpu for route in routes), mount=mount, route=routes[0].route, because=because)
        for (_, because), routes in groups.items()
    )


def mounted(one: Stored, node: Report, claims: Mapping[str, Claim]) -> Stored:
    """A claim with the routes of the node's mount that it becomes, where that mount is known."""
    claim = claims.get(one.name) if one.kind == "PersistentVolumeClaim" else None
    mount = _of_the_kubelet(Volume(path="", claim=one.name), claim, node) if claim is not None else None
    return msgspec.structs.replace(one, routes=_grouped(mount, node)) if mount is not None else one


def _mount(draft: Draft, path: str | None, node: Report, claims: Mapping[str, Claim]) -> tuple[str | None, str]:
    """The node's mount that holds a path of the stack, or why that is not known."""
    if path is None or not path.startswith("/"):
        return None, "the path is not said" if path is None else f"{path} is not a path on the node"
    host: str | None = path
    if draft.box is not None:
        inner = _volume(draft.box, path)
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


def _volume(box: Container, path: str) -> Volume | None:
    return max((v for v in box.volumes if _holds(v.path, path)), key=lambda volume: len(volume.path), default=None)


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


def _lacks(draft: Draft, lacking: Lacking) -> Iterator[Finding]:
    """What a direct route needs in a container and this one is not given, or not seen to be given."""
    box = draft.box
    mounts = {
        volume.path: route.mount
        for edge in draft.stack.edges
        for route in edge.routes or ()
        if box is not None and edge.path is not None and route.mount is not None and route.route in _DIRECT
        for volume in [_volume(box, edge.path)]
        if volume is not None
    }
    if box is None or box.kind == "image" or not mounts:
        return
    told = tuple(lacking(box, mounts))
    for words, severity in _LACKING.items():
        some = [lack for lack in told if lack.certain is (severity == "error")]
        if some:
            yield finding(
                "app.pod-lacks",
                box.place,
                f"the {box.kind} container {box.name} {words} what {', '.join(mounts)} needs: "
                + "; ".join(lack.what for lack in some),
                tuple(Evidence(fact=lack.id, value=lack.what, source=str(box.place)) for lack in some),
                severity=severity,
                remedy=remedy_for("app.pod-lacks", box.kind),
            )

"""The route of each GPU x mount: the first candidate that no rule blocks.

Rules alone judge conditions; a route only asks which of their verdicts touch its pair. Route names: local NVMe and
kernel-space RDMA (NFS, Lustre, BeeGFS, ScaTeFS) go direct over `nvidia-fs`, since that module does the DMA mapping;
user-space RDMA (WekaFS, Storage Scale) is `rdma`; the kernel's own peer-to-peer is `p2pdma`, on Grace `c2c`.
"""

from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.ceiling import figure, limit, stages, uplinks
from gdsctl.assess.engine import Findings, Judged, Undecided
from gdsctl.assess.routing import dynamic_policy, nearest_first
from gdsctl.assess.view import Storage, View, gpu_key
from gdsctl.data.limits import numbers
from gdsctl.model.devices import Gpu
from gdsctl.model.judgement import Route, RouteName
from gdsctl.record import Record

_OLDEST_KNOWN = (1, 11)  # the tables go back to this release
DIRECT: tuple[RouteName, ...] = ("p2pdma", "c2c", "nvidia-fs", "rdma")
_WORDS: dict[RouteName, str] = {
    "nvidia-fs": "direct over nvidia-fs",
    "p2pdma": "direct over the kernel's PCI peer-to-peer",
    "c2c": "direct over NVLink-C2C",
    "rdma": "direct over user-space RDMA",
    "compat": "compat mode: the bytes go through host memory",
}


class _Trial(Record, frozen=True, kw_only=True):
    route: RouteName
    blocking: tuple[Judged, ...]
    open: tuple[Undecided, ...]


def routes(view: View, findings: Findings) -> tuple[Route, ...]:
    """Every GPU x every mount that could hold data, GPUs first."""
    return tuple(_route(view, findings, gpu, storage) for gpu in view.gpus for storage in view.storages)


def candidates(view: View, storage: Storage) -> tuple[RouteName, ...]:
    """Direct routes in libcufile's own order: P2PDMA (or C2C) where it is switched on, then nvidia-fs, then RDMA.

    Where the configuration is not known P2PDMA is a candidate too; a rule says that it hangs on the file.
    """
    names: list[RouteName] = []
    if storage.takes_p2pdma and view.p2pdma_wanted is not False:
        names.append("c2c" if view.node.platform.arch == "aarch64" else "p2pdma")
    if storage in view.nvidia_fs_storages:
        names.append("nvidia-fs")
    if storage.takes_user_rdma:
        names.append("rdma")
    return tuple(names)


def _route(view: View, findings: Findings, gpu: Gpu, storage: Storage) -> Route:
    mount = storage.mount
    key = gpu_key(gpu)
    trials = [_trial(findings, name, key, mount.target) for name in candidates(view, storage)]
    blockers = tuple(dict.fromkeys(j.finding.id for trial in trials for j in trial.blocking))
    via = nearest_first(view, gpu, storage)
    winner = next((trial for trial in trials if not trial.blocking and not trial.open), None)
    pending = next((trial for trial in trials if not trial.blocking and trial.open), None)
    if winner is not None:
        confirmed = _confirmed(view, winner.route, storage)
        policy = dynamic_policy(view, gpu, storage)
        most = limit(view, gpu, storage, stages(view, gpu, storage, policy))
        return Route(
            gpu=key,
            mount=mount.target,
            route=winner.route,
            dynamic_routing=policy,
            via=via,
            ceiling_gbs=figure(most),
            blockers=tuple(dict.fromkeys(j.finding.id for t in trials for j in t.blocking if t is not winner)),
            confidence="certain" if confirmed and pending is None else "likely",
            because=f"{_WORDS[winner.route]}: {confirmed or 'no blocker found'}{_narrowed(uplinks(view, gpu, storage, most))}",
        )
    if pending is not None:
        first = pending.open[0]
        return Route(
            gpu=key,
            mount=mount.target,
            via=via,
            ceiling_gbs=figure(limit(view, gpu, storage)),
            blockers=tuple(dict.fromkeys((*blockers, *(u.id for u in pending.open)))),
            because=f"cannot tell: {first.cannot.fact}",
            settle_with=first.cannot.settle_with,
        )
    return _indirect(view, findings, gpu, storage, trials)


def _indirect(view: View, findings: Findings, gpu: Gpu, storage: Storage, trials: list[_Trial]) -> Route:
    """Compat mode where it works and is allowed; otherwise the open fails."""
    mount = storage.mount
    key = gpu_key(gpu)
    compat = _trial(findings, "compat", key, mount.target)
    reasons = [j for trial in trials for j in trial.blocking] or _explaining(findings, key, mount.target)
    why = _because(reasons) or "no direct route exists for this kind of storage"
    blockers = tuple(dict.fromkeys(j.finding.id for j in reasons))
    if compat.blocking:
        ids = tuple(dict.fromkeys((*blockers, *(j.finding.id for j in compat.blocking))))
        because = f"no route: {why}; and compat mode fails: {_because(compat.blocking)}"
        return Route(gpu=key, mount=mount.target, route="none", blockers=ids, confidence="certain", because=because)
    if compat.open:
        first = compat.open[0]
        return Route(
            gpu=key,
            mount=mount.target,
            blockers=tuple(dict.fromkeys((*blockers, *(u.id for u in compat.open)))),
            because=f"not direct ({why}); cannot tell whether compat mode works: {first.cannot.fact}",
            settle_with=first.cannot.settle_with,
        )
    doubt = _doubt(view, storage)
    return Route(
        gpu=key,
        mount=mount.target,
        route="compat",
        via=view.peers(mount),
        ceiling_gbs=figure(limit(view, gpu, storage, ["host"])),
        blockers=blockers,
        confidence="likely" if doubt else "certain",
        because=f"compat, because {why}{doubt}",
    )


def _narrowed(switches: tuple[str, ...]) -> str:
    """Names a switch's uplink that is the narrowest place, which no table of GPUs and drives shows."""
    return f"; narrowest at the uplink of the switch {', '.join(switches)}" if switches else ""


def _doubt(view: View, storage: Storage) -> str:
    """File systems that no release, or none that is known to be here, is documented to take in compat mode."""
    since = storage.filesystem.compat_since if storage.filesystem else None
    if since is None:
        return f"; whether cuFile takes files on {storage.mount.fstype} at all is not documented"
    if view.version is None and numbers(since) > _OLDEST_KNOWN:
        return f"; cuFile takes files on {storage.mount.fstype} from {since} on, and the release here is not known"
    return ""


def _trial(findings: Findings, route: RouteName, gpu: str, mount: str) -> _Trial:
    return _Trial(
        route=route,
        blocking=tuple(j for j in findings.judged if route in j.finding.blocks and j.scope.covers(gpu, mount)),
        open=tuple(u for u in findings.undecided if route in u.blocks and u.cannot.scope.covers(gpu, mount)),
    )


def _explaining(findings: Findings, gpu: str, mount: str) -> list[Judged]:
    """For storage with no direct candidate at all: the findings that say why."""
    return [j for j in findings.judged if set(j.finding.blocks) & set(DIRECT) and j.scope.covers(gpu, mount)]


def _because(reasons: Iterator[Judged] | list[Judged] | tuple[Judged, ...]) -> str:
    return "; ".join(dict.fromkeys(j.finding.message for j in reasons))


def _confirmed(view: View, route: RouteName, storage: Storage) -> str | None:
    """A second, independent witness that a direct route works here, or None."""
    if not view.config.known:
        return None  # cufile.json may forbid it
    node = view.node
    if route == "nvidia-fs" and storage.hook and storage.hook in (node.nvidia_fs.registered or ()):
        return f"{storage.hook} is registered with nvidia-fs"
    return None

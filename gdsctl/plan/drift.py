"""Where a node is not as planned, and where it is not as it was."""

from __future__ import annotations

from gdsctl.assess.assessment import Assessment
from gdsctl.model.judgement import Route
from gdsctl.plan.context import Context
from gdsctl.plan.desired import Plan
from gdsctl.plan.documents import Drift
from gdsctl.plan.steps import differences
from gdsctl.record import Record


class Change(Record, frozen=True, kw_only=True):
    """What one GPU x mount was in a baseline and is not any more; `route` None: the pair is gone."""

    gpu: str
    mount: str
    route: Route | None
    drift: Drift


def cufile_drift(context: Context, plan: Plan) -> tuple[Drift, ...] | None:
    """The effective cufile configuration against the plan; None where it is not known, or refused by the library.

    Required are the keys that a route hangs on and those that the intent pins; the rest are only defaults written out.
    """
    found = differences(context, plan.cufile)
    if found is None or context.view.config.fatal is not None:
        return None
    if plan.mode == "undecided":  # it speaks for no key but those that the intent pins
        spoken = {setting.key for setting in plan.cufile.settings}
        found = tuple(difference for difference in found if difference.key in spoken)
    return tuple(
        Drift(
            kind="cufile",
            key=difference.key,
            installed=difference.installed,
            planned=difference.planned,
            origin=difference.origin,
            why=difference.why,
            required=difference.required,
        )
        for difference in found
    )


def system_drift(context: Context, plan: Plan) -> tuple[Drift, ...]:
    """Driver keys, modules and mount options against the plan."""
    return (*_driver(context, plan), *_mounts(context, plan))


def _driver(context: Context, plan: Plan) -> list[Drift]:
    found = []
    driver = context.node.nvidia_driver
    for place, values in (("running", driver.registry_dwords), ("modprobe.d", driver.modprobe_registry_dwords)):
        for name, wanted in (plan.driver.registry or {}).items():
            if values is not None and values.get(name) != wanted:
                found.append(
                    Drift(
                        kind="driver",
                        key=name,
                        installed=values.get(name),
                        planned=wanted,
                        origin="/proc/driver/nvidia/params"
                        if place == "running"
                        else (driver.modprobe_files or {}).get(name),
                        why=f"registry key of the {'running driver' if place == 'running' else 'next load'}, for P2PDMA",
                    )
                )
    if plan.driver.multipath_to_write:
        core = context.node.modules.get("nvme_core")
        found.append(
            Drift(
                kind="module",
                key="nvme_core.multipath",
                installed=(core.parameters or {}).get("multipath") if core else None,
                planned="N",
                origin="/sys/module/nvme_core/parameters/multipath",
                why="drives behind a native multipath head do no P2PDMA",
            )
        )
    found += [
        Drift(
            kind="module",
            key=name,
            installed="not loaded",
            planned="loaded",
            origin="/proc/modules",
            why="the route needs it",
        )
        for name in plan.driver.load
    ]
    return found


def _mounts(context: Context, plan: Plan) -> list[Drift]:
    """Options that a mount lacks, and those that it has but /etc/fstab does not: these are told only."""
    options = {mount.target: ",".join(mount.options) for mount in context.node.mounts}
    found = []
    for wish in plan.mounts:
        entry = wish.fstab.entry
        if wish.change != "none":
            found.append(
                Drift(
                    kind="mount",
                    key=wish.target,
                    installed=options.get(wish.target),
                    planned=",".join(wish.options),
                    origin="/proc/self/mountinfo",
                    why=wish.why,
                )
            )
        elif entry is not None and wish.fstab.lacks:
            found.append(
                Drift(
                    kind="mount",
                    key=wish.target,
                    installed=",".join(entry.options),
                    planned=",".join((*entry.options, *wish.fstab.lacks)),
                    origin=f"/etc/fstab:{entry.line}",
                    why=wish.why,
                    required=False,
                )
            )
    return found


def against_baseline(now: Assessment, before: Assessment) -> tuple[Change, ...]:
    """Routes and ceilings that are not what the baseline had; what the baseline did not know is not compared."""
    current = {(route.gpu, route.mount): route for route in now.routes}
    found = []
    for route in before.routes:
        if route.route == "unknown":
            continue
        here = current.get((route.gpu, route.mount))
        pair = f"{route.gpu} {route.mount}"
        shown = _shown(here) if here is not None else "no such GPU or mount"
        drift = None
        if shown != _shown(route):
            why = here.because if here is not None else "it was there in the baseline"
            drift = Drift(kind="baseline", key=pair, installed=shown, planned=_shown(route), why=why)
        elif (
            here is not None
            and here.ceiling_gbs != route.ceiling_gbs
            and None not in (here.ceiling_gbs, route.ceiling_gbs)
        ):
            drift = Drift(
                kind="baseline",
                key=f"{pair} ceiling_gbs",
                installed=here.ceiling_gbs,
                planned=route.ceiling_gbs,
                why="the narrowest link on the way is not what it was",
            )
        if drift is not None:
            found.append(Change(gpu=route.gpu, mount=route.mount, route=here, drift=drift))
    return tuple(found)


def _shown(route: Route) -> str:
    return f"{route.route} ({route.dynamic_routing})" if route.dynamic_routing else route.route

"""The gate for containers on a node: each judged as the node that it sees, all in one document."""

from __future__ import annotations

import datetime as dt

import msgspec

from gdsctl.assess.assessment import Assessment
from gdsctl.assess.routes import DIRECT
from gdsctl.assess.view import gpu_key
from gdsctl.model.node import Tool
from gdsctl.plan import demand
from gdsctl.plan import waivers as waiving
from gdsctl.plan.demand import Demand, PathDemand
from gdsctl.plan.documents import Requirement, VerifyReport
from gdsctl.plan.intent import Intent, PlanMode, Wanted
from gdsctl.plan.verify import verdict, verify
from gdsctl.record import Record

PROFILE = "container"


class Boxed(Record, frozen=True, kw_only=True):
    """A container judged. `sources`: mount in it -> path of the node; `spec_only`: known by what a CDI spec gives alone."""

    name: str
    place: str
    assessment: Assessment
    sources: dict[str, str] = {}
    spec_only: bool = False


# What a CDI spec does not decide: the container that gets its devices does.
_NOT_OF_A_SPEC = {
    "container.no-gpu",
    "container.no-data-volume",
    "container.no-rdma-device",
    "container.memlock-limited",
    "container.own-network",
}


def verify_containers(
    host: Assessment,
    boxes: tuple[Boxed, ...],
    *,
    tool: Tool,
    demands: tuple[Demand, ...] = (),
    strict: bool = False,
    waivers: tuple[str, str] | None = None,
) -> VerifyReport:
    """Each container lacks nothing that GDS needs, and what the node reaches directly it reaches directly too.

    Where there are several, NAME: stands before subjects and mounts. `demands`: of the command line, on each.
    """
    several = len(boxes) > 1
    requirements: list[Requirement] = []
    routes, findings = [], []
    mode: PlanMode = "compat"
    for box in boxes:
        prefix = f"{box.name}: " if several else ""
        wanted = Wanted(intent=Intent())
        gate = verify(box.assessment, wanted, demands=(*_own(host, box), *demands), strict=strict)
        mode = gate.plan.mode
        requirements += [_named(one, prefix, box.name) for one in gate.requirements]
        routes += [msgspec.structs.replace(route, mount=prefix + route.mount) for route in box.assessment.routes]
        findings += [msgspec.structs.replace(one, subject=prefix + one.subject) for one in box.assessment.findings]
    decided = tuple(requirements)
    if waivers is not None:
        text, path = waivers
        known = waiving.read(text, path, [requirement.id for requirement in decided])
        decided = waiving.apply(decided, known, path, dt.datetime.now(dt.timezone.utc).date())
    keys = [gpu_key(gpu) for gpu in host.node.gpus]
    index = {gpu_key(gpu): gpu.index for gpu in host.node.gpus}
    prefixes = [f"{box.name}: " for box in boxes] if several else [""]
    names = ", ".join(f"{box.name} ({box.place})" for box in boxes[:3])
    more = f" and {len(boxes) - 3} more" if len(boxes) > 3 else ""
    return VerifyReport(
        tool=tool,
        source=host.node.source,
        verdict=verdict(decided),
        intent=Intent(),
        intent_from=f"none: what the container{'s' if several else ''} {names}{more} must have",
        mode=mode,
        gpus={f"{prefix}{key}": index[key] for prefix in prefixes for key in keys},
        requirements=decided,
        routes=tuple(routes),
        drift=(),
        findings=tuple(findings),
    )


def _own(host: Assessment, box: Boxed) -> tuple[Demand, ...]:
    """The profile's demands, and the direct routes of the node that the container's volumes would keep."""
    profile = [one for one in demand.of_profile(PROFILE) if not (box.spec_only and _undecided_by_spec(one))]
    direct = {route.mount for route in host.routes if route.route in DIRECT}
    return (
        *profile,
        *(
            PathDemand(path="direct-or-routed", mount=target)
            for target, mount in box.sources.items()
            if mount in direct
        ),
    )


def _undecided_by_spec(one: Demand) -> bool:
    return isinstance(one, demand.FreeOf) and one.finding in _NOT_OF_A_SPEC


def _named(one: Requirement, prefix: str, name: str) -> Requirement:
    subject = one.subject if one.subject != "node" else name
    return msgspec.structs.replace(one, subject=prefix + subject if subject != name else name)

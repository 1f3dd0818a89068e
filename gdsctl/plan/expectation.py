"""Does each GPU and mount get the path that the intent asks for?"""

from __future__ import annotations

from typing import Literal

from gdsctl.assess.routes import DIRECT
from gdsctl.assess.view import gpu_key
from gdsctl.data.filesystems import filesystem
from gdsctl.model.judgement import Route
from gdsctl.model.node import Node
from gdsctl.model.unknown import Gap
from gdsctl.plan.context import Context
from gdsctl.plan.documents import Requirement
from gdsctl.plan.identity import another, mismatches
from gdsctl.plan.intent import Expect, expected
from gdsctl.record import Record


class Judged(Record, frozen=True, kw_only=True):
    """One GPU and one mount of the intent against its route.

    `idle`: there is nothing to judge, and that is known. `another`: what is mounted there is not the intended mount at all. `gpu`, `mount` None: the node lacks it, or there is none.
    `settle_with`: what would tell, where it is not a route that is unknown.
    """

    requirement: str
    gpu: str | None
    mount: str | None
    expect: Expect | None
    status: Literal["pass", "fail", "unknown"]
    route: Route | None = None
    because: str
    idle: bool = False
    another: bool = False
    settle_with: str | None = None

    @property
    def subject(self) -> str:
        return self.gpu or self.mount or "node"

    def as_requirement(self) -> Requirement:
        route = self.route
        unfit = self.status != "pass"
        return Requirement(
            id=self.requirement,
            subject=self.subject,
            status=self.status,
            evidence=self.because,
            finding=route.blockers[0] if unfit and route is not None and route.blockers else None,
            settle_with=(route.settle_with if route is not None else self.settle_with) if unfit else None,
        )


def judge(context: Context, routes: tuple[Route, ...]) -> tuple[Judged, ...]:
    """Every intended GPU x mount, after those that the intent names and the node lacks: these fail.

    Where the facts were not captured the answer is unknown. Where there is known to be nothing to judge it is a failure: a
    gate that looked at nothing must not pass.
    """
    by_pair = {(route.gpu, route.mount): route for route in routes}
    found = [*_gpus_lacking(context), *_nics_lacking(context)]
    mounts_unknown = context.mounts_gap
    for wish in context.absent:
        unsure = mounts_unknown is not None
        said = f": {wish.target} is not mounted" if not unsure else ": the mount table is not known"
        found.append(
            Judged(
                requirement=f"route:{wish.target}",
                gpu=None,
                mount=wish.target,
                expect=wish.expect,
                status="unknown" if unsure else "fail",
                because=f"wanted {wish.expect}{said}",
                settle_with=mounts_unknown.settle_with if mounts_unknown is not None else None,
            )
        )
    found += _mounted_otherwise(context)
    found += [item for item in _addressless(context) if item.requirement not in {one.requirement for one in found}]
    others = {item.mount for item in found if item.another}
    if not context.mounts:
        found.append(_nothing("route", f"no mount to judge: {context.said}", mounts_unknown, idle=True))
    for wish, _ in context.storages:
        if wish.target in others:  # its paths are none of the intended mount's
            continue
        for gpu in context.gpus:
            route = by_pair.get((gpu_key(gpu), wish.target))
            found.append(_pair(gpu_key(gpu), wish.target, expected(wish, context.intent.mode), route))
    return tuple(found)


def _mounted_otherwise(context: Context) -> list[Judged]:
    """Mounts that are not what the intent pins of them: one answer a mount."""
    found = []
    for wish, storage in context.storages:
        differing = mismatches(context, wish, storage.mount)
        certain = [one for one in differing if one.found is not None]
        if differing:
            told = certain or differing
            other = any(one.found is not None for one in another(context, wish, storage.mount))
            found.append(
                Judged(
                    requirement=f"mount:{wish.target}",
                    gpu=None,
                    mount=wish.target,
                    expect=wish.expect,
                    status="fail" if certain else "unknown",
                    because="; ".join(one.said for one in told),
                    another=other,
                    settle_with=None if certain else told[0].settle_with,
                )
            )
    return found


def _gpus_lacking(context: Context) -> list[Judged]:
    gap = context.gpus_gap
    if context.absent_gpus:
        status: Literal["unknown", "fail"] = "unknown" if gap is not None else "fail"
        return [
            Judged(
                requirement=f"gpu:{name}",
                gpu=name,
                mount=None,
                expect=None,
                status=status,
                because=f"the node has no GPU {name}",
            )
            for name in context.absent_gpus
        ]
    if not context.gpus:
        said = "no GPU to judge: " + ("which there are is not known" if gap else "the node has none")
        return [_nothing("gpu", said, gap, idle=context.wanted.path is None)]
    return []


def _nics_lacking(context: Context) -> list[Judged]:
    """NICs that the intent names for a mount and the node does not have."""
    gap = context.node.gap("nics", "")
    there = {name for nic in context.node.nics for name in (nic.rdma_device, nic.address, *nic.netdevs)}
    return [
        Judged(
            requirement=f"nic:{name}",
            gpu=None,
            mount=wish.target,
            expect=None,
            status="fail" if gap is None else "unknown",
            because=f"the node has no NIC {name}, which the intent names for {wish.target}",
            settle_with=gap.settle_with if gap is not None else None,
        )
        for wish in context.mounts
        if wish.nics != "auto"
        for name in wish.nics
        if name not in there
    ]


def _addressless(context: Context) -> list[Judged]:
    """NICs that the intent names for a network mount and that have no IPv4 address, which RDMA by cuFile goes by."""
    return [
        Judged(
            requirement=f"nic:{name}",
            gpu=None,
            mount=wish.target,
            expect=None,
            status="fail",
            because=f"{name} has no IPv4 address, so {wish.target} cannot use it: the mount is left as it is. Give the NIC one, or leave it out of nics",
        )
        for wish in context.mounts
        for name in context.addressless(wish)
    ]


def clients_lacking(node: Node, to_mount: tuple[tuple[str, str], ...]) -> tuple[Judged, ...]:
    """Mounts to come, (target, file system), whose client is not known to run: no step installs it or joins its cluster."""
    found = []
    for target, fstype in to_mount:
        row = filesystem(fstype)
        module = row.client_module if row is not None else None
        if row is None or module is None:
            continue
        loaded = node.modules[module].loaded if module in node.modules else None
        if loaded is True:
            continue
        state = "not loaded" if loaded is False else "not known to be loaded"
        found.append(
            Judged(
                requirement=f"client:{target}",
                gpu=None,
                mount=target,
                expect=None,
                status="unknown",
                because=f"whether the client of {row.name} is installed and runs is not known (its module {module} is {state}); "
                "no step installs it or joins its cluster",
                settle_with=row.client_look,
            )
        )
    return tuple(found)


def _nothing(requirement: str, because: str, gap: Gap | None, *, idle: bool) -> Judged:
    """Nothing of a kind is there to judge: because it is not known, or, without a gap, because there is none.

    `idle`: nobody asked for it by name, so a plan has nothing to do.
    """
    return Judged(
        requirement=requirement,
        gpu=None,
        mount=None,
        expect=None,
        status="unknown" if gap is not None else "fail",
        because=because,
        idle=idle and gap is None,
        settle_with=gap.settle_with if gap is not None else None,
    )


def _pair(gpu: str, mount: str, expect: Expect, route: Route | None) -> Judged:
    status, because = fits(expect, route)
    return Judged(
        requirement=f"route:{mount}", gpu=gpu, mount=mount, expect=expect, status=status, route=route, because=because
    )


def fits(expect: Expect, route: Route | None) -> tuple[Literal["pass", "fail", "unknown"], str]:
    """The verdict on one route, and one sentence.

    direct: no staging; direct-or-routed: staged by dynamic routing is fine too; compat: through host memory and nothing
    else; any: whatever works.
    """
    if route is None:
        return "unknown", f"wanted {expect}: no route was worked out"
    if route.route == "unknown":
        return "unknown", f"wanted {expect}: {route.because}"
    staged = route.dynamic_routing not in (None, "P2P")
    direct = route.route in DIRECT
    good = {
        "direct": direct and not staged,
        "direct-or-routed": direct,
        "compat": route.route == "compat",
        "any": route.route != "none",
    }[expect]
    shown = f"{route.route}, staged by {route.dynamic_routing}" if staged else route.route
    if good:
        return "pass", f"wanted {expect}, gets {shown}"
    if not direct:  # such a route's sentence starts with its own name
        return "fail", f"wanted {expect}, gets {route.because}"
    return "fail", f"wanted {expect}, gets {shown}: {route.because}"

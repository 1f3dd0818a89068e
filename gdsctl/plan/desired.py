"""The plan: what this node should have under an intent, the steps there, and what it gives."""

from __future__ import annotations

from typing import Literal

import msgspec

from gdsctl.assess.assessment import Assessment, assess
from gdsctl.data import cufile_keys
from gdsctl.model.judgement import Finding, Route
from gdsctl.model.node import Node
from gdsctl.plan import applied, cufile, driver, mounts
from gdsctl.plan.context import Context
from gdsctl.plan.cufile import CufilePlan, PlanMode
from gdsctl.plan.documents import Step, Unmet
from gdsctl.plan.driver import DriverPlan
from gdsctl.plan.expectation import Judged, judge
from gdsctl.plan.intent import Intent, Mode, Wanted
from gdsctl.plan.modes import against
from gdsctl.plan.mounts import MountPlan
from gdsctl.plan.steps import steps
from gdsctl.record import Record


class Plan(Record, frozen=True, kw_only=True):
    """All that emitters and reports need. `node`: as collected; `node_after`: with the plan carried out.

    `release`: whose keys are written, None: not known.
    """

    node: Node
    node_after: Node
    mode: PlanMode
    mode_reason: str
    intent: Intent
    intent_from: str
    release: str | None
    cufile: CufilePlan
    driver: DriverPlan
    mounts: tuple[MountPlan, ...]
    steps: tuple[Step, ...]
    routes_now: tuple[Route, ...]
    routes_after: tuple[Route, ...]
    unmet: tuple[Unmet, ...]
    notes: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def fails(self) -> bool:
        return any(unmet.status == "fail" for unmet in self.unmet)


def plan(assessment: Assessment, wanted: Wanted, mode: Mode = "auto") -> Plan:
    """The plan for one node. `mode` other than auto beats the intent's. Pure.

    Raises InputError (FILE:LINE of the intent) for a pinned value that libcufile would refuse.
    """
    now = Context(assessment, wanted)
    wishes = mounts.desire(now)
    context = now
    if any(wish.change != "none" for wish in wishes):
        context = now.with_node(assess(applied.with_mounts(assessment.node, wishes)))
    asked: Mode = mode if mode != "auto" else wanted.intent.mode
    if asked != "auto":
        said = "asked for on the command line" if mode != "auto" else "the intent asks for it"
        return _draft(now, context, wishes, asked, said).plan
    return _best(now, context, wishes)


class _Draft(Record, frozen=True, kw_only=True):
    plan: Plan
    fails: int
    unknown: int
    of: int

    @property
    def reach(self) -> str:
        """For one sentence: how far, and at what price."""
        unknown = f" ({self.unknown} unknown)" if self.unknown else ""
        reboot = ", with a reboot" if any(step.needs_reboot for step in self.plan.steps) else ""
        return f"{self.of - self.fails - self.unknown} of {self.of} GPU x mount{unknown}{reboot}"

    @property
    def cost(self) -> tuple[int, int, int, int]:
        """Unmet first, then reboots, then what cannot be told, then steps: no reboot for a fact that a look would give."""
        return self.fails, sum(step.needs_reboot for step in self.plan.steps), self.unknown, len(self.plan.steps)


def _best(now: Context, context: Context, wishes: tuple[MountPlan, ...]) -> Plan:
    """The mode that leaves the least unmet and, among equals, changes the least."""
    if not context.gpus:
        return _draft(now, context, wishes, "compat", "no GPU to plan for: nothing is switched on").plan
    if not context.direct_storages:
        return _draft(now, context, wishes, "compat", "no mount to send direct: nothing is switched on").plan
    names: list[PlanMode] = ["nvidia-fs"]
    if any(context.p2pdma_able(storage) for _, storage in context.direct_storages):
        # The mode that the node is in comes first, and so wins among equals.
        names.insert(0 if context.view.p2pdma_wanted is True else 1, "p2pdma")
    drafts = [_draft(now, context, wishes, name, "") for name in names]
    best = min(drafts, key=lambda draft: draft.cost)
    others = [draft for draft in drafts if draft is not best]
    reason = "; ".join((f"reaches {best.reach}", *(f"{d.plan.mode} would reach {d.reach}" for d in others)))
    return msgspec.structs.replace(best.plan, mode_reason=reason)


def _draft(now: Context, context: Context, wishes: tuple[MountPlan, ...], mode: PlanMode, reason: str) -> _Draft:
    file = cufile.desire(context, mode)
    modules = driver.desire(context, mode, wishes)
    node = applied.with_cufile(applied.with_driver(context.node, modules), file.values)
    after = assess(node)
    asked = driver.with_findings(context.with_node(after), modules)
    if asked != modules:
        modules = asked
        node = applied.with_cufile(applied.with_driver(context.node, modules), file.values)
        after = assess(node)
    judged = judge(context.with_node(after), after.routes)
    unmet = (*_unmet(judged), *_unwritten(context, file))
    obstacles = against(context) if mode == "p2pdma" or any(item.status != "pass" for item in judged) else ()
    idle = tuple(item.because for item in judged if item.idle)
    ordered = steps(now, file, modules, wishes)
    plan = Plan(
        node=now.node,
        node_after=node,
        mode=mode,
        mode_reason=reason,
        intent=msgspec.structs.replace(now.intent, mounts=now.mounts),
        intent_from=now.said,
        release=context.version,
        cufile=file,
        driver=modules,
        mounts=wishes,
        steps=ordered,
        routes_now=now.assessment.routes,
        routes_after=after.routes,
        unmet=unmet,
        notes=(*obstacles, *idle, *_notes(context, file, modules, wishes)),
        findings=now.assessment.findings,
    )
    statuses = [item.status for item in judged if not item.idle]
    return _Draft(plan=plan, fails=statuses.count("fail"), unknown=statuses.count("unknown"), of=len(statuses))


def _unmet(judged: tuple[Judged, ...]) -> tuple[Unmet, ...]:
    """GPUs that fall short of one mount for one reason are told together."""
    groups: dict[tuple[object, ...], list[Judged]] = {}
    for item in judged:
        if item.status == "pass" or item.idle:
            continue
        blockers = item.route.blockers if item.route else ()
        groups.setdefault((item.requirement, item.status, item.because, blockers), []).append(item)
    return tuple(
        Unmet(
            requirement=first.requirement,
            subject=first.mount or first.subject,
            status="unknown" if first.status == "unknown" else "fail",
            because=first.because,
            gpus=tuple(item.gpu for item in items if item.gpu),
            expect=first.expect,
            route=first.route.route if first.route else None,
            findings=first.route.blockers if first.route else (),
            settle_with=first.route.settle_with if first.route else None,
        )
        for items in groups.values()
        for first in items[:1]
    )


def _unwritten(context: Context, file: CufilePlan) -> tuple[Unmet, ...]:
    found = []
    for name in file.unwritten:
        key = cufile_keys.key(name)
        gone = key is not None and key.until is not None and is_not_before(context.release, key.until)
        since = f"needs GDS {key.since}" if key and not gone else "is no longer read by it"
        status: Literal["fail"] = "fail"
        found.append(
            Unmet(
                requirement=f"tuning:{name}",
                subject="cufile.json",
                status=status,
                because=f"{name} {since}; this is GDS {context.release}",
            )
        )
    return tuple(found)


def is_not_before(version: str, other: str) -> bool:
    return cufile_keys.release(version) >= cufile_keys.release(other)


def _notes(context: Context, file: CufilePlan, modules: DriverPlan, wishes: tuple[MountPlan, ...]) -> tuple[str, ...]:
    notes = [note for wish in wishes for note in wish.notes]
    notes += [*file.told, *modules.told]
    if context.version is None:
        newest = context.release
        notes.append(
            f"the node's GDS release is not known: keys are written up to {newest}, older libraries pass over the newer ones"
        )
    notes += [f"advised, not needed for any route: {a.word} ({a.why})" for a in modules.arguments if not a.needed]
    for name in modules.unsure:
        notes.append(f"whether the module {name} is installed and carries nvidia-fs's hooks is not known")
    return tuple(dict.fromkeys(notes))

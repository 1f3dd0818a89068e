"""The plan: what this node should have under an intent, the steps there, and what it gives."""

from __future__ import annotations

import msgspec

from gdsctl.assess.assessment import Assessment, assess
from gdsctl.data import cufile_keys
from gdsctl.model.judgement import Finding, Route
from gdsctl.model.node import Node
from gdsctl.plan import applied, cufile, driver, lnet, mounts, nvme_of
from gdsctl.plan.context import Context
from gdsctl.plan.cufile import CufilePlan, Style
from gdsctl.plan.documents import Step, Unmet
from gdsctl.plan.driver import DriverPlan
from gdsctl.plan.expectation import Judged, clients_lacking, judge
from gdsctl.plan.intent import Intent, Mode, PlanMode, Wanted
from gdsctl.plan.modes import against
from gdsctl.plan.mounts import MountPlan
from gdsctl.plan.nvme_of import NvmeOfPlan
from gdsctl.plan.steps import differences, steps, unread
from gdsctl.record import Record

_P2PDMA = ("p2pdma", "c2c")


class Plan(Record, frozen=True, kw_only=True):
    """All that emitters and reports need. `node`: as collected; `node_after`: with the plan carried out.

    `release`: whose keys are written, None: not known. `cufile`: every key that is planned; `written`: those of them
    that cufile.json spells out.
    """

    node: Node
    node_after: Node
    mode: PlanMode
    mode_reason: str
    intent: Intent
    intent_from: str
    verify: str
    release: str | None
    cufile: CufilePlan
    written: CufilePlan
    driver: DriverPlan
    mounts: tuple[MountPlan, ...]
    nvme_of: NvmeOfPlan
    steps: tuple[Step, ...]
    routes_now: tuple[Route, ...]
    routes_after: tuple[Route, ...]
    unmet: tuple[Unmet, ...]
    notes: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def fails(self) -> bool:
        return any(unmet.status == "fail" for unmet in self.unmet)


def plan(assessment: Assessment, wanted: Wanted, mode: Mode = "auto", style: Style = "explicit") -> Plan:
    """The plan for one node. `mode` other than auto beats the intent's. Pure.

    `style` minimal: cufile.json leaves out what the library takes anyway; the effective configuration is the same.
    Raises InputError (FILE:LINE of the intent) for a pinned value that libcufile would refuse.
    """
    made = _plan(assessment, wanted, mode)
    if style == "explicit":
        return made
    written = cufile.minimal(made.cufile, made.release)
    spared = len(made.cufile.settings) - len(written.settings)
    whose = f"GDS {made.release}" if made.release else "every known release"
    note = (
        f"minimal style: {spared} keys are left to the library, as {whose} takes the same values by itself; "
        "plan again after an upgrade, for defaults change"
    )
    return msgspec.structs.replace(made, written=written, notes=(note, *made.notes))


def _plan(assessment: Assessment, wanted: Wanted, mode: Mode) -> Plan:
    asked: Mode = mode if mode != "auto" else wanted.intent.mode
    intent = msgspec.structs.replace(wanted.intent, mode=asked)
    given = mode if mode not in ("auto", wanted.intent.mode) else None
    now = Context(assessment, msgspec.structs.replace(wanted, intent=intent, mode_given=given))
    nets = lnet.desire(now)
    wishes = lnet.waiting(mounts.desire(now), nets)
    context = now
    if nets.nics or any(wish.change != "none" for wish in wishes):
        context = now.with_node(assess(applied.with_lnet(applied.with_mounts(assessment.node, wishes), nets)))
    if asked != "auto":
        said = "asked for on the command line" if mode != "auto" else "the intent asks for it"
        return _draft(now, context, wishes, asked, said).plan
    return _best(now, context, wishes)


class _Draft(Record, frozen=True, kw_only=True):
    """`fails` and `unknown`: of all that was judged; `of`, `reached` and `unsure`: GPU x mount.

    `idle`: the mode makes no path better; `over_p2pdma`: pairs that go over P2PDMA or C2C with it.
    """

    plan: Plan
    fails: int
    unknown: int
    of: int
    reached: int
    unsure: int
    idle: bool
    over_p2pdma: int

    @property
    def reach(self) -> str:
        """For one sentence: how far, and at what price."""
        unknown = f" ({self.unsure} unknown)" if self.unsure else ""
        reboot = ", with a reboot" if any(step.needs_reboot for step in self.plan.steps) else ""
        some = self.plan.mode == "p2pdma" and self.over_p2pdma < self.reached
        part = f", {self.over_p2pdma or 'none'} of them over P2PDMA" if some else ""
        return f"{self.reached} of {self.of} GPU x mount{unknown}{part}{reboot}"

    @property
    def cost(self) -> tuple[int, int, int, bool, int, bool]:
        """Unmet first, then reboots, then what cannot be told, then steps: no reboot for a fact that a look would give.

        A mode P2PDMA over which nothing goes has no merit in the steps that it spares.
        """
        steps = self.plan.steps
        void = self.plan.mode == "p2pdma" and not self.over_p2pdma
        return self.fails, sum(step.needs_reboot for step in steps), self.unknown, void, len(steps), self.idle


def _undecidable(context: Context) -> str:
    """What is not known and could make any mode the right one; empty where nothing is."""
    if context.gpus_gap is not None:
        return "which GPUs this node has is not known"
    if context.mounts_gap is not None and not context.direct_storages:
        return "which mounts this node has is not known"
    return ""


class _Outcome(Record, frozen=True, kw_only=True):
    """Settings, the node with them carried out, and what each GPU x mount gets."""

    file: CufilePlan
    modules: DriverPlan
    after: Assessment
    judged: tuple[Judged, ...]


def _best(now: Context, context: Context, wishes: tuple[MountPlan, ...]) -> Plan:
    """The mode that leaves the least unmet and, among equals, changes the least."""
    unknown = _undecidable(context)
    if unknown:
        return _draft(now, context, wishes, "undecided", f"{unknown}, so no mode is chosen and no step planned").plan
    missing = "no GPU to plan for" if not context.gpus else ""
    if not missing and not context.storages:
        missing = "none of the intent's mounts is there" if context.mounts else "no mount to plan for"
    if missing:
        said = f"{missing}, so no mode is needed and nothing is switched on"
        return msgspec.structs.replace(_draft(now, context, wishes, "compat", said).plan, mode="none")
    if not context.direct_storages:
        return _draft(now, context, wishes, "compat", "no mount to send direct: nothing is switched on").plan
    names: list[PlanMode] = ["nvidia-fs"]
    if any(context.p2pdma_able(storage) for _, storage in context.direct_storages):
        # The mode that the node is in comes first, and so wins among equals.
        names.insert(0 if context.view.p2pdma_wanted is True else 1, "p2pdma")
    drafts = [_draft(now, context, wishes, name, "") for name in names]
    best = min(drafts, key=lambda draft: draft.cost)
    others = [draft for draft in drafts if draft is not best]
    if best.idle:
        reaches = "; ".join(f"{d.plan.mode} would reach {d.reach}" for d in drafts)
        said = f"no mode makes a path here better ({reaches})"
        return msgspec.structs.replace(best.plan, mode="none", mode_reason=said)
    reason = "; ".join((f"reaches {best.reach}", *(f"{d.plan.mode} would reach {d.reach}" for d in others)))
    return msgspec.structs.replace(best.plan, mode_reason=reason)


def _draft(now: Context, context: Context, wishes: tuple[MountPlan, ...], mode: PlanMode, reason: str) -> _Draft:
    outcome = _outcome(context, mode, wishes)
    remarks: tuple[str, ...] = ()
    told: frozenset[str] = frozenset()
    if mode == "p2pdma":
        trial, carried = outcome, _carried(context, outcome)
        told = frozenset(s.mount.target for _, s in context.direct_storages if s.takes_p2pdma) - carried
        remarks = _uncarried(context, trial.after, told)
        context = context.carrying(carried)
        if told:
            outcome = _outcome(context, mode, wishes)
            outcome = msgspec.structs.replace(outcome, judged=_blaming(outcome.judged, trial.judged, told))
    elif mode == "compat" and (now.intent.mode == "compat" or _all_compat(context)) and context.mounts and context.gpus:
        remarks = (
            "mode compat: no direct path is there, so properties.force_compat_mode is not written; plan again after a change",
        )
        if _may_go_direct(context, outcome):
            outcome = _outcome(context, mode, wishes, forced=True)
            remarks = ("mode compat: properties.force_compat_mode keeps every file of the node off the direct paths",)
    pinned = frozenset(now.intent.tuning)
    if now.intent.compat == "forbid":
        pinned |= {"properties.allow_compat_mode"}
    idle = mode not in ("compat", "undecided") and not _gains(now, context, outcome)
    if idle:
        judged = outcome.judged
        if now.wanted.path is None and any(wish.change != "none" for wish in wishes):
            wishes, context = mounts.unchanged(wishes), now.carrying(context.carried or frozenset())
        outcome = msgspec.structs.replace(_outcome(context, mode, wishes, modules=_advice(outcome)), judged=judged)
        remarks = remarks or (f"mode {mode} makes no path here better, so it asks for no change of the system",)
        if pinned:
            remarks += (f"what the intent pins goes into {cufile.PATH} all the same: {', '.join(sorted(pinned))}",)
    to_mount = tuple((wish.target, wish.fstype) for wish in wishes if wish.change == "new" and mode != "undecided")
    judged = (*clients_lacking(now.node, to_mount), *outcome.judged)
    keys = pinned if idle else None
    if mode == "undecided" or not context.gpus or not context.mounts:
        keys = frozenset()
    fabrics, nets = nvme_of.desire(now), lnet.desire(now)
    unfit = mode == "p2pdma" or any(item.status != "pass" for item in judged)
    pathless = _pathless(now, context, outcome) if mode != "undecided" else ()
    plan = Plan(
        node=now.node,
        node_after=outcome.after.node,
        mode=mode,
        mode_reason=reason,
        intent=msgspec.structs.replace(now.intent, mounts=now.mounts),
        intent_from=now.said,
        verify=now.wanted.verify,
        release=context.version,
        cufile=outcome.file,
        written=outcome.file,
        driver=outcome.modules,
        mounts=wishes,
        nvme_of=fabrics,
        steps=()
        if mode == "undecided"
        else steps(
            now, outcome.file, outcome.modules, wishes, fabrics=fabrics, nets=nets, keys=keys, pathless=pathless
        ),
        routes_now=now.assessment.routes,
        routes_after=outcome.after.routes,
        unmet=(
            *_unmet(judged),
            *(_unread(now) if keys is None or keys else ()),
            *_unwritten(context, outcome.file),
            *(_contradicted(context, outcome.file) if mode != "undecided" else ()),
        ),
        notes=(
            *remarks,
            *(against(context, told) if unfit else ()),
            *(item.because for item in judged if item.idle),
            *_notes(context, outcome.file, outcome.modules, wishes),
            *fabrics.told,
            *nets.told,
            *(() if idle else outcome.file.packaged),
        ),
        findings=now.assessment.findings,
    )
    statuses = [item.status for item in judged if not item.idle]
    whole = {item.mount: item.status for item in judged if item.gpu is None and item.status != "pass"}
    pairs = [item.status if item.status != "pass" else whole.get(item.mount, "pass") for item in judged if item.route]
    return _Draft(
        plan=plan,
        fails=statuses.count("fail"),
        unknown=statuses.count("unknown"),
        of=len(context.gpus) * len(context.mounts),
        reached=pairs.count("pass"),
        unsure=pairs.count("unknown"),
        idle=idle,
        over_p2pdma=sum(item.route is not None and item.route.route in _P2PDMA for item in judged),
    )


def _outcome(
    context: Context,
    mode: PlanMode,
    wishes: tuple[MountPlan, ...],
    *,
    forced: bool = False,
    modules: DriverPlan | None = None,
) -> _Outcome:
    """`modules` None: what the mode asks of drivers and boot."""
    file = cufile.desire(context, mode, forced=forced)
    planned = driver.desire(context, mode, wishes) if modules is None else modules
    after = _after(context, planned, file)
    if modules is None and mode not in ("compat", "undecided"):
        asked = driver.with_findings(context.with_node(after), planned)
        if asked != planned:
            planned, after = asked, _after(context, asked, file)
    return _Outcome(file=file, modules=planned, after=after, judged=judge(context.with_node(after), after.routes))


def _after(context: Context, modules: DriverPlan, file: CufilePlan) -> Assessment:
    return assess(applied.with_cufile(applied.with_driver(context.node, modules), file))


def _carried(context: Context, trial: _Outcome) -> frozenset[str]:
    """The mounts that some GPU reaches over P2PDMA, or may reach, with everything for it switched on."""
    able = {storage.mount.target for _, storage in context.direct_storages if context.p2pdma_able(storage)}
    return frozenset(
        route.mount
        for route in trial.after.routes
        if route.gpu in context.gpu_keys and route.mount in able and route.route in (*_P2PDMA, "unknown")
    )


def _uncarried(context: Context, after: Assessment, targets: frozenset[str]) -> tuple[str, ...]:
    """One sentence a set of reasons: what stands against P2PDMA with everything for it switched on."""
    found: dict[str, list[str]] = {}
    for wish, _ in context.direct_storages:
        blocking = [
            judged.finding
            for judged in after.verdicts.judged
            if wish.target in targets
            and set(_P2PDMA) & set(judged.finding.blocks)
            and any(judged.scope.covers(gpu, wish.target) for gpu in context.gpu_keys)
        ]
        if blocking:
            why = "; ".join(dict.fromkeys(f"{finding.message} ({finding.id})" for finding in blocking))
            found.setdefault(why, []).append(wish.target)
    return tuple(
        f"P2PDMA gains nothing for {', '.join(mounts)}, so no step is for it: {why}" for why, mounts in found.items()
    )


def _blaming(judged: tuple[Judged, ...], trial: tuple[Judged, ...], targets: frozenset[str]) -> tuple[Judged, ...]:
    """For mounts that P2PDMA does not carry: why it does not, instead of what became of them without it."""
    tried = {
        (item.gpu, item.mount): item
        for item in trial
        if item.status == "fail" and item.gpu is not None and item.mount is not None and item.mount in targets
    }
    return tuple(
        tried.get((item.gpu, item.mount), item) if item.status == "fail" and item.gpu and item.mount else item
        for item in judged
    )


def _all_compat(context: Context) -> bool:
    """Is every mount of the intent to go through host memory?"""
    return bool(context.mounts) and all(wish.expect == "compat" for wish in context.mounts)


def _may_go_direct(context: Context, outcome: _Outcome) -> bool:
    targets = {wish.target for wish in context.mounts}
    return any(
        route.route not in ("compat", "none")
        for route in outcome.after.routes
        if route.mount in targets and route.gpu in context.gpu_keys
    )


def _pathless(now: Context, context: Context, outcome: _Outcome) -> tuple[str, ...]:
    """Intended mounts to which some GPU loses its only path, since the planned cufile.json comes to forbid compat mode."""
    forbids = any(
        d.key == "properties.allow_compat_mode" and d.planned is False for d in differences(now, outcome.file) or ()
    )
    if not forbids:
        return ()
    before = {(route.gpu, route.mount): route.route for route in now.assessment.routes}
    lost = {
        route.mount
        for route in outcome.after.routes
        if route.gpu in context.gpu_keys
        and route.route == "none"
        and "cufile.compat-forbidden" in route.blockers
        and before.get((route.gpu, route.mount)) != "none"
    }
    return tuple(wish.target for wish in context.mounts if wish.target in lost)


def _gains(now: Context, context: Context, outcome: _Outcome) -> bool:
    """Does an intended pair go direct with the plan, or may it, or does it go at all where it did not before?"""
    targets = {wish.target for wish, _ in context.direct_storages}
    before = {(route.gpu, route.mount): route.route for route in now.assessment.routes}
    pairs = [r for r in outcome.after.routes if r.mount in targets and r.gpu in context.gpu_keys]
    return not pairs or any(
        route.route != "none"
        and (route.route != "compat" or before.get((route.gpu, route.mount)) not in ("compat", "unknown", None))
        for route in pairs
    )


def _advice(outcome: _Outcome) -> DriverPlan:
    """Of what a mode without gain asks, only what a finding advises in any case."""
    return DriverPlan(
        arguments=tuple(a for a in outcome.modules.arguments if not a.needed),
        redirecting=outcome.modules.redirecting,
    )


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
            settle_with=first.route.settle_with if first.route else first.settle_with,
        )
        for items in groups.values()
        for first in items[:1]
    )


def _unread(now: Context) -> tuple[Unmet, ...]:
    """A cufile.json that may be there and was not read is not replaced."""
    if not unread(now):
        return ()
    return (
        Unmet(
            requirement="cufile",
            subject="cufile.json",
            status="unknown",
            because=f"what {cufile.PATH} says on this node is not known, so no step replaces it",
            settle_with=now.view.settle("gds", "cufile_config/files", f"cat {cufile.PATH}"),
        ),
    )


def _unwritten(context: Context, file: CufilePlan) -> tuple[Unmet, ...]:
    found = []
    for name in file.unwritten:
        key = cufile_keys.key(name)
        gone = key is not None and key.until is not None and is_not_before(context.release, key.until)
        since = f"needs GDS {key.since}" if key and not gone else "is no longer read by it"
        found.append(
            Unmet(
                requirement=f"tuning:{name}",
                subject="cufile.json",
                status="fail",
                because=f"{name} {since}; this is GDS {context.release}",
            )
        )
    return tuple(found)


def _contradicted(context: Context, file: CufilePlan) -> tuple[Unmet, ...]:
    """Wishes for cufile.json that the mode or a pin leaves no room for."""
    planned = {setting.key: setting for setting in file.settings}
    intent, order = context.intent, planned.get(cufile.ROUTING[1])
    allowed = planned.get("properties.allow_compat_mode")
    found = {}
    if intent.compat == "forbid" and allowed is not None and allowed.value is not False:
        found["compat"] = f"the intent says compat: forbid, and compat mode is allowed: {allowed.why}"
    if isinstance(intent.routing, tuple) and (order is None or order.value != list(intent.routing)):
        instead = order.why if order is not None else "what goes through host memory is not staged"
        found["routing"] = f"the intent says routing: [{', '.join(intent.routing)}], and it is not in force: {instead}"
    return tuple(
        Unmet(requirement=name, subject="cufile.json", status="fail", because=because)
        for name, because in found.items()
    )


def is_not_before(version: str, other: str) -> bool:
    return cufile_keys.release(version) >= cufile_keys.release(other)


def _notes(context: Context, file: CufilePlan, modules: DriverPlan, wishes: tuple[MountPlan, ...]) -> tuple[str, ...]:
    notes = [note for wish in wishes for note in wish.notes]
    notes += [*file.told, *modules.told]
    newest = cufile_keys.releases()[-1].gds
    if context.version is None:
        notes.append(
            f"the node's GDS release is not known: keys are written up to {newest}, older libraries pass over the newer ones"
        )
    elif cufile_keys.is_newer(context.version):
        notes.append(f"GDS {context.version} is newer than any whose keys are known: they are written as for {newest}")
    notes += [f"advised, not needed for any route: {a.word} ({a.why})" for a in modules.arguments if not a.needed]
    for name in modules.unsure:
        notes.append(f"whether the module {name} is installed and carries nvidia-fs's hooks is not known")
    return tuple(dict.fromkeys(notes))

"""The gate: required paths, installed configuration, waivers and baseline to one verdict."""

from __future__ import annotations

import datetime as dt
from typing import Literal

import msgspec

from gdsctl.assess.assessment import Assessment
from gdsctl.assess.routes import DIRECT
from gdsctl.plan import demand
from gdsctl.plan import waivers as waiving
from gdsctl.plan.context import Context
from gdsctl.plan.demand import Demand
from gdsctl.plan.desired import Plan, plan
from gdsctl.plan.documents import Drift, Requirement
from gdsctl.plan.drift import Change, against_baseline, cufile_drift, system_drift
from gdsctl.plan.expectation import judge
from gdsctl.plan.intent import Wanted
from gdsctl.record import Record

Verdict = Literal["pass", "fail", "unknown"]


class Gate(Record, frozen=True, kw_only=True):
    """`asked`: a sentence on the requirements, where it is not the intent that they come from."""

    asked: str | None = None
    plan: Plan
    verdict: Verdict
    requirements: tuple[Requirement, ...]
    drift: tuple[Drift, ...]

    @property
    def intent_from(self) -> str:
        return self.asked or self.plan.intent_from


def verify(
    assessment: Assessment,
    wanted: Wanted,
    *,
    demands: tuple[Demand, ...] = (),
    strict: bool = False,
    baseline: Assessment | None = None,
    waivers: tuple[str, str] | None = None,
    today: dt.date | None = None,
) -> Gate:
    """Judge a node. `waivers`: (text, path) of a waiver file; `demands`: requirements of the command line.

    With demands and no intent file only they are judged; the node's own mounts and the planned configuration are not.

    `strict`: findings of severity warning and above fail too, and so does drift that no route hangs on. What only a rule
    could not decide, and no required path hangs on, never counts.
    """
    planned = plan(assessment, wanted)
    context = Context(assessment, wanted)
    in_file = cufile_drift(context, planned)
    drifted = (*(in_file or ()), *system_drift(context, planned))
    requirements: list[Requirement] = []
    asked: str | None = None
    if wanted.path is not None or not demands:
        requirements += [item.as_requirement() for item in judge(context, assessment.routes)]
        requirements += _configuration(context, in_file, drifted, strict=strict)
    else:
        drifted = ()
        asked = "none: only what the command line requires"
    requirements += demand.judge(assessment, demands)
    if baseline is not None:
        changes = against_baseline(assessment, baseline)
        drifted += tuple(change.drift for change in changes)
        requirements += _since(changes)
    if strict:
        requirements += _findings(assessment)
    decided = _distinct(requirements)
    if waivers is not None:
        text, path = waivers
        known = [requirement.id for requirement in decided]
        decided = waiving.apply(
            decided, waiving.read(text, path, known), path, today or dt.datetime.now(dt.timezone.utc).date()
        )
    return Gate(asked=asked, plan=planned, verdict=verdict(decided), requirements=decided, drift=drifted)


def _distinct(requirements: list[Requirement]) -> tuple[Requirement, ...]:
    """One a pair of id and subject, by which reports, metrics and waivers know it: the worst of those that share one."""
    found: dict[tuple[str, str], Requirement] = {}
    for one in requirements:
        key = (one.id, one.subject)
        other = found.get(key)
        if other is None or other == one:
            found[key] = one
            continue
        worst = min(other, one, key=lambda each: ("fail", "unknown", "waived", "pass").index(each.status))
        alike = other.status == one.status and other.evidence != one.evidence
        evidence = f"{other.evidence}; {one.evidence}" if alike else worst.evidence
        found[key] = msgspec.structs.replace(worst, evidence=evidence)
    return tuple(found.values())


def verdict(requirements: tuple[Requirement, ...]) -> Verdict:
    """One failure fails; otherwise what cannot be told leaves all untold."""
    statuses = {requirement.status for requirement in requirements}
    return "fail" if "fail" in statuses else "unknown" if "unknown" in statuses else "pass"


def _configuration(
    context: Context, in_file: tuple[Drift, ...] | None, drifted: tuple[Drift, ...], *, strict: bool
) -> list[Requirement]:
    failed = [
        Requirement(
            id=f"{entry.kind}:{entry.key}",
            subject=entry.origin or ("the default" if entry.kind == "cufile" else "modprobe.d"),
            status="fail",
            evidence=f"{entry.said}: {entry.why}",
        )
        for entry in drifted
        if entry.required or strict
    ]
    fatal = context.view.config.fatal
    if fatal is not None:
        where = ":".join(str(part) for part in (fatal.path, fatal.line) if part is not None)
        said = f"{where}: {fatal.message}"
        return [Requirement(id="cufile", subject=fatal.path, status="fail", evidence=said, finding=fatal.id), *failed]
    if in_file is None:
        settle = context.view.settle("gds", "cufile_config/files", "cat /etc/cufile.json")
        said = "what the node's library would read is not known"
        unknown = Requirement(id="cufile", subject="cufile.json", status="unknown", evidence=said, settle_with=settle)
        return [unknown, *failed]
    if any(requirement.id.startswith("cufile:") for requirement in failed):
        return failed
    said = "the effective configuration is the planned one"
    return [Requirement(id="cufile", subject="cufile.json", status="pass", evidence=said), *failed]


def _since(changes: tuple[Change, ...]) -> list[Requirement]:
    requirements = []
    for change in changes:
        route, entry = change.route, change.drift
        unknown = route is not None and route.route == "unknown"
        requirements.append(
            Requirement(
                id=f"baseline:{change.mount}",
                subject=change.gpu,
                status="unknown" if unknown else "fail",
                evidence=f"was {entry.planned}, is {entry.installed}: {entry.why}",
                finding=next(iter(route.blockers), None) if route is not None and route.route not in DIRECT else None,
                settle_with=route.settle_with if route is not None and unknown else None,
            )
        )
    said = "every route and ceiling is the baseline's"
    return requirements or [Requirement(id="baseline", subject="node", status="pass", evidence=said)]


def _findings(assessment: Assessment) -> list[Requirement]:
    return [
        Requirement(id=finding.id, subject=finding.subject, status="fail", evidence=finding.message, finding=finding.id)
        for finding in assessment.findings
        if finding.severity != "info"
    ]

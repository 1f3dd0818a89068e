"""Requirements of the command line, for gates that have no intent file.

PATH:MOUNT         every GPU takes this path to the mount: direct, direct-or-routed, compat, any, or a route's name
PATH:@KIND[,KIND]  the same for the data mounts of a kind: nvme, nvme-of, md, nfs, lustre, wekafs, gpfs ...
FACT=VALUE         a fact of the node; FACT!=VALUE; FACT>=VALUE and FACT<=VALUE for versions and counts
no:FINDING         the node does not have this finding
"""

from __future__ import annotations

import re
import typing
from collections.abc import Iterable
from typing import Any, Literal, cast

from gdsctl.assess.assessment import Assessment
from gdsctl.assess.rules import ids
from gdsctl.assess.system_mounts import is_system
from gdsctl.assess.view import View, gpu_key
from gdsctl.data.limits import numbers
from gdsctl.data.profiles import Fact, facts, profiles
from gdsctl.errors import UsageError
from gdsctl.model.devices import Backing
from gdsctl.model.judgement import Route
from gdsctl.model.unknown import Gap
from gdsctl.plan.documents import Requirement
from gdsctl.plan.expectation import fits
from gdsctl.plan.intent import Expect
from gdsctl.plan.yaml_text import meant
from gdsctl.record import Record

_EXPECTED = typing.get_args(Expect)
_ROUTES = ("nvidia-fs", "p2pdma", "c2c", "rdma")
_KINDS = typing.get_args(typing.get_type_hints(Backing)["kind"])
_FACT = re.compile(r"([a-z0-9][a-z0-9.-]*)(=|!=|>=|<=)(.+)", re.DOTALL)
_BOOLEANS = {"true": True, "yes": True, "false": False, "no": False}

_Status = Literal["pass", "fail", "unknown"]


class PathDemand(Record, frozen=True, kw_only=True):
    """`mount` or else `kinds` says which mounts."""

    path: str
    mount: str | None = None
    kinds: tuple[str, ...] = ()


class FactDemand(Record, frozen=True, kw_only=True):
    name: str
    operator: Literal["=", "!=", ">=", "<="]
    value: str


class FreeOf(Record, frozen=True, kw_only=True):
    finding: str


Demand = PathDemand | FactDemand | FreeOf


def read(text: str) -> Demand:
    """One requirement; UsageError with the nearest name for what is none."""
    fact = _FACT.fullmatch(text)
    if fact is not None:
        return _fact(text, *fact.groups())
    word, colon, rest = text.partition(":")
    if colon and word == "no":
        if rest not in ids():
            raise UsageError(f"--require {text!r}: {rest!r} is no finding{meant(rest, ids())}")
        return FreeOf(finding=rest)
    if colon and word in (*_EXPECTED, *_ROUTES):
        return _path(text, word, rest)
    known = (*_EXPECTED, *_ROUTES, "no")
    if colon:
        raise UsageError(f"--require {text!r}: {word!r} is not one of {', '.join(known)}{meant(word, known)}")
    raise UsageError(
        f"--require {text!r}: wanted PATH:MOUNT, FACT=VALUE or no:FINDING, such as direct:/mnt/nvme or driver.kind=open"
    )


def of_profile(name: str) -> tuple[Demand, ...]:
    """What a profile stands for; UsageError with the nearest name for one that does not exist."""
    profile = profiles().get(name)
    if profile is None:
        known = ", ".join(profiles())
        raise UsageError(f"--profile {name!r} is not one of {known}{meant(name, profiles())}")
    return tuple(read(text) for text in profile.require)


def _path(text: str, path: str, where: str) -> PathDemand:
    if where.startswith("@"):
        kinds = tuple(where[1:].split(","))
        for kind in kinds:
            if kind not in _KINDS:
                raise UsageError(f"--require {text!r}: no kind of mount is called {kind!r}{meant(kind, _KINDS)}")
        return PathDemand(path=path, kinds=kinds)
    if not where.startswith("/") or "\0" in where:
        raise UsageError(f"--require {text!r}: {where!r} is neither an absolute path nor @KIND")
    return PathDemand(path=path, mount=where.rstrip("/") or "/")


def _fact(text: str, name: str, operator: str, value: str) -> FactDemand:
    fact = facts().get(name)
    if fact is None:
        known = ", ".join(facts())
        raise UsageError(f"--require {text!r}: no fact is called {name!r}{meant(name, facts()) or '; known: ' + known}")
    if fact.type in ("word", "boolean") and operator not in ("=", "!="):
        raise UsageError(f"--require {text!r}: {name} has no order; use = or !=")
    fits_type = {
        "word": value in fact.values,
        "boolean": value in _BOOLEANS,
        "version": bool(re.fullmatch(r"\d+(\.\d+)*", value)),
        "count": value.isascii() and value.isdecimal(),
    }[fact.type]
    if not fits_type:
        allowed = {
            "word": ", ".join(fact.values),
            "boolean": "true or false",
            "version": "a version such as 2.20",
            "count": "a number",
        }
        raise UsageError(
            f"--require {text!r}: {name} is {allowed[fact.type]}, not {value!r}{meant(value, fact.values)}"
        )
    return FactDemand(name=name, operator=cast("Any", operator), value=value)


def judge(assessment: Assessment, demands: Iterable[Demand]) -> list[Requirement]:
    """Every demand against the node, in their order; one Requirement a GPU for paths."""
    found: list[Requirement] = []
    view = View(assessment.node, assessment.config, assessment.pairs)
    for demand in dict.fromkeys(demands):
        if isinstance(demand, PathDemand):
            found += _judge_path(assessment, view, demand)
        elif isinstance(demand, FactDemand):
            found.append(_judge_fact(assessment, demand))
        else:
            found += _judge_finding(assessment, demand)
    return found


# --- paths ----------------------------------------------------------------------------------------------------------


def _judge_path(assessment: Assessment, view: View, demand: PathDemand) -> list[Requirement]:
    node = assessment.node
    if not view.gpus:
        known = view.gpuless and node.gap("gpus", "") is None
        said = "the node has no GPU" if known else "which GPUs there are is not known"
        return [_told("gpu", "node", "fail" if known else "unknown", said, settle="nvidia-smi -L")]
    mounts = _mounts(view, demand)
    if not mounts:
        known = next((gap for gap in node.gaps if gap.section == "mounts" and gap.key is None), None) is None
        where = demand.mount or f"@{','.join(demand.kinds)}"
        said = f"{where} is not mounted" if demand.mount else f"no data mount is of kind {' or '.join(demand.kinds)}"
        said = f"wanted {demand.path}: {said if known else 'the mount table is not known'}"
        return [
            _told(f"route:{where}", "node", "fail" if known else "unknown", said, settle="cat /proc/self/mountinfo")
        ]
    routes = {(route.gpu, route.mount): route for route in assessment.routes}
    return [
        _judge_route(demand.path, gpu_key(gpu), mount, routes.get((gpu_key(gpu), mount)))
        for mount in mounts
        for gpu in view.gpus
    ]


def _mounts(view: View, demand: PathDemand) -> list[str]:
    """Of a kind, the mounts of the operating system count only where there is no other."""
    if demand.mount is not None:
        return [demand.mount] if any(mount.target == demand.mount for mount in view.mounts) else []
    fitting = dict.fromkeys(mount.target for mount in view.mounts if mount.backing.kind in demand.kinds)
    return [target for target in fitting if not is_system(target)] or list(fitting)


def _judge_route(path: str, gpu: str, mount: str, route: Route | None) -> Requirement:
    status: _Status
    if path in _EXPECTED:
        status, said = fits(cast("Expect", path), route)
    elif route is None or route.route == "unknown":
        status, said = "unknown", f"wanted {path}: {route.because if route else 'no route was worked out'}"
    elif route.route == path:
        status, said = "pass", f"wanted {path}, gets {path}"
    else:
        direct = route.route in _ROUTES
        status, said = "fail", f"wanted {path}, gets {route.route if direct else route.because}"
    unfit = route is not None and status != "pass"
    return Requirement(
        id=f"route:{mount}",
        subject=gpu,
        status=status,
        evidence=said,
        finding=route.blockers[0] if route is not None and unfit and route.blockers else None,
        settle_with=route.settle_with if route is not None and unfit else None,
    )


# --- facts and findings ---------------------------------------------------------------------------------------------


def _judge_fact(assessment: Assessment, demand: FactDemand) -> Requirement:
    fact = facts()[demand.name]
    value, gap = _value(assessment, fact)
    wanted = f"wanted {demand.operator} {demand.value}"
    if gap is not None:
        said = f"{wanted}: not known" + (f" ({gap.detail})" if gap.detail else "")
        return _told(demand.name, "node", "unknown", said, settle=gap.settle_with or fact.settle_with)
    if value is None:
        return _told(demand.name, "node", "fail", f"{wanted}: the node has none")
    shown = str(value).lower() if isinstance(value, bool) else str(value)
    return _told(demand.name, "node", "pass" if _holds(demand, fact, value) else "fail", f"{wanted}, is {shown}")


def _value(assessment: Assessment, fact: Fact) -> tuple[Any, Gap | None]:
    node = assessment.node
    if fact.read.startswith("cufile:"):
        key = fact.read.removeprefix("cufile:")
        if not assessment.config.known:
            return None, node.gap("gds", "cufile_config/files") or _nobody_knows("gds", key)
        return assessment.config.flag(key), None
    section, *fields = fact.read.split(".")
    gap = next((gap for gap in node.gaps if gap.section == section and gap.field == "/".join(fields)), None)
    value: Any = getattr(node, section)
    for name in fields:
        value = getattr(value, name)
    if fact.type == "count":
        return len(value), None if value or not (gap or not node.pci.devices) else gap or _nobody_knows(section, "")
    if value == "unknown":
        return None, gap or _nobody_knows(section, fields[0])
    return value, gap if value is None else None


def _nobody_knows(section: str, field: str) -> Gap:
    return Gap(section=section, field=field, reason="absent")


def _holds(demand: FactDemand, fact: Fact, value: Any) -> bool:
    if fact.type == "boolean":
        same = value is _BOOLEANS[demand.value]
    elif fact.type == "word":
        same = value == demand.value
    else:
        wanted = numbers(demand.value)
        found = (*numbers(str(value)), *(0 for _ in wanted))[: len(wanted)]  # 580 stands for every 580.x
        if demand.operator == ">=":
            return found >= wanted
        if demand.operator == "<=":
            return found <= wanted
        same = found == wanted
    return same is (demand.operator == "=")


def _judge_finding(assessment: Assessment, demand: FreeOf) -> list[Requirement]:
    id_ = f"no:{demand.finding}"
    found = [finding for finding in assessment.findings if finding.id == demand.finding]
    if found:
        return [
            Requirement(
                id=id_, subject=finding.subject, status="fail", evidence=finding.message, finding=demand.finding
            )
            for finding in found
        ]
    for undecided in assessment.verdicts.undecided:
        if undecided.id == demand.finding:
            cannot = undecided.cannot
            return [_told(id_, cannot.subject, "unknown", f"cannot tell: {cannot.fact}", settle=cannot.settle_with)]
    return [_told(id_, "node", "pass", "not found")]


def _told(id_: str, subject: str, status: _Status, evidence: str, settle: str | None = None) -> Requirement:
    settle = settle if status == "unknown" else None
    return Requirement(id=id_, subject=subject, status=status, evidence=evidence, settle_with=settle)

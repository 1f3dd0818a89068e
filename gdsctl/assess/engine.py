"""Runs the rules over a node and puts what they found in dependency order."""

from __future__ import annotations

from collections.abc import Iterable

from gdsctl.assess.rule import Cannot, Fail, Rule, Scope, Verdict
from gdsctl.assess.view import View
from gdsctl.model.judgement import Finding, RouteName
from gdsctl.record import Record

_SEVERITY_ORDER = {"critical": 0, "error": 1, "warning": 2, "info": 3}


class Judged(Record, frozen=True, kw_only=True):
    """A finding together with the pairs it touches."""

    finding: Finding
    scope: Scope


class Undecided(Record, frozen=True, kw_only=True):
    """A rule that could not tell, and the routes that hang on it."""

    id: str
    cannot: Cannot
    blocks: tuple[RouteName, ...]


class Findings(Record, frozen=True, kw_only=True):
    """All verdicts of a run: `judged` with root causes first, `undecided` in the rules' order."""

    judged: tuple[Judged, ...] = ()
    undecided: tuple[Undecided, ...] = ()


def run(view: View, rules: Iterable[Rule]) -> Findings:
    """Every rule's verdicts. A rule that raises is a fault of gdsctl and is not caught: silence would read as OK."""
    rules = in_dependency_order(rules)
    judged: list[Judged] = []
    undecided: list[Undecided] = []
    for rule in rules:
        for verdict in rule.check(view):
            _sort_in(rule, verdict, judged, undecided)
    return Findings(judged=tuple(judged), undecided=tuple(undecided))


def _sort_in(rule: Rule, verdict: Verdict, judged: list[Judged], undecided: list[Undecided]) -> None:
    blocks = rule.blocks if verdict.blocks is None else verdict.blocks
    if isinstance(verdict, Fail):
        finding = Finding(
            id=rule.id,
            severity=verdict.severity or rule.severity,
            subject=verdict.subject,
            message=verdict.message,
            why=rule.why,
            evidence=verdict.evidence,
            remedy=verdict.remedy or rule.remedy,
            blocks=blocks,
            source=rule.source,
        )
        judged.append(Judged(finding=finding, scope=verdict.scope))
    else:
        undecided.append(Undecided(id=rule.id, cannot=verdict, blocks=blocks))


def in_dependency_order(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Root causes before what follows from them; among equals the graver first, then by id."""
    waiting = sorted(rules, key=lambda rule: (_SEVERITY_ORDER[rule.severity], rule.id))
    known = {rule.id for rule in waiting}
    ordered: list[Rule] = []
    placed: set[str] = set()
    while waiting:
        ready = next((r for r in waiting if all(i in placed or i not in known for i in r.after)), None)
        if ready is None:
            raise AssertionError(f"rules wait for each other: {[rule.id for rule in waiting]}")
        waiting.remove(ready)
        ordered.append(ready)
        placed.add(ready.id)
    return tuple(ordered)

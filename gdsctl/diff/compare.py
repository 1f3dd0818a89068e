"""Nodes in, groups out: one pass, and memory for one state a group whatever the number of nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

from gdsctl.diff.nodeset import fold
from gdsctl.diff.state import Path, State
from gdsctl.model.node import SCHEMA_VERSION, Tool
from gdsctl.record import Record

MOST_VALUES = 16
"""Values of a fact that are kept; of more it is only told that they differ."""

Kind = Literal["route", "ceiling", "finding", "unknown"]


class Difference(Record, frozen=True, kw_only=True):
    """`subject`: mount or finding id; `gpus`: numbers of the GPUs concerned; `was`: in the reference group.

    `kind` unknown: one side could not be told, so whether it drifted cannot either.
    """

    kind: Kind
    subject: str
    gpus: tuple[int, ...] = ()
    was: str
    now: str


class Group(Record, frozen=True, kw_only=True):
    """Nodes whose paths, ceilings and findings are the same. `nodes`: folded; `differences`: from the reference."""

    nodes: str
    names: tuple[str, ...]
    reference: bool = False
    differences: tuple[Difference, ...] = ()


class FactValue(Record, frozen=True, kw_only=True):
    value: str
    nodes: str
    count: int


class CosmeticDifference(Record, frozen=True, kw_only=True):
    """A fact that differs while no path does. `more`: nodes with values beyond those that are told."""

    fact: str
    values: tuple[FactValue, ...]
    more: int = 0


class DiffReport(Record, frozen=True, kw_only=True):
    """`groups`: the reference first, then the others, largest first."""

    schema_version: str = SCHEMA_VERSION
    tool: Tool
    verdict: Literal["same", "drift", "unknown"]
    nodes: int
    groups: tuple[Group, ...]
    cosmetic: tuple[CosmeticDifference, ...]


def compare(states: Iterable[tuple[str, State]], tool: Tool) -> DiffReport:
    """(what the user called it, state) of every node. The largest group is the reference; of equals the first."""
    examples: dict[str, State] = {}
    members: dict[str, list[int]] = {}
    specs: list[str] = []
    hosts: list[str | None] = []
    facts: dict[str, dict[str, list[int]]] = {}
    beyond: Counter[str] = Counter()
    for number, (spec, state) in enumerate(states):
        specs.append(spec)
        hosts.append(state.host)
        examples.setdefault(state.key, state)
        members.setdefault(state.key, []).append(number)
        for name, value in state.facts.items():
            values = facts.setdefault(name, {})
            if value in values or len(values) < MOST_VALUES:
                values.setdefault(value, []).append(number)
            else:
                beyond[name] += 1
    hosts_tell = None not in hosts and len(set(hosts)) == len(hosts)
    names = [host or "" for host in hosts] if hosts_tell else specs
    order = sorted(members, key=lambda key: -len(members[key]))
    groups = tuple(
        Group(
            nodes=fold(names[number] for number in members[key]),
            names=tuple(names[number] for number in members[key]),
            reference=key == order[0],
            differences=tuple(differences(examples[order[0]], examples[key])),
        )
        for key in order
    )
    kinds = {difference.kind for group in groups for difference in group.differences}
    return DiffReport(
        tool=tool,
        verdict="drift" if kinds - {"unknown"} else "unknown" if kinds else "same",
        nodes=len(names),
        groups=groups,
        cosmetic=tuple(_cosmetic(facts, beyond, names)),
    )


def _cosmetic(
    facts: dict[str, dict[str, list[int]]], beyond: Counter[str], names: list[str]
) -> Iterable[CosmeticDifference]:
    for fact, values in facts.items():
        if len(values) == 1 and sum(map(len, values.values())) == len(names):
            continue
        found = [
            FactValue(value=value, nodes=fold(names[number] for number in numbers), count=len(numbers))
            for value, numbers in sorted(values.items(), key=lambda item: -len(item[1]))
        ]
        yield CosmeticDifference(fact=fact, values=tuple(found), more=beyond[fact])


def differences(reference: State, state: State) -> list[Difference]:
    """What a node's state has that the reference's has not, GPUs that fare alike together."""
    found: dict[tuple[Kind, str, str, str], list[int]] = {}
    for mount in dict.fromkeys((*reference.paths, *state.paths)):
        before, after = reference.paths.get(mount, {}), state.paths.get(mount, {})
        for gpu in sorted({*before, *after}):
            for kind, was, now in _path(before.get(gpu), after.get(gpu)):
                found.setdefault((kind, mount, was, now), []).append(gpu)
    told = [
        Difference(kind=kind, subject=mount, gpus=tuple(gpus), was=was, now=now)
        for (kind, mount, was, now), gpus in found.items()
    ]
    for id_ in sorted({*reference.findings, *state.findings}):
        counts = reference.findings.get(id_, 0), state.findings.get(id_, 0)
        if counts[0] != counts[1]:
            was, now = (f"{count} found" if count else "not found" for count in counts)
            told.append(Difference(kind="finding", subject=id_, was=was, now=now))
    return told


def _path(before: Path | None, after: Path | None) -> Iterable[tuple[Kind, str, str]]:
    if before is None or after is None:
        yield "route", before.route if before else "absent", after.route if after else "absent"
    elif before.route != after.route:
        yield "unknown" if "unknown" in (before.route, after.route) else "route", before.route, after.route
    elif before.ceiling_gbs != after.ceiling_gbs:
        unknown = None in (before.ceiling_gbs, after.ceiling_gbs)
        yield "unknown" if unknown else "ceiling", _gbs(before.ceiling_gbs), _gbs(after.ceiling_gbs)


def _gbs(ceiling: float | None) -> str:
    return f"{ceiling:.4g} GB/s" if ceiling is not None else "ceiling not known"

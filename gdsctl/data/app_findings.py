"""What is told of the findings about applications: rows of `app_findings.toml`, with a rule's fields."""

from __future__ import annotations

import functools

from gdsctl.data.tables import load
from gdsctl.model.judgement import Remedy, RouteName, Severity
from gdsctl.record import Record


class Story(Record, frozen=True, kw_only=True):
    """As a rule of the node has it (gdsctl.assess.rule), without a check: these look at files, not at a node."""

    id: str
    severity: Severity
    problem: str
    why: str
    look_at: tuple[str, ...]
    remedy: Remedy
    source: str
    not_to_conclude: str = ""
    blocks: tuple[RouteName, ...] = ()
    after: tuple[str, ...] = ()
    otherwise: dict[Severity, str] = {}


class _Row(Record, frozen=True, kw_only=True):
    """`remedy_for`: software, or kind of container -> what to change there, where that is not `remedy`."""

    id: str
    severity: Severity
    problem: str
    why: str
    look_at: tuple[str, ...]
    remedy: str
    source: str
    not_to_conclude: str = ""
    remedy_for: dict[str, str] = {}
    otherwise: dict[Severity, str] = {}


@functools.cache
def _rows() -> tuple[_Row, ...]:
    return load("app_findings.toml", dict[str, tuple[_Row, ...]])["finding"]


def remedy_for(id_: str, user: str) -> Remedy | None:
    """What one software's, or one kind of container's, user changes. None: what the story says holds for all."""
    texts = next(row.remedy_for for row in _rows() if row.id == id_)
    return Remedy(text=texts[user]) if user in texts else None


@functools.cache
def stories() -> dict[str, Story]:
    """Id -> story."""
    return {
        row.id: Story(
            id=row.id,
            severity=row.severity,
            problem=row.problem,
            why=row.why,
            look_at=row.look_at,
            remedy=Remedy(text=row.remedy),
            source=row.source,
            not_to_conclude=row.not_to_conclude,
            otherwise=row.otherwise,
        )
        for row in _rows()
    }

"""Requirements that an operator has accepted to fail, until a day."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

import msgspec

from gdsctl.assess.rules import ids
from gdsctl.data.cufile_keys import keys as all_keys
from gdsctl.errors import InputError
from gdsctl.plan.documents import Requirement
from gdsctl.plan.yaml_text import Value, compose, meant
from gdsctl.record import Record

_KEYS = ("id", "subject", "reason", "owner", "expires")


class Waiver(Record, frozen=True, kw_only=True):
    """`id`: of a requirement, or of the finding behind it; `subject` None: whatever it is about; `expires`: last day."""

    id: str
    subject: str | None = None
    reason: str
    owner: str
    expires: dt.date
    line: int

    def covers(self, requirement: Requirement) -> bool:
        return self.id in (requirement.id, requirement.finding) and self.subject in (None, requirement.subject)


def read(text: str, path: str, known: Iterable[str]) -> tuple[Waiver, ...]:
    """A list of waivers, or a mapping with the key `waivers`. `known`: ids of this run's requirements.

    Raises InputError (FILE:LINE) for another shape, a missing field, and an id that names nothing.
    """
    try:
        root = compose(text)
        if root is None or root.is_null:
            return ()
        items = root.items() if root.is_list else root.fields(("waivers",)).get("waivers")
        if items is None:
            return ()
        values = items if isinstance(items, list) else items.items()
        names = {*known, *ids(), *(f"cufile:{key.key}" for key in all_keys())}
        return tuple(_waiver(value, names) for value in values)
    except InputError as error:
        raise error.at(path) from None


def _waiver(value: Value, names: set[str]) -> Waiver:
    given = {name: field for name, field in value.fields(_KEYS).items() if not field.is_null}
    for name in ("id", "reason", "owner", "expires"):
        if name not in given or not given[name].text().strip():
            raise value.fault(f"{name} is missing: a waiver says what, why, who and until when")
    id_ = given["id"].text()
    if id_ not in names:
        raise given["id"].fault(
            f"{id_[:100]!r} is no finding and no requirement of this node{meant(id_, sorted(names))}"
        )
    return Waiver(
        id=id_,
        subject=given["subject"].text() if "subject" in given else None,
        reason=given["reason"].text(),
        owner=given["owner"].text(),
        expires=given["expires"].date(),
        line=given["id"].line,
    )


def apply(
    requirements: tuple[Requirement, ...], waivers: tuple[Waiver, ...], path: str, today: dt.date
) -> tuple[Requirement, ...]:
    """Failures that a waiver covers are waived; a waiver past its day is a failure of its own, whatever it covers."""
    found = []
    for requirement in requirements:
        valid = next((w for w in waivers if w.expires >= today and w.covers(requirement)), None)
        if valid is None or requirement.status != "fail":
            found.append(requirement)
            continue
        said = f"waived by {valid.owner} until {valid.expires.isoformat()}: {valid.reason}; {requirement.evidence}"
        found.append(msgspec.structs.replace(requirement, status="waived", evidence=said))
    found += [
        Requirement(
            id="waiver",
            subject=f"{waiver.id} {waiver.subject or ''}".strip(),
            status="fail",
            evidence=f"{path}:{waiver.line}: expired on {waiver.expires.isoformat()} (owner {waiver.owner}): renew or remove it",
        )
        for waiver in waivers
        if waiver.expires < today
    ]
    return tuple(found)

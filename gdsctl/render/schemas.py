"""JSON Schemas of the documents, made from the records that they are."""

from __future__ import annotations

from typing import Any

import msgspec

from gdsctl.model.node import Report
from gdsctl.plan.documents import PlanReport, VerifyReport
from gdsctl.plan.intent import Intent
from gdsctl.record import Record
from gdsctl.source.snapshot import Manifest

SCHEMAS: dict[str, type[Record]] = {
    "inspect": Report,
    "plan": PlanReport,
    "verify": VerifyReport,
    "intent": Intent,
    "snapshot": Manifest,
}
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema(name: str) -> dict[str, Any]:
    """JSON Schema (2020-12) of one document; raises KeyError for a name that is none."""
    found = msgspec.json.schema(SCHEMAS[name], schema_hook=_hook)
    return {"$schema": _DIALECT, "$id": f"urn:gdsctl:schema:{name}:1", "title": f"gdsctl {name}", **found}


def _hook(kind: type) -> dict[str, Any]:
    raise NotImplementedError(kind)

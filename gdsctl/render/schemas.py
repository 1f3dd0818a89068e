"""JSON Schemas of the documents, made from the records that they are."""

from __future__ import annotations

from typing import Any

import msgspec

from gdsctl.assess.lint_report import LintReport
from gdsctl.data.app_findings import Story
from gdsctl.data.cufile_errors import CufileError
from gdsctl.diff.compare import DiffReport
from gdsctl.kvcache.app import AppReport
from gdsctl.kvcache.size import Size
from gdsctl.model.judgement import Severity
from gdsctl.model.node import Report
from gdsctl.plan.documents import PlanReport, VerifyReport
from gdsctl.plan.intent import SCHEMA, Intent
from gdsctl.probe.report import ProbeReport
from gdsctl.record import Record
from gdsctl.source.snapshot import Manifest


class StoryLine(Record, frozen=True, kw_only=True):
    """A finding in the list of all."""

    id: str
    severity: Severity
    problem: str


# Several: the document is one of them.
SCHEMAS: dict[str, tuple[Any, ...]] = {
    "inspect": (Report,),
    "plan": (PlanReport,),
    "verify": (VerifyReport,),
    "app": (AppReport,),
    "size": (Size,),
    "probe": (ProbeReport,),
    "diff": (DiffReport,),
    "lint": (LintReport,),
    "explain": (Story, CufileError, tuple[StoryLine, ...]),
    "intent": (Intent,),
    "snapshot": (Manifest,),
}
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema(name: str) -> dict[str, Any]:
    """JSON Schema (2020-12) of one document; raises KeyError for a name that is none."""
    kinds, parts = msgspec.json.schema_components(SCHEMAS[name], ref_template="#/$defs/{name}")
    found = {**(kinds[0] if len(kinds) == 1 else {"anyOf": list(kinds)}), "$defs": parts}
    if name == "intent":
        _as_written(found["$defs"])
    return {"$schema": _DIALECT, "$id": f"urn:gdsctl:schema:{name}:1", "title": f"gdsctl {name}", **found}


def _as_written(defs: dict[str, Any]) -> None:
    """An operator may write more than the record keeps: sizes with a unit, a release without quotes, empty keys."""
    defs["Intent"]["properties"]["schema"] = {"const": SCHEMA}
    defs["Intent"]["properties"]["gds_version"] = {"type": ["string", "number"], "default": "auto"}
    size = {"type": "string", "pattern": "^[0-9]+ ?(B|KiB|MiB|GiB|TiB|kB|MB|GB|TB)?$"}
    defs["Workload"]["properties"]["chunk_bytes"]["anyOf"].append(size)
    one = {"anyOf": [{"type": "string"}, defs["NvmeOf"]["properties"]["traddr"]]}
    defs["NvmeOf"]["properties"]["traddr"] = one
    for part in ("Intent", "MountIntent", "NvmeOf", "Workload"):
        for key, value in defs[part]["properties"].items():
            if key not in defs[part].get("required", ()):
                defs[part]["properties"][key] = {"anyOf": [value, {"type": "null"}]}

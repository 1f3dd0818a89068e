"""`verify` as SARIF 2.1.0 (OASIS Standard, 27 March 2020)."""

from __future__ import annotations

import hashlib
from typing import Any
from urllib.parse import quote

from gdsctl.assess.rules import explanation
from gdsctl.plan.documents import Requirement, VerifyReport
from gdsctl.render import documents

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVEL = {"critical": "error", "error": "error", "warning": "warning", "info": "note"}
_KIND = {"pass": "pass", "fail": "fail", "unknown": "open", "waived": "fail"}
_REQUIREMENTS = {
    "route": "A GPU x mount takes the path that is wanted",
    "gpu": "The node has the GPUs that are named",
    "cufile": "The effective cufile configuration is the planned one",
    "driver": "A registry key of the NVIDIA driver is the planned one",
    "module": "A kernel module is loaded, or its parameter set, as planned",
    "mount": "A mount's options are the planned ones",
    "baseline": "Routes and ceilings are the baseline's",
    "waiver": "A waiver is still valid",
    "no": "The node does not have a finding",
}


def sarif(report: VerifyReport) -> str:
    """One result a requirement. A failure that a finding explains carries its rule; a waived one is suppressed."""
    ids = list(dict.fromkeys(map(_rule_of, report.requirements)))
    results = [
        {"ruleId": _rule_of(one), "ruleIndex": ids.index(_rule_of(one)), **_result(one)} for one in report.requirements
    ]
    driver = {"name": report.tool.name, "version": report.tool.version, "rules": [_rule(id_) for id_ in ids]}
    run = {"tool": {"driver": driver}, "results": results}
    return documents.to_json({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]})


def _rule(id_: str) -> dict[str, Any]:
    story = explanation(id_)
    if story is None:
        text = _REQUIREMENTS.get(id_, f"The fact {id_} is as required")
        return {"id": id_, "shortDescription": {"text": text}}
    remedy = story["remedy"].text
    return {
        "id": id_,
        "shortDescription": {"text": story["problem"]},
        "fullDescription": {"text": story["why"]},
        "help": {"text": f"{remedy} (gdsctl explain {id_})"},
        "defaultConfiguration": {"level": _LEVEL[story["severity"]]},
    }


def _rule_of(requirement: Requirement) -> str:
    failed = requirement.status in ("fail", "waived")
    return requirement.finding if failed and requirement.finding else requirement.id.partition(":")[0]


def _result(requirement: Requirement) -> dict[str, Any]:
    kind = _KIND[requirement.status]
    settle = f"; settle with: {requirement.settle_with}" if requirement.settle_with else ""
    name = f"{requirement.id} {requirement.subject}"
    location: dict[str, Any] = {"logicalLocations": [{"fullyQualifiedName": _text(name), "kind": "resource"}]}
    if requirement.id.startswith("cufile") and requirement.subject.startswith("/"):
        location["physicalLocation"] = {
            "artifactLocation": {"uri": f"file://{quote(requirement.subject, errors='backslashreplace')}"}
        }
    result: dict[str, Any] = {
        "kind": kind,
        "level": "error" if kind == "fail" else "none",  # 3.27.10: any other kind has the level none
        "message": {"text": _text(f"{name}: {requirement.evidence}{settle}")},
        "locations": [location],
        "partialFingerprints": {"requirement/v1": _fingerprint(requirement.id, requirement.subject)},
    }
    if requirement.status == "waived":
        result["suppressions"] = [
            {"kind": "external", "status": "accepted", "justification": _text(requirement.evidence)}
        ]
    return result


def _text(text: str) -> str:
    """JSON holds no lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode()


def _fingerprint(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "backslashreplace")).hexdigest()[:32]

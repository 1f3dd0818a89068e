"""What lint found as SARIF 2.1.0 (OASIS), for code scanning: one result a problem, with its region."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from gdsctl.assess.cufile_merge import Problem
from gdsctl.assess.lint_report import LintReport
from gdsctl.render.documents import to_json

_LEVEL = {"critical": "error", "error": "error", "warning": "warning", "info": "note"}


def encode(report: LintReport) -> str:
    """The whole log as JSON. A problem of the environment has no file, so its result has no location."""
    from gdsctl.assess.rules import explanation

    ids = list(dict.fromkeys(problem.id for problem in report.problems))
    rules = []
    for id_ in ids:
        story = explanation(id_)
        rule: dict[str, Any] = {"id": id_}
        if story is not None:
            rule |= {"shortDescription": {"text": story["problem"]}, "fullDescription": {"text": story["why"]}}
        rules.append(rule)
    driver = {"name": "gdsctl", "semanticVersion": report.tool.version, "rules": rules}
    return to_json(
        {
            "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
            "version": "2.1.0",
            "runs": [
                {
                    "tool": {"driver": driver},
                    "columnKind": "unicodeCodePoints",
                    "results": [_result(problem, ids.index(problem.id), report.files) for problem in report.problems],
                }
            ],
        }
    )


def _result(problem: Problem, rule: int, files: tuple[str, ...]) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": problem.id,
        "ruleIndex": rule,
        "level": _LEVEL[problem.severity],
        "message": {"text": f"{problem.message}. {problem.remedy}"},
    }
    if problem.path not in files:
        return result
    # "<stdin>" is no name that a URI reference may hold as it stands.
    place: dict[str, Any] = {"artifactLocation": {"uri": quote(problem.path, safe="/", errors="surrogateescape")}}
    if problem.line is not None:
        place["region"] = {"startLine": problem.line}
        if problem.column is not None:
            place["region"]["startColumn"] = problem.column
    location: dict[str, Any] = {"physicalLocation": place}
    if problem.pointer:
        location["logicalLocations"] = [{"fullyQualifiedName": problem.pointer}]
    result["locations"] = [location]
    return result

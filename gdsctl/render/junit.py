"""`verify` as JUnit XML: what Jenkins' xUnit schema (junit-10.xsd) and the older one of Ant's reports both take."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from gdsctl.plan.documents import Requirement, VerifyReport
from gdsctl.render.safe_text import safe

# Char of XML 1.0 (fifth edition, 2.2): all else may not even be written as a reference.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ELEMENT = {"fail": "failure", "unknown": "error", "waived": "skipped"}
_UNDATED = "1970-01-01T00:00:00"


def junit(report: VerifyReport) -> str:
    """One test a requirement: fail is a failure, unknown an error, waived skipped. Durations are not measured: 0."""
    count = [requirement.status for requirement in report.requirements].count
    root = Element("testsuites")
    suite = SubElement(
        root,
        "testsuite",
        {
            "name": "gdsctl verify",
            "package": "gdsctl",
            "id": "0",
            "hostname": _clean(report.source.host or "unknown"),
            "timestamp": (report.source.captured_at or _UNDATED)[:19],
            "tests": str(len(report.requirements)),
            "failures": str(count("fail")),
            "errors": str(count("unknown")),
            "skipped": str(count("waived")),
            "time": "0",
        },
    )
    properties = SubElement(suite, "properties")
    for name, value in {"version": report.tool.version, "verdict": report.verdict, "mode": report.mode}.items():
        SubElement(properties, "property", {"name": name, "value": value})
    for requirement in report.requirements:
        _case(suite, requirement)
    SubElement(suite, "system-out")
    SubElement(suite, "system-err")
    indent(root)
    body = tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _case(suite: Element, requirement: Requirement) -> None:
    name = _clean(f"{requirement.id} [{requirement.subject}]")
    case = SubElement(suite, "testcase", {"classname": "gdsctl.verify", "name": name, "time": "0"})
    kind = _ELEMENT.get(requirement.status)
    if kind is None:
        return
    evidence = _clean(requirement.evidence)
    if kind == "skipped":  # Ant's schema knows no message here
        SubElement(case, kind)
        return
    outcome = SubElement(
        case, kind, {"type": requirement.finding or _clean(requirement.id.partition(":")[0]), "message": evidence}
    )
    lines = [evidence]
    if requirement.finding:
        lines.append(f"more: gdsctl explain {requirement.finding}")
    if requirement.settle_with:
        lines.append(f"settle with: {_clean(requirement.settle_with)}")
    outcome.text = "\n".join(lines)


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("", safe(text))

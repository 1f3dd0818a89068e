"""`verify` as one line for Nagios, Icinga and their kin (Monitoring Plugins development guidelines)."""

from __future__ import annotations

from gdsctl.plan.documents import VerifyReport
from gdsctl.render.safe_text import safe

_STATES = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
_LONGEST = 400


def code(report: VerifyReport) -> int:
    """0 OK; 1 WARNING: passes by a waiver; 2 CRITICAL: fails; 3 UNKNOWN."""
    if report.verdict == "pass":
        return int(any(requirement.status == "waived" for requirement in report.requirements))
    return 2 if report.verdict == "fail" else 3


def nagios(report: VerifyReport) -> str:
    """`GDS CRITICAL - what fails first | perfdata`."""
    statuses = [requirement.status for requirement in report.requirements]
    total = len(statuses)
    worst = {0: "pass", 1: "waived", 2: "fail", 3: "unknown"}[code(report)]
    told = f"{statuses.count('pass')} of {total} requirements hold"
    first = next((one for one in report.requirements if one.status == worst and worst != "pass"), None)
    if first is not None:
        told = f"{statuses.count(first.status)} of {total} {worst}: {first.id} {first.subject}: {first.evidence}"
    data = [
        f"passed={statuses.count('pass')};;;0;{total}",
        f"failed={statuses.count('fail')};;0;0;{total}",
        f"unknown={statuses.count('unknown')};0;;0;{total}",
        f"waived={statuses.count('waived')};0;;0;{total}",
    ]
    return f"{line(code(report), told)} | {' '.join(data)}\n"


def line(state: int, told: str) -> str:
    """The part before the performance data, which `|` would begin."""
    text = safe(told).replace("|", "/")
    return f"GDS {_STATES[state]} - {text if len(text) <= _LONGEST else text[: _LONGEST - 3] + '...'}"

"""Writes field-cases.md out of the table in tests/machines/field_table.py and what gdsctl makes of its machines.

python docs/build_field_cases.py            writes it
python docs/build_field_cases.py --check    exit code 1 where it is not current
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from gdsctl.model.node import Report  # noqa: E402 -- after the path to the tests
from tests.machines import field_table  # noqa: E402

PAGE = ROOT / "docs" / "field-cases.md"


def page(report_of: Callable[[str], Report]) -> str:
    """`report_of`: the report of a case by its name, of the sound machine by the empty name."""
    usual = field_table.raised(report_of(""))
    rows, expected, missed, extra, slips = [], 0, 0, 0, 0
    for case in field_table.CASES:
        report = report_of(case.name)
        found = {name for name, _ in field_table.raised(report) - usual}
        said = [label for label in case.unsaid if field_table.unwanted(label, report)]
        expected += len(case.expected)
        missed += len(case.expected - found)
        extra += len(found - case.expected)
        slips += len(said)
        (route,) = [route.route for route in report.routes if route.mount == "/mnt"]
        cells = (
            f"**{case.name}**: {case.why}",
            _ids(case.expected),
            _ids(found & case.expected),
            _ids(found - case.expected),
            route,
            "; ".join(label + (" SAID" if label in said else "") for label in case.unsaid),
        )
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(
        [
            "# Field cases\n",
            "<!-- Written by docs/build_field_cases.py; edit tests/machines/field_table.py instead. -->\n",
            "What people report when bytes do not go direct, each as a machine of our own that differs from a sound one in",
            "what the text says. Machine, logs and outputs go through the whole program. *Wrong*: findings that neither the",
            "case nor the sound machine has. *Not said*: advice and verdicts seen in the field that do harm or are false, and",
            "that no message, reason or command of the case may hold.\n",
            f"{len(rows)} cases, {expected} findings expected, {missed} missed, {extra} wrong, {slips} said that must not be.\n",
            "| case | expected | raised | wrong | route | not said |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _ids(names: frozenset[str] | set[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names)) or "none"


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        cases = {case.name: case for case in (field_table.SOUND, *field_table.CASES)}
        made = {name: field_table.report_of(case, Path(folder, name or "sound")) for name, case in cases.items()}
    text = page(made.__getitem__)
    if "--check" in sys.argv[1:]:
        return int(not PAGE.exists() or PAGE.read_text("utf-8") != text)
    PAGE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

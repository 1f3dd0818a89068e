"""The table of field cases: every id expected is raised, no other, and nothing is said that must not be."""

from __future__ import annotations

import functools
import importlib.util
import re
from pathlib import Path

import pytest

from gdsctl.assess.rules import ids
from gdsctl.model.node import Report
from tests.machines import field_table
from tests.machines.field_table import CASES, UNSAID, FieldCase, raised, report_of, unwanted

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> functools.partial[Report]:
    """Report of a case by name, made once."""

    @functools.cache
    def made(name: str) -> Report:
        case = next((case for case in CASES if case.name == name), field_table.SOUND)
        return report_of(case, tmp_path_factory.mktemp("case"))

    return functools.partial(made)


def test_the_table_is_whole() -> None:
    assert len(CASES) >= 40
    assert len({case.name for case in CASES}) == len(CASES)
    assert {name for case in CASES for name in case.expected} <= set(ids())
    assert set(UNSAID) == {label for case in CASES for label in case.unsaid}


@pytest.mark.parametrize("label", UNSAID)
def test_the_patterns_find_what_they_forbid(label: str) -> None:
    pattern, sentence = UNSAID[label]
    assert re.search(pattern, sentence, re.IGNORECASE)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: FieldCase, reports: functools.partial[Report]) -> None:
    report = reports(case.name)
    assert {name for name, _ in raised(report) - raised(reports(""))} == case.expected
    (route,) = [route for route in report.routes if route.mount == "/mnt"]
    assert route.route == case.route
    assert [text for label in case.unsaid for text in unwanted(label, report)] == []
    severities = {finding.id: finding.severity for finding in report.findings}
    assert {name: severities[name] for name in case.severity} == case.severity


def test_causes_come_before_what_follows_from_them(reports: functools.partial[Report]) -> None:
    order = [finding.id for finding in reports("licence-then-symbols-then-nvme").findings]
    assert order.index("driver.proprietary") < order.index("nvidia-fs.proprietary-driver")
    assert order.index("nvidia-fs.proprietary-driver") < order.index("nvidia-fs.not-loaded")


def test_the_page_is_current(reports: functools.partial[Report]) -> None:
    spec = importlib.util.spec_from_file_location("build_field_cases", ROOT / "docs" / "build_field_cases.py")
    assert spec is not None
    assert spec.loader is not None
    builder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(builder)
    assert builder.page(reports) == (ROOT / "docs" / "field-cases.md").read_text("utf-8")

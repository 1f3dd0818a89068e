"""docs/plan.md: its intents are read and planned, its keys exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gdsctl.assess.assessment import assess
from gdsctl.data.cufile_keys import keys as all_keys
from gdsctl.plan.desired import plan
from gdsctl.plan.intent import read
from tests.planned_nodes import example, local

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "plan.md").read_text("utf-8")
INTENTS = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", INTENTS)
def test_intents_of_the_page(text: str) -> None:
    found = read(text, "plan.md").intent
    assert found.mounts or found.tuning
    for node in (example("hgx-h100-vast").node, local()):
        made = plan(assess(node), read(text, "plan.md"))
        assert made.cufile.settings


def test_there_are_intents() -> None:
    assert len(INTENTS) == 6


def test_keys_of_the_page() -> None:
    rows = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `")]
    names = [name for row in rows for name in re.findall(r"`([\w.*]+)`", row) if not name.startswith("...")]
    known = [key.key for key in all_keys()]
    assert len(names) >= 14
    for name in names:
        pattern = re.escape(name).replace(r"\*", r"\w+")
        assert any(re.fullmatch(pattern, key) for key in known), name


def test_the_examples_are_as_the_program_prints_them() -> None:
    root = Path(__file__).resolve().parents[2]
    checked = subprocess.run([sys.executable, str(root / "docs" / "build_plan_examples.py"), "--check"], check=False)
    assert checked.returncode == 0

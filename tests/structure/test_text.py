"""What every row and every file must, and must not, say."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found]  # installed only where tomllib is missing

ROOT = Path(__file__).resolve().parents[2]
TABLES = sorted((ROOT / "gdsctl/data").glob("*.toml"))
_FOLDERS = (".ci", "gdsctl", "tests", "docs", "benchmarks", "fixtures")
_TEXT = {".py", ".md", ".toml", ".txt", ".xml", ".c", ".sh", ".json", ".yaml", ".svg", ""}

SOURCED_BY_COMMENT = {("cufile_keys", "releases")}  # pairs of versions, all from one place

# Pieced together, so that this file does not say them either.
FORBIDDEN = {
    "a path of one machine": re.compile("/wo" + r"rk/|/ho" + r"me/(?!user\b|alice\b)\w+/\w+/|/root/\.py" + "env"),
    "a number of a tracker": re.compile(r"\bissue\s+" + r"#\d", re.IGNORECASE),
}


@pytest.mark.parametrize("table", TABLES, ids=lambda path: path.stem)
def test_every_row_has_a_source(table: Path) -> None:
    content: dict[str, Any] = tomllib.loads(table.read_text("utf-8"))
    rows = [
        row for name, value in content.items() for row in _rows(value) if (table.stem, name) not in SOURCED_BY_COMMENT
    ]
    assert rows
    for row in rows:
        assert str(row.get("source", "")).strip(), row


def _rows(value: Any) -> list[dict[str, Any]]:
    """A list of tables, one table, or tables by name."""
    if isinstance(value, list):
        return [row for row in value if isinstance(row, dict)]
    if not isinstance(value, dict):
        return []
    named = [row for row in value.values() if isinstance(row, dict)]
    return named or [value]


def _files() -> list[Path]:
    found = [path for path in ROOT.iterdir() if path.is_file() and path.suffix in _TEXT]
    for folder in _FOLDERS:
        found += [path for path in (ROOT / folder).rglob("*") if path.is_file() and path.suffix in _TEXT]
    return [path for path in found if "__pycache__" not in path.parts]


def test_no_file_speaks_of_one_workplace() -> None:
    told = [
        f"{path.relative_to(ROOT)}: {what}: {match[0]}"
        for path in _files()
        for what, pattern in FORBIDDEN.items()
        if (match := pattern.search(path.read_text("utf-8", errors="replace")))
    ]
    assert told == []

"""Every row has its file, every file its test. Rules have their own: tests/assess/rules/test_rules.py."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from pathlib import Path

import pytest

from gdsctl.parse import KINDS
from gdsctl.source.base import Source

ROOT = Path(__file__).resolve().parents[2]
PARSERS = sorted(path.stem for path in (ROOT / "gdsctl/parse").glob("*.py") if path.stem != "__init__")


@functools.cache
def _tests() -> str:
    return "\n".join(path.read_text("utf-8") for path in sorted((ROOT / "tests").rglob("test_*.py")))


def test_every_kind_has_a_parser() -> None:
    for kind, module in KINDS.items():
        assert module == f"gdsctl.parse.{kind.replace('-', '_')}"
        parameters = inspect.signature(importlib.import_module(module).parse).parameters.values()
        assert [one.name for one in parameters if one.default is one.empty] == ["text"]


@pytest.mark.parametrize("name", PARSERS)
def test_every_parser_is_tested(name: str) -> None:
    assert re.search(rf"\b{name}\b", _tests())


def test_public_verbs_say_what_they_give() -> None:
    for name in ("read", "names", "real", "exists", "run", "ask"):
        assert inspect.getdoc(getattr(Source, name))
    for path in (ROOT / "gdsctl/collect").glob("*.py"):
        collect = getattr(importlib.import_module(f"gdsctl.collect.{path.stem}"), "collect", None)
        assert collect is None or collect.__doc__, path.stem


def test_test_modules_have_names_of_their_own() -> None:
    """Test folders are no packages: pytest refuses two modules of one name."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted({name for name in names if names.count(name) > 1}) == []

"""Every class that lint calls fatal stops libcufile, and every name that it calls ignored is passed over."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gdsctl.assess.cufile_fix import fix
from tests.oracle.lint_classes import NAMES_ONLY, SAMPLES, kind_of, said, verdict

if TYPE_CHECKING:
    from tests.oracle.conftest import Libcufile

pytestmark = pytest.mark.oracle
PAGE = Path(__file__).resolve().parents[2] / "docs" / "lint-classes.md"


def test_fatal_classes_stop_the_library(libcufile: Libcufile) -> None:
    refused = libcufile.refuses([sample.text for sample in SAMPLES])
    assert sum(refused) >= 15
    for sample, no in zip(SAMPLES, refused, strict=True):
        assert (said(sample, libcufile.version) == "fatal") == no, sample


def test_ignored_names_are_ignored(installed: Libcufile) -> None:
    asked = [s for s in SAMPLES if s.id in NAMES_ONLY and said(s, installed.version)]
    assert len(asked) >= 7
    for sample in asked:
        assert verdict(installed, sample) == "ignored", sample


def test_corrected_files_open_clean(installed: Libcufile) -> None:
    """What --fix makes of the samples is taken by the library, whole and unchanged."""
    corrected = 0
    for sample in SAMPLES:
        fixed = fix("f", sample.text, version=installed.version, kind_of=kind_of)
        if fixed is None or fixed.left:
            continue
        corrected += 1
        answer = installed.ask(fixed.text, unknown=True)
        assert answer["clean"], (sample, fixed.text, answer)
    assert corrected >= 18


def test_the_page_names_every_class() -> None:
    page = PAGE.read_text("utf-8")
    assert all(f"| {sample.id} |" in page for sample in SAMPLES)

"""Shared fixtures: where optional field data lies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder of field data that is not part of the project; the test skips where it is absent."""
    folder = Path(os.environ.get("GDSCTL_FIELD_DATA", ROOT.parent / "shared"))
    if not (folder / "field").is_dir():
        pytest.skip("no field data beside the checkout")
    return folder


@pytest.fixture(scope="session")
def fixtures() -> Path:
    return ROOT / "fixtures"

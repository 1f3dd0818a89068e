from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gdsctl.errors import RefusedError
from gdsctl.probe.target import create


@pytest.fixture
def nameless(tmp_path: Path) -> Iterator[int]:
    """An empty file without a name, open for direct I/O."""
    try:
        made, _ = create(str(tmp_path))
    except RefusedError:
        pytest.skip("the temporary folder's file system has no O_DIRECT")
    yield made
    os.close(made)

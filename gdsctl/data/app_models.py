"""Public models by name: rows of `app_models.toml`."""

from __future__ import annotations

import functools
import re
from typing import Any

from gdsctl.data.tables import load
from gdsctl.record import Record


class ModelRow(Record, frozen=True, kw_only=True):
    """`config`: the fields of its config.json that size the KV cache."""

    pattern: str
    config: dict[str, Any]
    source: str


@functools.cache
def rows() -> tuple[ModelRow, ...]:
    return load("app_models.toml", dict[str, tuple[ModelRow, ...]])["model"]


def model(name: str) -> ModelRow | None:
    """The row of `org/NAME`, or None."""
    own = name.lower().rstrip("/").rpartition("/")[2]
    return next((row for row in rows() if re.fullmatch(row.pattern, own)), None)

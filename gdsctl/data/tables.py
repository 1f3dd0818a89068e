"""The one way in which a knowledge table becomes typed rows."""

from __future__ import annotations

import os
import sys
from typing import TypeVar

import msgspec

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found]  # installed only where tomllib is missing

T = TypeVar("T")


def load(name: str, table: type[T]) -> T:
    """A TOML file of this folder as records; a row with an unknown or missing field is a fault of the release."""
    with open(os.path.join(os.path.dirname(__file__), name), "rb") as file:
        return msgspec.convert(tomllib.load(file), table)

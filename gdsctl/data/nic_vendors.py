"""Makers of network adapters: rows of `nic_vendors.toml`."""

from __future__ import annotations

import functools
import os
import sys

import msgspec

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@functools.cache
def _vendors() -> dict[str, str]:
    with open(os.path.join(os.path.dirname(__file__), "nic_vendors.toml"), "rb") as file:
        return msgspec.convert(tomllib.load(file)["vendors"], dict[str, str])


def vendor(vendor_id: str | None) -> str | None:
    """The maker's short name for 4 hex digits; the digits themselves for one that is not in the table."""
    return None if vendor_id is None else _vendors().get(vendor_id, vendor_id)

"""How configurations of KV-cache and weight-loading software move their bytes: rows of `app_edges.toml`."""

from __future__ import annotations

import fnmatch
import functools
from typing import Literal

from gdsctl.data.tables import load
from gdsctl.record import Record

Memory = Literal["gpu", "dram", "file", "object"]
Helps = Literal["yes", "no", "half", "unknown"]
Direction = Literal["both", "store", "load"]


class EdgeRow(Record, frozen=True, kw_only=True, rename={"from_": "from"}):
    """`shape`: a configuration's step, `*` for any ending; `backends`: those the row is for, empty: any.

    `staged_in`: memory that bytes between GPU and storage stop in on their way; `gds_helps`: can GPUDirect Storage do
    anything for this step; `source`: document or file, with the version or commit that was looked at.
    """

    software: str
    shape: str
    backends: tuple[str, ...] = ()
    direction: Direction = "both"
    from_: Memory
    to: Memory
    api: str
    medium: str
    staged_in: Literal["dram", "gpu"] | None = None
    gds_helps: Helps
    because: str
    source: str


@functools.cache
def rows() -> tuple[EdgeRow, ...]:
    return load("app_edges.toml", dict[str, tuple[EdgeRow, ...]])["edge"]


def edges(shape: str, backend: str) -> list[EdgeRow]:
    """The rows of a step: one, or one a direction; none where no table knows it."""
    found: list[EdgeRow] = []
    for row in rows():
        fits = fnmatch.fnmatchcase(shape, row.shape) and (not row.backends or backend in row.backends)
        if fits and all(other.direction != row.direction for other in found):
            found.append(row)
            if row.direction == "both":
                break
    return found

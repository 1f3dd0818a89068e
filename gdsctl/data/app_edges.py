"""How configurations of KV-cache and weight-loading software move their bytes: rows of `app_edges.toml`."""

from __future__ import annotations

import datetime as dt
import fnmatch
import functools
from collections.abc import Mapping
from typing import Literal

from gdsctl.data.limits import older
from gdsctl.data.tables import load
from gdsctl.record import Record

Memory = Literal["gpu", "dram", "file", "object"]
Helps = Literal["yes", "no", "half", "unknown"]
Direction = Literal["both", "store", "load"]


class EdgeRow(Record, frozen=True, kw_only=True, rename={"from_": "from"}):
    """`shape`: a configuration's step, `*` for any ending; `backends`: those the row is for, empty: any.

    `staged_in`: memory that bytes between GPU and storage stop in on their way; `gds_helps`: can GPUDirect Storage do
    anything for this step; `source`: document or file, with the version or commit that was looked at, and `checked`,
    when. `since`, `until`: versions of `versions_of` that the row holds for, the second not included, empty: all.
    Where two rows' versions overlap, what was looked at does not tell which of them holds.
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
    checked: dt.date
    versions_of: str = ""
    since: str = ""
    until: str = ""

    def holds_for(self, versions: Mapping[str, str]) -> bool:
        """May it, with what is known of versions?"""
        version = versions.get(self.versions_of)
        if version is None:
            return True
        return not (self.since and older(version, self.since)) and not (
            self.until and older(version, self.until) is False
        )

    @property
    def range(self) -> str:
        """The versions as words; empty: all."""
        if not (self.since or self.until):
            return ""
        ends = {(True, False): f"{self.since} and later", (False, True): f"before {self.until}"}
        return f"{self.versions_of} {ends.get((bool(self.since), bool(self.until)), f'{self.since} to {self.until}')}"


@functools.cache
def rows() -> tuple[EdgeRow, ...]:
    return load("app_edges.toml", dict[str, tuple[EdgeRow, ...]])["edge"]


@functools.cache
def backends(shape: str) -> frozenset[str]:
    """All that rows of this very shape are for."""
    return frozenset(backend for row in rows() if row.shape == shape for backend in row.backends)


def is_adapter(kind: str) -> bool:
    """Is there an L2 adapter of LMCache's by that name?"""
    shape = f"mp.l2.{kind}"
    named = any(row.shape.startswith("mp.l2.") and fnmatch.fnmatchcase(shape, row.shape) for row in rows())
    return bool(kind) and (named or kind in backends("mp.l2.remote") or kind == "fault_inject")


def edges(shape: str, backend: str, versions: Mapping[str, str]) -> list[tuple[EdgeRow, ...]]:
    """What a step does: one group of rows, or one a direction; none where no table knows it.

    `versions`: software -> version, where known. A group of several rows: which of them holds is a matter of the version.
    """
    found: dict[str, list[EdgeRow]] = {}
    for row in rows():
        fits = fnmatch.fnmatchcase(shape, row.shape) and (not row.backends or backend in row.backends)
        if not fits or ("both" in found and row.direction != "both"):
            continue
        group = found.setdefault(row.direction, [])
        if not group or (group[0].shape, group[0].backends) == (row.shape, row.backends):
            group.append(row)
    return [tuple(row for row in group if row.holds_for(versions)) or tuple(group[:1]) for group in found.values()]

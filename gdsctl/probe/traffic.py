"""Reads, writes, or both, in order or at random: what every way of moving blocks is told."""

from __future__ import annotations

from typing import Literal

from gdsctl.probe.engine import Direction
from gdsctl.record import Record

ReadWrite = Literal["read", "write", "randread", "randwrite", "rw", "randrw"]


class Traffic(Record, frozen=True, kw_only=True):
    """`read_percent`: of the blocks of a mixed one."""

    rw: ReadWrite = "read"
    read_percent: int = 50

    @property
    def directions(self) -> tuple[Direction, ...]:
        if self.mixed:
            return ("read", "write")
        return ("read",) if self.rw.endswith("read") else ("write",)

    @property
    def mixed(self) -> bool:
        return self.rw.endswith("rw")

    @property
    def reads(self) -> bool:
        return "read" in self.directions

    @property
    def writes(self) -> bool:
        return "write" in self.directions

    @property
    def shuffled(self) -> bool:
        return self.rw.startswith("rand")

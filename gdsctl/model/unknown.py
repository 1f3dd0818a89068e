"""What could not be known, why, and what would settle it."""

from __future__ import annotations

from typing import Literal

from gdsctl.record import Record

GapReason = Literal["absent", "denied", "error", "timeout", "unsupported"]


class Gap(Record, frozen=True, kw_only=True):
    """A fact that is missing from a record.

    `section`: path of the list or object in the document ("pci/devices", "platform"); `key`: the record's address or
    name where the section is a list, else None; `field`: path inside the record ("acs/state"); `detail`: which file or
    command gave what; `settle_with`: the command that would tell.
    """

    section: str
    field: str
    reason: GapReason
    key: str | None = None
    detail: str = ""
    settle_with: str | None = None


class Unknown(Record, frozen=True, kw_only=True):
    """A Gap as the document shows it: `pointer` is a JSON pointer to the null."""

    pointer: str
    reason: GapReason
    detail: str = ""
    settle_with: str | None = None

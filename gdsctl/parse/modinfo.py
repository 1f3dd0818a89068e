"""`modinfo NAME`: what a module's file says of itself. Layout: kmod, tools/modinfo.c."""

from __future__ import annotations

import re

from gdsctl.errors import InputError
from gdsctl.parse import pasted
from gdsctl.record import Record

_ROW = re.compile(r"\s{0,8}([a-z_]{1,32}):(?:\s+(\S.*))?")


class Modinfo(Record, frozen=True, kw_only=True):
    """`filename` is `(builtin)` for built-in code; `license` e.g. `GPL`, `Dual MIT/GPL`, `NVIDIA`; all as printed."""

    filename: str
    version: str | None = None
    srcversion: str | None = None
    license: str | None = None
    vermagic: str | None = None


def parse(text: str) -> Modinfo:
    """The first module described. Raises InputError where there is no `filename:` row."""
    fields: dict[str, str] = {}
    for line in pasted.lines(text):
        match = _ROW.fullmatch(line[:4096].rstrip())
        if match is None:
            continue
        if match[1] == "filename" and fields:
            break
        if match[1] == "filename" or fields:
            fields.setdefault(match[1], match[2] or "")
    if not fields.get("filename"):
        raise InputError("not the output of modinfo: no filename", line=1)
    return Modinfo(
        filename=fields["filename"],
        version=fields.get("version") or None,
        srcversion=fields.get("srcversion") or None,
        license=fields.get("license") or None,
        vermagic=fields.get("vermagic") or None,
    )

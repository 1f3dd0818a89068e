"""Sentences of a plan as comment lines: one line each, nothing in them that a terminal or a parser acts on."""

from __future__ import annotations

import re

_UNSAFE = re.compile(r"[^\x20-\x7e]")


def comment(text: str) -> str:
    """`# text`; characters other than printable ASCII as Python escapes them."""
    return "# " + _UNSAFE.sub(_escaped, text).rstrip("\\")


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape", "surrogatepass").decode()

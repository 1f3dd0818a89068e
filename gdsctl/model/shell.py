"""Names of devices, mounts and exports on a shell line."""

from __future__ import annotations

import shlex

_CONTROL = frozenset(map(chr, (*range(0x20), *range(0x7F, 0xA0))))


def quoted(word: str) -> str:
    """One shell word; control characters only ever inside $'...', so that a pasted line stays one line."""
    if not _CONTROL.isdisjoint(word):
        body = "".join(_escape(character) for character in word)
        return f"$'{body}'"
    return shlex.quote(word)


def _escape(character: str) -> str:
    if character in ("'", "\\"):
        return "\\" + character
    if character in _CONTROL:
        return "".join(f"\\x{byte:02x}" for byte in character.encode())
    return character

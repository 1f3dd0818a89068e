"""Names of devices, mounts and exports on a shell line, in fstab and in a regular expression of sed."""

from __future__ import annotations

import shlex


def quoted(word: str) -> str:
    r"""One shell word; what is not printable only ever as `\xNN` inside $'...', so that a pasted line stays one line.

    A shell without $'...' (dash) reads `$` and a word in plain quotes, where `\'` would end it: so no quote stands inside.
    """
    if word.isprintable():
        return shlex.quote(word)
    return f"$'{''.join(c if c.isprintable() and c not in _QUOTING else _hex(c) for c in word)}'"


_QUOTING = frozenset("'\\")


def _hex(character: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))


# What separates fields, quotes, starts a comment or an escape; fstab(5) and libmount take octal.
_SPECIAL = frozenset(' "#\\')


def fstab_field(text: str) -> str:
    r"""A name as one field of fstab: blanks, quotes, backslashes, `#` and control characters as `\040` and its like."""
    return "".join(c if c.isprintable() and c not in _SPECIAL else _octal(c) for c in text)


def _octal(character: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", "surrogateescape"))


def sed_literal(text: str) -> str:
    """A field of fstab as `sed -E` is to find it, between double quotes: the field itself holds none."""
    return "".join("\\" + c if c in ".[]*^$+?(){}|\\" else c for c in text)

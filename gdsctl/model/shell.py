"""Names of devices, mounts and exports on a shell line, in fstab and in a regular expression of sed."""

from __future__ import annotations

import shlex


def quoted(word: str) -> str:
    r"""One shell word on one line, the same to every POSIX shell; what is not printable as octal of printf(1).

    A substitution loses newlines at its end, so these come from IFS, which is blank, tab, newline in a shell that nobody
    changed (POSIX.1-2017, Shell Command Language 2.5.3).
    """
    if word.isprintable():
        return shlex.quote(word)
    stem = word.rstrip("\n")
    # No leading `-`, which printf would take for an option, and no `!`, which an interactive shell expands.
    text = "".join(
        c if c.isprintable() and c not in _QUOTING and (n or c != "-") else _octal(c) for n, c in enumerate(stem)
    )
    return f"\"$(printf '{text}'){'${IFS#??}' * (len(word) - len(stem))}\""


_QUOTING = frozenset("'\\%!")


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

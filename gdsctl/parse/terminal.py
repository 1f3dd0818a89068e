"""What surrounds a pasted output and is no part of it."""

from __future__ import annotations

import re

_CHROME = re.compile(r"^\s*(?:```|~~~|[$#] (?:sudo )?[a-z]|\[?[\w.-]{1,64}@[\w.-]{1,64}[^\n]{0,200}?[$#](?: |$))")
_ELLIPSIS = re.compile(r"^\s*[\[(<]?\s*(?:\.{3,}|\u2026|snip)", re.IGNORECASE)


def is_chrome(line: str) -> bool:
    """A code fence, or a shell prompt with or without a command."""
    return _CHROME.match(line) is not None


def is_ellipsis(line: str) -> bool:
    """A mark that somebody left lines out: `...`, `[...]`, `<snip>`."""
    return _ELLIPSIS.match(line) is not None

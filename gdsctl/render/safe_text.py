"""Text of devices, exports and snapshots made harmless before it reaches a terminal."""

from __future__ import annotations

import re

# C0 and C1 controls, DEL, line and paragraph separators, bidirectional overrides, zero-width and BOM, surrogates.
_UNSAFE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


def safe(text: object) -> str:
    r"""One line of printable text: every character that could move a cursor or hide itself as `\xNN` or `\uNNNN`."""
    return _UNSAFE.sub(_escaped, str(text))


def plain_pointer(pointer: str) -> str:
    """A JSON pointer for people: a part that holds slashes of its own is set apart, and no part is escaped."""
    *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")]
    return ": ".join(("/".join(parents), last)) if "~" in pointer and "/" in last else "/".join((*parents, last))


def unseen_escaped(text: str) -> str:
    r"""A JSON text whose strings hold no such character raw; JSON itself asks for `\uNNNN` only below U+0020."""
    if text.isascii() and "\x7f" not in text:
        return text
    return _UNSAFE.sub(lambda match: match[0] if match[0] == "\n" else f"\\u{ord(match[0]):04x}", text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

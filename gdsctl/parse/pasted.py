"""What chats, issue trackers and terminals do to a tool's output, undone line by line."""

from __future__ import annotations

import re

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_QUOTE = re.compile(r"^(?:\s{0,3}>\s?)+")
_LOST_ESCAPE = re.compile(r"\[(?:\d{1,3}(?:;\d{1,3})*)?m")


def lines(text: str) -> list[str]:
    """The text's lines without colour codes, Markdown bold marks, quote marks, CR and a BOM; blanks are kept.

    Line numbers stay those of the input: nothing is dropped or joined.
    """
    cleaned = []
    for raw in text.removeprefix("\ufeff").split("\n"):
        line = _ANSI.sub("", raw.rstrip("\r"))
        line = _LOST_ESCAPE.sub("", line)
        line = _QUOTE.sub("", line)
        cleaned.append(line.replace("**", "").replace("\xa0", " "))
    return cleaned

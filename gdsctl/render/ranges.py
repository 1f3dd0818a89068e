"""Numbers as people write them."""

from __future__ import annotations

from collections.abc import Iterable


def ranges(numbers: Iterable[int]) -> str:
    """`0-3,5` for 0, 1, 2, 3 and 5; the empty text for none."""
    parts: list[str] = []
    ordered = sorted(set(numbers))
    start = 0
    for position, number in enumerate(ordered):
        if position + 1 == len(ordered) or ordered[position + 1] != number + 1:
            first = ordered[start]
            parts.append(str(first) if first == number else f"{first}-{number}")
            start = position + 1
    return ",".join(parts)

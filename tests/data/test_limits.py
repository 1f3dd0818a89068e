from __future__ import annotations

import pytest

from gdsctl.data.limits import numbers, older


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("570.124.06", (570, 124, 6)),
        ("6.8.0-31-generic", (6, 8, 0)),
        (" v2.25.7", (2, 25, 7)),
        ("999999999.1", (999999999, 1)),
        ("", ()),
        ("generic", ()),
        ("9" * 5000, ()),
        ("6." + "9" * 10, ()),
        ("1" + ".1" * 7, (1,) * 8),
        ("1" + ".1" * 8, ()),
        ("٦.8", ()),  # another script's digits are no version
    ],
)
def test_numbers(text: str, parts: tuple[int, ...]) -> None:
    assert numbers(text) == parts


def test_older() -> None:
    assert older("6.8", "6.10") is True
    assert older("6.10.0", "6.10") is False
    assert older("9" * 5000, "6.10") is None

"""Entries in the form that systemd writes them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gdsctl.parse.udev_db import UdevEntry, parse


def test_properties_links_and_tags() -> None:
    text = "S:md/fast\nS:disk/by-id/md-name-h:0\nI:8123\nE:MD_LEVEL=raid0\nE:NOTE=a=b\nE:EMPTY=\nG:systemd\nV:1\n"
    assert parse(text) == UdevEntry(
        properties={"MD_LEVEL": "raid0", "NOTE": "a=b", "EMPTY": ""},
        links=("md/fast", "disk/by-id/md-name-h:0"),
        tags=("systemd",),
    )


def test_what_is_no_entry_is_passed_over() -> None:
    assert parse("E:=x\nE:novalue\n\nnonsense\n") == UdevEntry()


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    assert isinstance(parse(text), UdevEntry)

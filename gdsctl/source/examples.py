"""The snapshots that ship with gdsctl, so that every command shows something real without a GPU."""

from __future__ import annotations

import os

from gdsctl.errors import UsageError
from gdsctl.record import Record
from gdsctl.source.archive import open_archive
from gdsctl.source.snapshot import manifest_of
from gdsctl.source.tree import Files

_FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "examples")
_SUFFIX = ".tar.gz"


class Example(Record, frozen=True, kw_only=True):
    """`title`: what the manifest's note says of it; `synthetic`: made up by hand, not captured."""

    name: str
    title: str
    synthetic: bool


def list_examples() -> tuple[Example, ...]:
    """All examples by name, told from their manifests."""
    rows = []
    for name in _names():
        note = manifest_of(example_files(name), f"example:{name}").note or ""
        rows.append(Example(name=name, title=note, synthetic="synthetic" in note.lower()))
    return tuple(rows)


def example_files(name: str) -> Files:
    """The raw tree of an example. Raises UsageError that lists the names there are."""
    known = _names()
    if name not in known:
        raise UsageError(f"no example is called {name!r}; there are: {', '.join(known) or 'none in this installation'}")
    return open_archive(os.path.join(_FOLDER, name + _SUFFIX))


def _names() -> tuple[str, ...]:
    try:
        found = os.listdir(_FOLDER)
    except FileNotFoundError:
        return ()
    return tuple(sorted(name.removesuffix(_SUFFIX) for name in found if name.endswith(_SUFFIX)))

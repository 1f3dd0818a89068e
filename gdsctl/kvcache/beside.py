"""Files that other files name: environment files, above all."""

from __future__ import annotations

from collections.abc import Mapping

from gdsctl.kvcache.launch import Place


class Beside:
    """The texts that were given, by path.

    `unread`: what a file names and nobody gave, as FILE:LINE: NAME; `used`: paths of those that another one named.
    """

    def __init__(self, texts: Mapping[str, str] | None = None) -> None:
        self._texts = texts or {}
        self.unread: dict[str, None] = {}
        self.used: set[str] = set()

    def text(self, name: str, place: Place) -> str | None:
        """The one given file of that base name (where it lies on the user's machine may be another place)."""
        base = name.rpartition("/")[2]
        found = [path for path in self._texts if path.rpartition("/")[2] == base and path != place.file]
        if len(found) != 1:
            self.lacks(name, place)
            return None
        self.used.add(found[0])
        return self._texts[found[0]]

    def lacks(self, name: str, place: Place) -> None:
        """Notes what cannot be looked up."""
        self.unread[f"{place}: {name}"] = None

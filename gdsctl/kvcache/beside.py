"""Files that other files name: environment files, what a service extends, scripts and configurations that are mounted."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from typing import Any

from gdsctl.kvcache.launch import Place

Look = Callable[[str, str], "tuple[str, str] | None"]
"""(a given file, a name that it uses) -> path and text of that file, if it lies in or below the folder of the first."""

_MOST_FOLLOWED = 100


class Beside:
    """The texts that were given, by path, and those that lie beside them.

    `unread`: what a file names and nobody gave, as FILE:LINE: NAME; `used`: paths of those that another one named;
    `merged`: those that were read as a part of another, and are not read again; `followed`: path of a file that was not
    given but read -> where it is named; `kept`: what a reader knows of each text.
    """

    def __init__(self, texts: Mapping[str, str] | None = None, look: Look | None = None) -> None:
        self.texts = texts or {}
        self._look = look
        self.unread: dict[str, None] = {}
        self.used: set[str] = set()
        self.merged: set[str] = set()
        self.followed: dict[str, Place] = {}
        self.kept: dict[str, Any] = {}

    def file(self, name: str, place: Place, *, owned: bool = True) -> tuple[str, str] | None:
        """Path and text of a file by the name that the file at `place` has for it: one that was given, or lies beside it.

        Of given files the one that ends in the name (where it lies on the user's machine may be another place); `owned`:
        what it holds is the naming file's. None, and a note of it, where there is none, or more than one.
        """
        found = self._given(name, place.file)
        if found is None and self._look is not None and len(self.followed) < _MOST_FOLLOWED:
            near = self._look(place.file, name)
            if near is not None:
                self.followed.setdefault(near[0], place)
                return near
        if found is None:
            outside = name.startswith(("/", "~", "$")) or posixpath.normpath(name).startswith("..")
            self.lacks(f"{name}{' (not below its folder)' if outside and self._look is not None else ''}", place)
            return None
        if owned:
            self.used.add(found)
        return found, self.texts[found]

    def optional(self, name: str, place: Place) -> str | None:
        """The text of a file that need not be there, such as `.env`."""
        found = self._given(name, place.file)
        if found is not None:
            self.used.add(found)
            return self.texts[found]
        near = self._look(place.file, name) if self._look is not None else None
        if near is None:
            return None
        self.followed.setdefault(near[0], place)
        return near[1]

    def _given(self, name: str, asking: str) -> str | None:
        wanted = [part for part in name.split("/") if part not in ("", ".", "..")]
        near = posixpath.normpath(posixpath.join(posixpath.dirname(asking), name))
        if near in self.texts and near != asking:
            return near
        for count in range(len(wanted), 0, -1):
            found = [p for p in self.texts if p != asking and p.split("/")[-count:] == wanted[-count:]]
            if found:
                return found[0] if len(found) == 1 else None
        return None

    def text(self, name: str, place: Place) -> str | None:
        found = self.file(name, place)
        return found[1] if found is not None else None

    def lacks(self, name: str, place: Place) -> None:
        """Notes what cannot be looked up."""
        self.unread[f"{place}: {name}"] = None

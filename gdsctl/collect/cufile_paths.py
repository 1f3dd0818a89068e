"""The paths that a cufile.json names: libcufile refuses the file where one of them is not there."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Any

from gdsctl.collect.reader import Reader
from gdsctl.model.shell import quoted
from gdsctl.parse import cufile_json
from gdsctl.source.base import Missing

_MOST = 256  # paths that are looked for; nobody denies more mounts


def standing(reader: Reader, texts: Iterable[str], mounted: Iterable[str] = ()) -> dict[str, bool | None]:
    """Path -> does it stand there, None with a gap where that is not known. The environment's paths are not asked.

    `mounted`: targets of the mount table. They and the folders above them are there, whatever else was captured.
    """
    found: dict[str, bool | None] = {}
    known = {*mounted, *(str(folder) for target in mounted for folder in PurePosixPath(target).parents)}
    for path in dict.fromkeys(path for text in texts for path in _named(text)):
        if len(found) == _MOST:
            reader.gap("gds", "cufile_config/paths", "unsupported", detail=f"more than {_MOST} paths are named")
            break
        there = reader.source.exists(path)  # asked in any case, so that a snapshot holds the answer
        if posixpath.normpath(path) in known:
            there = True
        found[path] = None if isinstance(there, Missing) else there
        if isinstance(there, Missing):
            field = f"cufile_config/paths/{cufile_json.escape(path)}"
            reader.gap("gds", field, there, detail=path, settle_with=f"ls -d -- {quoted(path)}")
    return found


def static_routing(text: str) -> tuple[bool | None, str | None]:
    """Does one cufile.json switch a static routing file on, and which does it name? None where it says nothing."""
    root = cufile_json.parse(text).value
    on, path = (_at(root, "miscellaneous", f) for f in ("enable_static_routing", "static_routing_filepath"))
    named = path if isinstance(path, str) and path.startswith("/") and "\0" not in path else None
    return (on if isinstance(on, bool) else None), named


def _named(text: str) -> Iterator[str]:
    """Absolute paths under the keys that libcufile follows, whatever the release."""
    root = cufile_json.parse(text).value
    candidates: list[Any] = [_at(root, "logging", "dir")]
    for name in ("mounts", "devices"):
        denied = _at(root, "denylist", name)
        candidates += denied if isinstance(denied, list) else ()
    candidates += [_at(root, "miscellaneous", f"static_{name}_filepath") for name in ("routing", "config")]
    sections = _at(root, "fs")
    for section in sections.values() if isinstance(sections, dict) else ():
        table = _at(section, "mount_table")
        candidates += table if isinstance(table, dict) else ()
    for path in candidates:
        if isinstance(path, str) and path.startswith("/") and "\0" not in path:
            yield path


def _at(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value

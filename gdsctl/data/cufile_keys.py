"""What libcufile knows: rows of `cufile_keys.toml`. Versions are GDS releases ("1.16", "1.19.1"), compared as numbers."""

from __future__ import annotations

import functools
import re
from typing import Any, Literal

import msgspec

from gdsctl.data.tables import load
from gdsctl.record import Record

KeyType = Literal["bool", "uint", "int", "string", "hex", "string_list", "uint_list", "object", "mount_table"]
_LATEST = (1 << 30,)


@functools.lru_cache(maxsize=1024)
def release(text: str) -> tuple[int, ...]:
    """A GDS release as numbers: "1.16" -> (1, 16), "1.19.1.55" -> (1, 19, 1, 55); ValueError for what is none."""
    if not re.fullmatch(r"\d{1,6}(\.\d{1,6}){1,3}", text):
        raise ValueError(f"not a GDS release: {text!r}")
    return tuple(int(part) for part in text.split("."))


def pointer(dotted: str) -> str:
    """A dotted name as a JSON pointer; names in cufile.json hold neither `/` nor `~`."""
    return "/" + dotted.replace(".", "/")


class Default(Record, frozen=True, kw_only=True):
    """The effective value of an absent key from release `since` on; lists are tuples."""

    since: str
    value: Any


class Range(Record, frozen=True, kw_only=True):
    """Bounds, both allowed, from release `since` on. For lists they hold for each item."""

    since: str
    min: int | None = None
    max: int | None = None
    multiple_of: int | None = None


class Key(Record, frozen=True, kw_only=True):
    """A key of cufile.json.

    `key`: dotted path. `defaults`: in order of release; empty where the library never shows a value.
    `file_default`: what NVIDIA's packages write into /etc/cufile.json. `also`: numbers outside the range that pass.
    `out_of_range`: the library refuses the file, clamps in silence, or falls back with a message. `bits` 32: a larger
    integer aborts the process. `values`: the words that mean something; `unknown_value`: what becomes of another.
    `empty`: an empty text counts as absent.
    `since`, `until`: first release that acts on it, first that no longer does; `named`: first whose documents or library
    name it, where that is an earlier one. `label`: what gdscheck prints where it
    is not the key. `env`, `api`: the environment variable and CUFILE_PARAM_* that set the same.
    """

    key: str
    type: KeyType
    unit: str | None = None
    defaults: tuple[Default, ...] = ()
    file_default: Any = None
    ranges: tuple[Range, ...] = ()
    also: tuple[int, ...] = ()
    out_of_range: Literal["refused", "clamped", "fallback"] | None = None
    bits: int | None = None
    values: tuple[str, ...] = ()
    unknown_value: Literal["refused", "ignored"] | None = None
    any_case: bool = False
    empty: bool = False
    since: str
    until: str | None = None
    named: str | None = None
    label: str | None = None
    env: str | None = None
    api: str | None = None
    meaning: str
    source: str

    @property
    def section(self) -> str:
        """First part of the dotted path."""
        return self.key.partition(".")[0]

    @property
    def pointer(self) -> str:
        """JSON pointer of the key."""
        return pointer(self.key)

    def known_in(self, version: str) -> bool:
        """Does that release act on the key?"""
        return _within(version, self.since, self.until)

    def default_in(self, version: str) -> Any:
        """The effective value of the absent key in a release; None where unknown."""
        row = _newest(self.defaults, version) if self.known_in(version) else None
        return row.value if row else None

    def range_in(self, version: str) -> Range | None:
        """The bounds a release applies; None where it applies none."""
        return _newest(self.ranges, version) if self.known_in(version) else None


class Label(Record, frozen=True, kw_only=True):
    """A name that gdscheck and cufile.log print and that is no key; `key`: the key it shows, if any."""

    label: str
    key: str | None = None
    source: str


class Dead(Record, frozen=True, kw_only=True):
    """A name found in files and documents that no release 1.11 to 1.20 acts on; ends in `.*` for a whole section."""

    key: str
    instead: str | None = None
    source: str


class Variable(Record, frozen=True, kw_only=True):
    """An environment variable of libcufile. `acts` true_false: only those two words, in any case, have an effect.

    `key`: the key it sets; `words`: what a word stands for there; `min`, `max`: other numbers are dropped with a message.
    """

    name: str
    since: str
    until: str | None = None
    acts: Literal["true_false", "word", "number", "path", "list"]
    key: str | None = None
    words: dict[str, str] = {}
    min: int | None = None
    max: int | None = None
    effect: str
    source: str

    def known_in(self, version: str) -> bool:
        """Does that release read the variable?"""
        return _within(version, self.since, self.until)


class Release(Record, frozen=True, kw_only=True):
    """A GDS release that the table was checked against; `cuda`: the toolkit it came with; `certain` false: inferred."""

    gds: str
    cuda: str | None = None
    certain: bool = True


class _Table(Record, frozen=True, kw_only=True):
    releases: tuple[Release, ...]
    keys: tuple[Key, ...]
    labels: tuple[Label, ...]
    dead: tuple[Dead, ...]
    environment: tuple[Variable, ...]


def _within(version: str, since: str, until: str | None) -> bool:
    asked = release(version)
    return release(since) <= _filled(asked) and (until is None or asked < release(until))


def _filled(asked: tuple[int, ...]) -> tuple[int, ...]:
    # "1.19" asks about the newest 1.19.x
    return asked + _LATEST if len(asked) == 2 else asked


def _newest(rows: tuple[Any, ...], version: str) -> Any:
    asked = _filled(release(version))
    fitting = [row for row in rows if release(row.since) <= asked]
    return fitting[-1] if fitting else None


def in_table(asked: tuple[int, ...]) -> bool:
    """Does a release, as `release` gives it, lie among those whose keys are known?"""
    known = [release(row.gds)[:2] for row in releases()]
    return known[0] <= asked[:2] <= known[-1]


def is_newer(version: str) -> bool:
    """Is a release newer than all whose keys are known?"""
    return release(version)[:2] > release(releases()[-1].gds)[:2]


def span() -> str:
    """Which releases these are."""
    return f"keys are known for {releases()[0].gds} to {releases()[-1].gds}"


@functools.lru_cache(maxsize=1)
def _table() -> _Table:
    table = load("cufile_keys.toml", _Table)
    return msgspec.structs.replace(table, keys=tuple(_with_tuples(key) for key in table.keys))


def _with_tuples(key: Key) -> Key:
    defaults = tuple(
        msgspec.structs.replace(row, value=tuple(row.value)) if isinstance(row.value, list) else row
        for row in key.defaults
    )
    shipped = tuple(key.file_default) if isinstance(key.file_default, list) else key.file_default
    return msgspec.structs.replace(key, defaults=defaults, file_default=shipped)


@functools.lru_cache(maxsize=1)
def _by_name() -> dict[str, Key]:
    return {row.key: row for row in keys()}


def keys() -> tuple[Key, ...]:
    """All keys, in the order of the table."""
    return _table().keys


def key(dotted: str) -> Key | None:
    """The key of that dotted path, or None."""
    return _by_name().get(dotted)


def known(version: str) -> tuple[Key, ...]:
    """The keys that a release acts on."""
    return tuple(row for row in keys() if row.known_in(version))


@functools.lru_cache(maxsize=1)
def sections() -> dict[str, str]:
    """Dotted path of every object that holds keys -> first release that reads it."""
    found: dict[str, str] = {}
    for row in keys():
        parts = row.key.split(".")
        for end in range(1, len(parts)):
            path = ".".join(parts[:end])
            if path not in found or release(row.since) < release(found[path]):
                found[path] = row.since
    return found


def labels() -> tuple[Label, ...]:
    """Printed names that are not keys."""
    return _table().labels


def dead_keys() -> tuple[Dead, ...]:
    """Names without any effect."""
    return _table().dead


def environment() -> tuple[Variable, ...]:
    """Environment variables of libcufile."""
    return _table().environment


def releases() -> tuple[Release, ...]:
    """The releases that the table was checked against, oldest first."""
    return _table().releases


def gds_of_cuda(cuda: str) -> str | None:
    """The GDS release that a CUDA toolkit ("13.1") came with, or None."""
    return next((row.gds for row in releases() if row.cuda == cuda), None)

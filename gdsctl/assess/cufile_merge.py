"""The configuration that a cuFile process ends up with: files merged in order, environment variables on top.

Found by asking libcufile 1.11 to 1.20. Files are merged key by key: arrays are replaced whole, null and empty arrays
change nothing, mount tables are merged by mount and the addresses of a mount named twice are joined. A file that is
not read whole stops the process, whatever the other holds. Keys that the release does not act on have no effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gdsctl.data import cufile_keys
from gdsctl.data.cufile_keys import Key, Variable
from gdsctl.model.judgement import Severity
from gdsctl.parse.cufile_json import Positions, escape, parse_with_positions
from gdsctl.record import Record

ENVIRONMENT = "environment"


class Problem(Record, frozen=True, kw_only=True):
    """Something wrong with a configuration.

    `path`: file, or "environment"; `line` and `column` from 1; `pointer`: JSON pointer, or the variable's name.
    `fatal`: the library refuses the configuration, so that no process gets GDS. `since`, `until`: releases it holds
    for, where it does not hold for all that were asked about.
    """

    id: str
    severity: Severity
    path: str
    line: int | None = None
    column: int | None = None
    pointer: str | None = None
    message: str
    remedy: str
    fatal: bool = False
    since: str | None = None
    until: str | None = None


class Merged(Record, frozen=True, kw_only=True):
    """`values`: nested as in the file, only keys the release acts on, numbers converted as the library does.

    `origin`: JSON pointer of a key (of a mount, in a mount table) -> file or environment variable that set it last.
    `fatal`: why there is no configuration at all; `values` is empty then.
    """

    values: dict[str, Any]
    origin: dict[str, str]
    fatal: Problem | None = None


class Layer(Record, frozen=True, kw_only=True):
    """A file as parsed: its root object, {} where it is `[]` or null, which `no_object` tells."""

    path: str
    root: dict[str, Any]
    positions: Any
    duplicates: tuple[str, ...] = ()
    no_object: bool = False

    def line_column(self, pointer: str) -> tuple[int | None, int | None]:
        positions: Positions = self.positions
        return positions.of(pointer) or (None, None)


def read(path: str, text: str) -> Layer | Problem:
    """A file parsed, or the syntax error in it."""
    parsed, positions = parse_with_positions(text)
    if parsed.error is not None:
        return Problem(
            id="cufile.syntax",
            severity="critical",
            path=path,
            line=parsed.error.line,
            column=parsed.error.column,
            message=f"{parsed.error.message}; no cuFile process starts with this file",
            remedy="Correct the text there, or shortly before.",
            fatal=True,
        )
    root = parsed.value if isinstance(parsed.value, dict) else {}
    return Layer(
        path=path,
        root=root,
        positions=positions,
        duplicates=parsed.duplicates,
        no_object=not isinstance(parsed.value, dict),
    )


def converted(key: Key, value: Any) -> Any:
    """A value as the library takes it: reals and booleans count as unsigned numbers."""
    if key.type == "uint" and isinstance(value, (bool, float)):
        return int(value)
    return value


def merge(layers: Sequence[tuple[str, str]], env: Mapping[str, str], version: str | None) -> Merged:
    """What libcufile `version` (None: the newest) makes of files (path, text), in the order it reads them, and CUFILE_*.

    Values are not checked against types and ranges; `cufile_lint.lint` tells whether the library would take them.
    """
    release = version or cufile_keys.releases()[-1].gds
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for path, text in layers:
        layer = read(path, text)
        if isinstance(layer, Problem):
            return Merged(values={}, origin={}, fatal=layer)
        add(layer, release, values, origin)
    for variable in cufile_keys.environment():
        value = acting(variable, env.get(variable.name), release)
        key = cufile_keys.key(variable.key) if variable.key else None
        if value is not None and key is not None and key.known_in(release):
            _set(values, key.key, value)
            origin[key.pointer] = variable.name
    return Merged(values=values, origin=origin)


def add(layer: Layer, release: str, values: dict[str, Any], origin: dict[str, str]) -> None:
    """Merge one more file into `values` and `origin`."""
    for key in cufile_keys.known(release):
        dotted, pointer, value = key.key, key.pointer, get(layer.root, key.key)
        if value is None or value == [] or key.type == "object":
            continue
        if key.type == "mount_table" and isinstance(value, dict):
            table = dict(get(values, dotted) or {})
            for mount, entry in value.items():
                addresses = entry.get("rdma_dev_addr_list") if isinstance(entry, dict) else None
                if isinstance(addresses, list) and addresses:
                    before = table[mount]["rdma_dev_addr_list"] if mount in table else []
                    table[mount] = {"rdma_dev_addr_list": [*before, *addresses]}
                    origin[f"{pointer}/{escape(mount)}"] = layer.path
            if table:
                _set(values, dotted, table)
            continue
        _set(values, dotted, converted(key, value))
        origin[pointer] = layer.path


def get(values: Mapping[str, Any], dotted: str) -> Any:
    """The value of a dotted path in nested objects, or None."""
    value: Any = values
    for part in dotted.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def acting(variable: Variable, text: str | None, release: str) -> Any:
    """What an environment variable sets its key to; None where it has no effect on that release."""
    if text is None or not variable.known_in(release):
        return None
    if variable.acts == "true_false":
        word = text.lower()
        if word not in ("true", "false"):
            return None
        return variable.words.get(word, word == "true")
    key = cufile_keys.key(variable.key) if variable.key else None
    if variable.acts == "number":
        return _number(variable, key, text, release)
    if key is not None and key.type == "bool":
        return True if text.lower() in ("1", "true") else None
    if key is not None and key.values and text not in key.values and not (key.any_case and text.lower() in key.values):
        return None
    return text


def _number(variable: Variable, key: Key | None, text: str, release: str) -> int | None:
    if not text.isdecimal() or not text.isascii() or len(text) > 20:
        return None
    number = int(text)
    bounds = key.range_in(release) if key else None
    low = variable.min if variable.min is not None else bounds.min if bounds else None
    high = variable.max if variable.max is not None else bounds.max if bounds else None
    if (low is not None and number < low) or (high is not None and number > high):
        return None
    if bounds and bounds.multiple_of and number % bounds.multiple_of:
        return None
    return number


def _set(values: dict[str, Any], dotted: str, value: Any) -> None:
    *sections, name = dotted.split(".")
    for section in sections:
        values = values.setdefault(section, {})
    values[name] = value

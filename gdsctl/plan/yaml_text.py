"""YAML that an operator wrote, as nodes that know their line. Bounded, and without aliases: the text may be anybody's."""

from __future__ import annotations

import datetime as dt
import difflib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from gdsctl.errors import InputError

LARGEST = 1 << 20
DEEPEST = 20
MOST_NODES = 50_000

_SIZE = re.compile(r"(\d{1,18})\s*(B|KiB|MiB|GiB|TiB|kB|MB|GB|TB)?")
_ODD_NUMBER = re.compile(r"[-+]?(0[0-9bx_]|[0-9.]*[:_])")
_UNITS = {
    "B": 1,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}


class Value:
    """One value and what the operator would call it (`mounts[0].target`). All questions raise InputError with the line."""

    def __init__(self, node: Any, name: str) -> None:
        self._node = node
        self.name = name
        self.line: int = node.start_mark.line + 1

    def fault(self, reason: str) -> InputError:
        return InputError(f"{self.name}: {reason}" if self.name else reason, line=self.line)

    @property
    def is_null(self) -> bool:
        return isinstance(self._node, yaml.ScalarNode) and self._node.tag == "tag:yaml.org,2002:null"

    @property
    def is_bool(self) -> bool:
        """An unquoted true, false, yes, no, on or off."""
        return isinstance(self._node, yaml.ScalarNode) and self._node.tag == "tag:yaml.org,2002:bool"

    @property
    def is_list(self) -> bool:
        return isinstance(self._node, yaml.SequenceNode)

    @property
    def is_mapping(self) -> bool:
        return isinstance(self._node, yaml.MappingNode)

    def text(self) -> str:
        """A scalar as it was written: `off`, `1.20` and 0000:3b:00.0 stay words."""
        if not isinstance(self._node, yaml.ScalarNode):
            raise self.fault("a single value is wanted here")
        text = str(self._node.value)
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise self.fault("half of a surrogate pair is no character")
        return text

    def word(self, allowed: Sequence[str]) -> str:
        text = self.text()
        if text not in allowed:
            raise self.fault(f"{text[:60]!r} is not one of {', '.join(allowed)}{meant(text, allowed)}")
        return text

    def size_bytes(self) -> int:
        """`48MiB`, or a plain number of bytes."""
        match = _SIZE.fullmatch(self.text().strip())
        if not match or int(match[1]) == 0:
            raise self.fault(f"{self.text()[:60]!r} is not a size such as 48MiB")
        return int(match[1]) * _UNITS[match[2] or "B"]

    def date(self) -> dt.date:
        try:
            return dt.date.fromisoformat(self.text())
        except ValueError:
            raise self.fault(f"{self.text()[:60]!r} is not a date such as 2027-01-31") from None

    def items(self) -> list[Value]:
        if not isinstance(self._node, yaml.SequenceNode):
            raise self.fault("a list is wanted here")
        return [Value(node, f"{self.name}[{index}]") for index, node in enumerate(self._node.value)]

    def fields(self, allowed: Sequence[str] | None = None) -> dict[str, Value]:
        """A mapping's values; a key given twice, and one outside `allowed`, is a fault."""
        if not isinstance(self._node, yaml.MappingNode):
            raise self.fault("a mapping (key: value) is wanted here")
        found: dict[str, Value] = {}
        for key, node in self._node.value:
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else "?"
            here = f"{self.name}.{name}" if self.name else name
            line = key.start_mark.line + 1
            if allowed is not None and name not in allowed:
                known = f"; known here: {', '.join(allowed)}"
                raise InputError(f"unknown key {here[:200]!r}{meant(name, allowed)}{known}", line=line)
            if name in found:
                raise InputError(f"{here[:200]} is given twice", line=line)
            found[name] = Value(node, here)
            found[name].line = line if isinstance(node, yaml.ScalarNode) else found[name].line
        return found

    def plain(self) -> Any:
        """The value as YAML types it: finite numbers, booleans, texts, lists, mappings.

        Numbers that YAML 1.1 reads in base 2, 8, 16 or 60, or across underscores, are a fault: 010 would be 8, 1:30 be 90.
        """
        odd = next((text for text in _numbers(self._node) if _ODD_NUMBER.match(text)), None)
        if odd is not None:
            raise self.fault(
                f"{odd[:60]!r} is not a plain decimal number: YAML reads it in another base; write it in decimal"
            )
        try:
            value = _Plain().construct_document(self._node)
        except (
            yaml.YAMLError,
            ValueError,
            TypeError,
            LookupError,
            AttributeError,
        ):  # PyYAML's own, of tags that do not fit
            raise self.fault("not a value of the type that its form or tag claims") from None
        if not _finite(value):
            raise self.fault("a number must be finite")
        return value


def _numbers(node: Any) -> Iterator[str]:
    """The texts that YAML takes for numbers."""
    if isinstance(node, yaml.ScalarNode):
        if node.tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float"):
            yield str(node.value)
    else:
        for part in node.value:
            for inner in part if isinstance(part, tuple) else (part,):
                yield from _numbers(inner)


def _finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(_finite(part) for pair in value.items() for part in pair)
    return not isinstance(value, (list, tuple, set)) or all(map(_finite, value))


class _Plain(yaml.constructor.SafeConstructor):
    """The safe constructor on its own, for nodes that are composed already."""


def meant(word: str, allowed: Sequence[str] | Mapping[str, object], closeness: float = 0.6) -> str:
    """`; did you mean X?`, or nothing where no name is near (`closeness`: difflib's ratio)."""
    close = difflib.get_close_matches(word[:100], list(allowed), n=1, cutoff=closeness)
    return f"; did you mean {close[0]!r}?" if close else ""


def compose(text: str) -> Value | None:
    """The root value; None for an empty document. Raises InputError (with the line) for what is not such YAML."""
    if len(text) > LARGEST:
        raise InputError(f"larger than {LARGEST} characters")
    try:
        _check(text)
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise InputError(
            f"not valid YAML: {error.problem or error.context}", line=mark.line + 1 if mark else None
        ) from None
    except yaml.YAMLError as error:
        raise InputError(f"not valid YAML: {str(error).splitlines()[0][:200]}", line=_line_of(text, error)) from None
    return None if node is None else Value(node, "")


_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _line_of(text: str, error: yaml.YAMLError) -> int | None:
    position = getattr(error, "position", None)
    return text.count("\n", 0, position) + 1 if isinstance(position, int) else None


def _check(text: str) -> None:
    depth = 0
    for count, event in enumerate(_events(text)):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise InputError("anchors and aliases (& and *) are not taken", line=line)
        if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            depth += 1
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            depth -= 1
        if depth > DEEPEST:
            raise InputError(f"nested deeper than {DEEPEST}", line=line)
        if count > MOST_NODES:
            raise InputError(f"more than {MOST_NODES} values", line=line)


def _events(text: str) -> Iterator[Any]:
    return iter(yaml.parse(text, Loader=_Loader))

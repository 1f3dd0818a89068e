"""YAML of strangers as values that know their line: several documents, anchors and merges, all bounded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import yaml

from gdsctl.errors import InputError

MOST_VALUES = 200_000
DEEPEST = 40
LARGEST = 8 << 20

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Budget:
    """Values looked at in one file. Aliases cost nothing to compose, but each visit through one counts."""

    def __init__(self) -> None:
        self.left = MOST_VALUES

    def spend(self, line: int) -> None:
        self.left -= 1
        if self.left < 0:
            raise InputError(f"expands to more than {MOST_VALUES} values", line=line)


class View:
    """How values are shown: all at one line (`pinned`), each text as `fill` makes it."""

    def __init__(self, pinned: int | None = None, fill: Callable[[str], str] | None = None) -> None:
        self.pinned = pinned
        self.fill = fill


class Item:
    """One value. Asking it for what it is not gives nothing, for files hold much that is none of our business."""

    def __init__(self, node: Any, budget: Budget, depth: int = 0, view: View | None = None) -> None:
        self._view = view or View()
        self.line: int = self._view.pinned or node.start_mark.line + 1
        budget.spend(self.line)
        if depth > DEEPEST:
            raise InputError(f"nested deeper than {DEEPEST}", line=self.line)
        self._node = node
        self._budget = budget
        self._depth = depth

    def _child(self, node: Any) -> Item:
        return Item(node, self._budget, self._depth + 1, self._view)

    def pinned(self, line: int) -> Item:
        """The same with all its lines that one: for a value that another file holds and this line names."""
        return Item(self._node, self._budget, self._depth, View(line, self._view.fill))

    def filled(self, fill: Callable[[str], str]) -> Item:
        """The same with each text as `fill` makes it."""
        return Item(self._node, self._budget, self._depth, View(self._view.pinned, fill))

    @property
    def tag(self) -> str:
        """As it was written (`!reset`) or resolved."""
        return str(self._node.tag)

    @property
    def is_mapping(self) -> bool:
        return isinstance(self._node, yaml.MappingNode)

    @property
    def text(self) -> str | None:
        """A scalar as it was written; None for null and for what is no scalar."""
        if not isinstance(self._node, yaml.ScalarNode) or self._node.tag == "tag:yaml.org,2002:null":
            return None
        text = str(self._node.value).encode("utf-8", "replace").decode()  # an escape may hold half a surrogate pair
        return text if self._view.fill is None else self._view.fill(text)

    @property
    def text_line(self) -> int:
        """Line of the text's first character: the one below the sign of a block scalar."""
        block = isinstance(self._node, yaml.ScalarNode) and self._node.style in ("|", ">")
        return self.line + 1 if block and self._view.pinned is None else self.line

    def items(self) -> Iterator[Item]:
        if isinstance(self._node, yaml.SequenceNode):
            for node in self._node.value:
                yield self._child(node)

    def pairs(self) -> Iterator[tuple[str, Item]]:
        """A mapping's fields; what `<<` merges comes first, so that the mapping's own overrule it."""
        if not isinstance(self._node, yaml.MappingNode):
            return
        for key, node in self._node.value:
            if getattr(key, "value", None) == "<<":
                merged = self._child(node)
                for source in (merged, *merged.items()):
                    yield from source.pairs()
        for key, node in self._node.value:
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                yield str(key.value), self._child(node)

    def get(self, *path: str) -> Item | None:
        """The value under nested keys."""
        here: Item | None = self
        for name in path:
            if here is None:
                return None
            found = None
            for key, value in here.pairs():
                if key == name:
                    found = value
            here = found
        return here

    def word(self, *path: str) -> str | None:
        found = self.get(*path)
        return found.text if found is not None else None

    def list(self, *path: str) -> list[Item]:
        found = self.get(*path)
        return list(found.items()) if found is not None else []


_ESCAPED = re.compile(r"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|.)", re.DOTALL)


def as_yaml(text: str) -> str:
    """A JSON text as YAML has it: JSON writes a character beyond the first plane as two escapes, and may indent by tabs."""

    def joined(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        return chr(0x10000 + ((int(match[1], 16) & 0x3FF) << 10) + (int(match[2], 16) & 0x3FF))

    return _ESCAPED.sub(joined, text.replace("\t", " "))


def documents(text: str) -> list[Item]:
    """The documents of a file that hold anything. Raises InputError with the line for what is no YAML."""
    if len(text) > LARGEST:
        raise InputError(f"larger than {LARGEST} characters")
    budget = Budget()
    try:
        depth = 0
        for count, event in enumerate(yaml.parse(text, Loader=_Loader)):
            line = event.start_mark.line + 1 if event.start_mark is not None else 1
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if depth > DEEPEST:
                raise InputError(f"nested deeper than {DEEPEST}", line=line)
            if count > MOST_VALUES:
                raise InputError(f"more than {MOST_VALUES} values", line=line)
        return [Item(node, budget) for node in yaml.compose_all(text, Loader=_Loader) if node is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise InputError(
            f"not valid YAML: {error.problem or error.context}", line=mark.line + 1 if mark else None
        ) from None
    except (yaml.YAMLError, ValueError) as error:
        position = getattr(error, "position", None)
        line_of = text.count("\n", 0, position) + 1 if isinstance(position, int) else None
        raise InputError(f"not valid YAML: {str(error).splitlines()[0][:200]}", line=line_of) from None

"""A machine written down in a test: paths to texts, links and refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gdsctl.collect.reader import Reader
from gdsctl.model.node import SourceInfo
from gdsctl.source.base import Missing, Output
from gdsctl.source.tree import Tree


class Link(str):
    """The target of a symbolic link."""

    __slots__ = ()


class Texts:
    """A dictionary as a raw tree. An exception as value is what opening that file or folder raises."""

    def __init__(self, files: dict[str, Any]) -> None:
        self._files = {path.strip("/"): value for path, value in files.items()}
        self._folders = {""}
        for path in self._files:
            parts = path.split("/")
            self._folders.update("/".join(parts[:length]) for length in range(1, len(parts)))

    def kind(self, path: str) -> str:
        if path in self._files:
            value = self._files[path]
            if value is dict:
                return "dir"
            return "link" if isinstance(value, Link) else "file"
        above = self._files.get(path.rpartition("/")[0])
        if isinstance(above, OSError):
            raise above
        if path in self._folders:
            return "dir"
        raise FileNotFoundError(2, "No such file or directory")

    def content(self, path: str) -> bytes:
        kind = self.kind(path)
        if kind == "dir":
            raise IsADirectoryError(21, "Is a directory")
        if kind == "link":
            raise OSError(40, "Too many levels of symbolic links")
        value = self._files[path]
        if isinstance(value, OSError):
            raise value
        return value if isinstance(value, bytes) else str(value).encode()

    def listing(self, path: str) -> list[str]:
        value = self._files.get(path)
        if isinstance(value, OSError):
            raise value
        prefix = path + "/" if path else ""
        return sorted({p[len(prefix) :].split("/")[0] for p in self._files if p.startswith(prefix)})

    def target(self, path: str) -> str:
        return str(self._files[path])


class FakeSource(Tree):
    """The tree's files, and the outputs and answers that a test names; all else was not captured."""

    def __init__(self, files: dict[str, Any], outputs: dict[str, Any], answers: dict[str, Any]) -> None:
        super().__init__(Texts(files))
        self._outputs = outputs
        self._answers = answers

    @property
    def info(self) -> SourceInfo:
        return SourceInfo(kind="snapshot")

    def run(self, name: str) -> Output | Missing:
        output = self._outputs.get(name, Missing(status="not_captured"))
        return Output(stdout=output) if isinstance(output, str) else output

    def ask(self, name: str) -> Any | Missing:
        return self._answers.get(name, Missing(status="not_captured"))


@pytest.fixture
def machine() -> Callable[..., Reader]:
    """`machine({path: text}, outputs={command: text}, answers={library: value})` -> a Reader.

    A path may also hold bytes, a Link, an OSError (raised on opening it), or the type dict for an empty folder.
    """

    def build(
        files: dict[str, Any], *, outputs: dict[str, Any] | None = None, answers: dict[str, Any] | None = None
    ) -> Reader:
        return Reader(FakeSource(files, outputs or {}, answers or {}))

    return build


@pytest.fixture
def link() -> type[Link]:
    return Link


@pytest.fixture
def denied() -> OSError:
    return PermissionError(13, "Permission denied")

"""The configuration that a cuFile process on this node would run with, asked key by key."""

from __future__ import annotations

from typing import Any

from gdsctl.assess import cufile_merge
from gdsctl.assess.cufile_lint import PathKind, lint, unseen
from gdsctl.assess.cufile_merge import Merged, Problem
from gdsctl.data import cufile_keys
from gdsctl.model.node import Node
from gdsctl.record import Record


class Config(Record, frozen=True, kw_only=True):
    """`known` false: the files were not captured or could not be read, so every question is answered with None.

    `version`: GDS release of the node's library ("1.14.1"), None where it is not known; the newest release's defaults
    are used then. `problems`: what lint says of the files and the environment. `unseen`: paths that the files name, and
    of which it is not known whether they are there: where one is not, libcufile refuses the file.
    """

    known: bool
    version: str | None = None
    result: Merged | None = None
    problems: tuple[Problem, ...] = ()
    unseen: tuple[str, ...] = ()

    @classmethod
    def of(cls, node: Node) -> Config:
        """The node's configuration, merged and linted."""
        found = node.gds.cufile_config
        version = _release(node.gds.version)
        if found.files is None:
            return cls(known=False, version=version)
        layers = [(path, found.texts.get(path, "")) for path in found.files]

        def kind(path: str) -> PathKind | None:
            there = found.paths.get(path)
            return None if there is None else "there" if there else "absent"

        return cls(
            known=True,
            version=version,
            result=cufile_merge.merge(layers, found.env, version),
            problems=lint(
                layers,
                version=version,
                env=found.env,
                node=node,
                kind_of=kind,
            ),
            unseen=unseen(layers, version=version, node=node, kind_of=kind),
        )

    @property
    def merged(self) -> dict[str, Any] | None:
        return self.result.values if self.result else None

    @property
    def fatal(self) -> Problem | None:
        """Why no cuFile process starts with this configuration, or None."""
        return next((problem for problem in self.problems if problem.fatal), self.result.fatal if self.result else None)

    @property
    def problem_lines(self) -> tuple[str, ...]:
        return tuple(_line(problem) for problem in self.problems)

    def get(self, dotted: str) -> Any:
        """The effective value of a key: from the files and environment, else the library's default.

        None: the configuration is not known, or the library shows no default.
        """
        if self.result is None:
            return None
        value = cufile_merge.get(self.result.values, dotted)
        if value is not None:
            return value
        key = cufile_keys.key(dotted)
        return key.default_in(self._nearest_known()) if key else None

    def _nearest_known(self) -> str:
        """The release whose defaults count: for one older than the table's oldest, that one's."""
        oldest, newest = (cufile_keys.releases()[at].gds for at in (0, -1))
        return max(self.version or newest, oldest, key=cufile_keys.release)

    def flag(self, dotted: str) -> bool | None:
        """A boolean key; a key without a known default counts as false, an unknown configuration as None."""
        if self.result is None:
            return None
        return bool(self.get(dotted))

    def is_set(self, dotted: str) -> bool:
        """Does a file or the environment set the key?"""
        return self.result is not None and cufile_merge.get(self.result.values, dotted) is not None

    def origin_of(self, pointer: str) -> str | None:
        """File or environment variable that set a key, by JSON pointer."""
        return self.result.origin.get(pointer) if self.result else None


def _release(version: str | None) -> str | None:
    try:
        return version if version and cufile_keys.release(version) else None
    except ValueError:
        return None


def _line(problem: Problem) -> str:
    where = ":".join(str(part) for part in (problem.path, problem.line, problem.column) if part is not None)
    return f"{where}: {problem.id}: {problem.message}"

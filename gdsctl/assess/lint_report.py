"""The document that `lint` prints."""

from __future__ import annotations

from gdsctl.assess.cufile_merge import Problem
from gdsctl.model.node import SCHEMA_VERSION, Tool
from gdsctl.record import Record


class Corrected(Record, frozen=True, kw_only=True):
    """A corrected file beside the judged one. `changes`: one sentence each; `left`: what lint says of it."""

    path: str
    changes: tuple[str, ...]
    left: tuple[Problem, ...] = ()


class LintReport(Record, frozen=True, kw_only=True):
    """`files`: those judged, in the order libcufile reads them; `gds_version` None: all releases were asked.

    `unread`: a file that the node's library may read and that could not be seen; `denied`: because of its permissions.
    `unseen`: paths that the files name and of which it is not known whether they are there.
    `problems` are those of the files as they stand, also where a corrected one was written.
    """

    schema_version: str = SCHEMA_VERSION
    tool: Tool
    gds_version: str | None = None
    files: tuple[str, ...]
    unread: str | None = None
    denied: bool = False
    unseen: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    corrected: Corrected | None = None

    @property
    def fails(self) -> bool:
        """Is there anything worse than a warning?"""
        return any(problem.fatal or problem.severity in ("critical", "error") for problem in self.problems)

    @property
    def warns(self) -> bool:
        return any(problem.severity == "warning" for problem in self.problems)

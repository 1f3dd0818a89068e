"""Lint's problems as findings: every cufile.* and rdma.dev-addr-* rule tells those that carry its id."""

from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy, RouteName

ALL_ROUTES: tuple[RouteName, ...] = ("nvidia-fs", "p2pdma", "c2c", "rdma", "compat")


def told(view: View, id_: str) -> Iterator[Verdict]:
    """One Fail a problem; one that the library dies of or refuses blocks every route, compat mode too."""
    for problem in view.config.problems:
        if problem.id != id_:
            continue
        where = ":".join(str(part) for part in (problem.path, problem.line, problem.column) if part is not None)
        yield Fail(
            subject=problem.pointer or problem.path,
            message=f"{where}: {problem.message}",
            evidence=seen(problem.pointer or "file", problem.message, where),
            remedy=Remedy(text=problem.remedy),
            severity=problem.severity,
            blocks=ALL_ROUTES if problem.fatal else (),
        )

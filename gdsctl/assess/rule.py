"""What a rule is: its story as data, and one function that looks at the node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gdsctl.assess.view import View
from gdsctl.model.judgement import Evidence, Remedy, RouteName, Severity
from gdsctl.record import Record


def seen(fact: str, value: object, source: str) -> tuple[Evidence, ...]:
    """One piece of evidence; join several with +."""
    return (Evidence(fact=fact, value=str(value), source=source),)


def some(names: Sequence[str]) -> str:
    """Names for a sentence: three at most are told, of more the first two and how many there are besides."""
    return ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2} more"


class Scope(Record, frozen=True, kw_only=True):
    """Which GPU x mount pairs a verdict touches. None is "all of them"; `pairs` narrows further."""

    gpus: frozenset[str] | None = None
    mounts: frozenset[str] | None = None
    pairs: frozenset[tuple[str, str]] | None = None

    def covers(self, gpu: str, mount: str) -> bool:
        return (
            (self.gpus is None or gpu in self.gpus)
            and (self.mounts is None or mount in self.mounts)
            and (self.pairs is None or (gpu, mount) in self.pairs)
        )


EVERYWHERE = Scope()


class Fail(Record, frozen=True, kw_only=True):
    """The problem is there. `severity` and `blocks` default to the rule's own."""

    subject: str
    message: str
    evidence: tuple[Evidence, ...] = ()
    remedy: Remedy | None = None
    scope: Scope = EVERYWHERE
    severity: Severity | None = None
    blocks: tuple[RouteName, ...] | None = None


class Cannot(Record, frozen=True, kw_only=True):
    """The rule cannot tell. `fact`: what is not known; `settle_with`: the command that would tell."""

    subject: str
    fact: str
    detail: str = ""
    settle_with: str | None = None
    scope: Scope = EVERYWHERE
    blocks: tuple[RouteName, ...] | None = None


Verdict = Fail | Cannot


class Rule(Record, frozen=True, kw_only=True):
    """A finding's story. `explain`, the documentation and every report are made of it.

    `id`: area.problem, never reused; `severity`: what a verdict has unless it says otherwise; `otherwise`: the other
    severities that one may have, each with where it has it; `problem`: one line that names what is wrong; `why`: why it matters;
    `look_at`: where to see it with one's own eyes; `remedy`: what to change, used where a verdict brings none;
    `not_to_conclude`: what the finding does not mean; `blocks`: routes that cannot work while it stands;
    `after`: ids of root causes that are told first; `source`: document that says so.
    """

    id: str
    severity: Severity
    problem: str
    why: str
    look_at: tuple[str, ...]
    remedy: Remedy
    source: str
    not_to_conclude: str = ""
    blocks: tuple[RouteName, ...] = ()
    after: tuple[str, ...] = ()
    otherwise: dict[Severity, str] = {}
    check: Callable[[View], Iterator[Verdict]]

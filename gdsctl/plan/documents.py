"""The `plan` and `verify` documents."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from gdsctl.model.judgement import Finding, Route
from gdsctl.model.node import SCHEMA_VERSION, SourceInfo, Tool
from gdsctl.plan.intent import Expect, Intent, PlanMode
from gdsctl.record import Record

Status = Literal["pass", "fail", "unknown", "waived"]


class Artifact(Record, frozen=True, kw_only=True):
    """`path`: where it belongs on the node, or a plain name for what is no file; `reasons`: pointer or line -> why."""

    path: str
    content: str
    reasons: dict[str, str] = {}


class Step(Record, frozen=True, kw_only=True):
    """`commands` and `undo` may be pasted into a root shell in the folder of the artifacts; `check`: look whether it holds.

    `changes`: `KEY: OLD -> NEW` of each setting that an installed file changes.
    `held`: why the step must not be taken; it has no commands then.
    """

    order: int
    what: str
    commands: tuple[str, ...] = ()
    needs_reboot: bool = False
    risk: str | None = None
    undo: tuple[str, ...] = ()
    check: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    held: str | None = None


class Unmet(Record, frozen=True, kw_only=True):
    """Part of the intent that the plan does not reach. `gpus`: those it concerns; `findings`: ids that stay."""

    requirement: str
    subject: str
    status: Literal["fail", "unknown"]
    because: str
    gpus: tuple[str, ...] = ()
    expect: Expect | None = None
    route: str | None = None
    findings: tuple[str, ...] = ()
    settle_with: str | None = None


class PlanReport(Record, frozen=True, kw_only=True):
    """`routes_after`: as gdsctl judges the node with the plan carried out; `notes`: choices worth a sentence.

    `gpus`: name of a GPU in routes and in what is unmet -> its index.
    """

    schema_version: str = SCHEMA_VERSION
    tool: Tool
    source: SourceInfo
    mode: PlanMode
    mode_reason: str
    intent: Intent
    intent_from: str
    gpus: dict[str, int] = {}
    artifacts: dict[str, Artifact]
    steps: tuple[Step, ...]
    routes_now: tuple[Route, ...]
    routes_after: tuple[Route, ...]
    unmet: tuple[Unmet, ...]
    notes: tuple[str, ...]
    findings: tuple[Finding, ...]


class Requirement(Record, frozen=True, kw_only=True):
    """`finding`: id of the finding that explains a failure best; `settle_with`: what would tell an unknown one."""

    id: str
    subject: str
    status: Status
    evidence: str
    finding: str | None = None
    settle_with: str | None = None


class Drift(Record, frozen=True, kw_only=True):
    """A value that is not the planned one. `kind`: cufile | driver | module | mount | baseline; `origin`: who set it.

    `required` false: told, but no reason to fail.
    """

    kind: Literal["cufile", "driver", "module", "mount", "baseline"]
    key: str
    installed: Any
    planned: Any
    origin: str | None = None
    why: str
    required: bool = True

    @property
    def said(self) -> str:
        """`is A, planned B` as the file that holds it would spell the values."""
        return f"is {spelt(self.installed)}, planned {spelt(self.planned)}"


def spelt(value: Any) -> str:
    if value is None:
        return "not set"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


class VerifyReport(Record, frozen=True, kw_only=True):
    """`gpus`: name of a GPU in routes and requirements -> its index."""

    schema_version: str = SCHEMA_VERSION
    tool: Tool
    source: SourceInfo
    verdict: Literal["pass", "fail", "unknown"]
    intent: Intent
    intent_from: str
    mode: PlanMode
    gpus: dict[str, int] = {}
    requirements: tuple[Requirement, ...]
    routes: tuple[Route, ...]
    drift: tuple[Drift, ...]
    findings: tuple[Finding, ...]

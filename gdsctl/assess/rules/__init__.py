"""One rule a file, named after its id; one row here."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from gdsctl.assess.rule import Rule

MODULES: tuple[str, ...] = (
    "fs_ext4_data_ordered",
    "nvidia_fs_not_loaded",
    "nvme_unpatched",
)


@functools.cache
def rules() -> tuple[Rule, ...]:
    """All rules, root causes first."""
    from gdsctl.assess.engine import in_dependency_order

    return in_dependency_order(importlib.import_module(f"{__name__}.{module}").RULE for module in MODULES)


def ids() -> tuple[str, ...]:
    return tuple(sorted(rule.id for rule in rules()))


def explanation(id_: str) -> dict[str, Any] | None:
    """A rule's story as plain values, or None for an id that does not exist."""
    rule = next((rule for rule in rules() if rule.id == id_), None)
    if rule is None:
        return None
    return {
        "id": rule.id,
        "severity": rule.severity,
        "problem": rule.problem,
        "why": rule.why,
        "look_at": rule.look_at,
        "remedy": rule.remedy,
        "not_to_conclude": rule.not_to_conclude,
        "blocks": rule.blocks,
        "after": rule.after,
        "source": rule.source,
    }

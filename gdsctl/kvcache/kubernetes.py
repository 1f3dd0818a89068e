"""Where Kubernetes keeps what starts containers; for every reader of manifests."""

from __future__ import annotations

from collections.abc import Iterator

from gdsctl.kvcache.yaml_documents import Item

POD_SPECS: tuple[tuple[str, ...], ...] = (
    ("spec",),
    ("spec", "template", "spec"),
    ("spec", "jobTemplate", "spec", "template", "spec"),
    ("spec", "leaderWorkerTemplate", "leaderTemplate", "spec"),
    ("spec", "leaderWorkerTemplate", "workerTemplate", "spec"),
)
"""Where a pod's template lies in each kind that makes pods (Kubernetes API reference)."""


def objects(item: Item, depth: int = 0) -> list[Item]:
    """The document's object, or those of a List."""
    if (item.word("kind") or "").endswith("List") and depth < 3:
        return [inner for entry in item.list("items") for inner in objects(entry, depth + 1)]
    return [item]


def pairs(item: Item | None) -> Iterator[tuple[str, Item]]:
    """Keys and values of a mapping that may be missing."""
    return item.pairs() if item is not None else iter(())

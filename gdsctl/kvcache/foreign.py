"""What a file seems to be that configures nothing here, and which command takes it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from gdsctl.data import app_foreign
from gdsctl.errors import InputError
from gdsctl.kvcache.kubernetes import objects
from gdsctl.kvcache.yaml_documents import as_yaml, documents
from gdsctl.parse import pasted

_LOOKED_AT = 1 << 15


def seems(text: str, path: str) -> str | None:
    """A sentence such as `this looks like ...: use ...`, or None for what nobody knows. `path` as the user called it."""
    if not text.strip():
        return "no KV cache is configured here: the file is empty"
    head = "\n".join(pasted.lines(text[:_LOOKED_AT]))
    for row in app_foreign.rows():
        if re.search(row.pattern, head, re.MULTILINE):
            return _told(row.what, row.use, path)
    if all(line.lstrip()[:1] in ("", "#", ";") for line in text.split("\n")):
        return "no KV cache is configured here: the file holds comments only"
    kinds = sorted(set(_kinds(text)))
    if kinds:
        named = ", ".join(kinds[:5])
        return (
            f"this looks like a Kubernetes manifest ({named}), and starts nothing that gdsctl knows to keep a KV cache or to "
            "load weights: give it with the one that does"
        )
    return None


def model(path: str) -> str:
    return _told(
        "a model's config.json",
        "`gdsctl size --model {file}`, or give it with the files that start the engine",
        path,
    )


def is_manifest(text: str) -> bool:
    """Kubernetes objects, of whatever kind."""
    return next(_kinds(text), None) is not None


# Objects that start nothing by themselves, nor name what does (Kubernetes API reference).
_IDLE = frozenset(
    [
        "ConfigMap",
        "CSIDriver",
        "LimitRange",
        "Namespace",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "ResourceQuota",
        "Secret",
        "Service",
        "ServiceAccount",
        "StorageClass",
        "VolumeSnapshotClass",
    ]
)


def starts_nothing(text: str) -> bool:
    """Kubernetes objects, none of which could start a container."""
    kinds = set(_kinds(text))
    return bool(kinds) and kinds <= _IDLE


def seems_bytes(head: bytes, path: str) -> str | None:
    """The same for what is no text in UTF-8."""
    for row in app_foreign.binaries():
        if any(head.startswith(bytes.fromhex(magic)) for magic in row.magic):
            return _told(row.what, row.use, path)
    return None


def seems_folder(names: frozenset[str], path: str) -> str:
    """The same for a folder that holds these names."""
    if ("manifest.json" in names and "root" in names) or {"sys", "proc"} <= names:
        return _told("a snapshot of a node", "`gdsctl app FILE --snapshot {file}`", path)
    if "Chart.yaml" in names:
        return _told("a Helm chart", "`helm template {file} | gdsctl app -`", path)
    if "kustomization.yaml" in names or "kustomization.yml" in names:
        return _told("a kustomization", "`kubectl kustomize {file} | gdsctl app -`", path)
    return "this is a folder: give the files in it"


def _told(what: str, use: str, path: str) -> str:
    return f"this looks like {what}: use " + use.replace("{file}", "-" if path == "<stdin>" else shlex.quote(path))


def _kinds(text: str) -> Iterator[str]:
    try:
        for item in documents(as_yaml(text) if text.lstrip()[:1] == "{" else text):
            for entry in objects(item):
                if entry.word("apiVersion") and entry.word("kind"):
                    yield (entry.word("kind") or "")[:60]
    except InputError:
        return

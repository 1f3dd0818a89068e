"""From what the user named to a Source."""

from __future__ import annotations

import os

from gdsctl.errors import InputError, RefusedError
from gdsctl.model.node import SourceInfo
from gdsctl.source.base import Missing, Output, Source
from gdsctl.source.snapshot import SnapshotSource
from gdsctl.source.tree import Files, FolderFiles, Tree

_TOP = frozenset({"sys", "proc", "dev", "etc", "run", "boot", "lib", "usr", "var"})


class TreeSource(Tree):
    """A bare tree that mirrors `/`. It holds files only: no command's output, no library's answer."""

    def __init__(self, files: Files, path: str) -> None:
        super().__init__(files)
        self._info = SourceInfo(kind="tree", path=path)

    @property
    def info(self) -> SourceInfo:
        return self._info

    def run(self, name: str) -> Output | Missing:
        return Missing(status="not_captured", detail=f"a bare tree holds no output of {name}")

    def ask(self, name: str) -> Missing:
        return Missing(status="not_captured", detail=f"a bare tree holds no answer of {name}")


def open_source(spec: str | None) -> Source:
    """None: the live machine. Otherwise `example:NAME`, or a snapshot or bare tree, folder or archive.

    Raises InputError for what is none of these, RefusedError where the system refuses to open it.
    """
    if spec is None:
        from gdsctl.source.live import LiveSource

        return LiveSource()
    if spec.startswith("example:"):
        from gdsctl.source.examples import example_files

        return _from_files(example_files(spec.removeprefix("example:")), spec)
    if os.path.isdir(spec):
        return _from_files(FolderFiles(spec), spec)
    try:
        os.stat(spec)
    except FileNotFoundError:
        raise InputError("no such file or directory", path=spec) from None
    except OSError as error:
        raise RefusedError(f"{spec}: {error.strerror}") from error
    from gdsctl.source.archive import open_archive

    return _from_files(open_archive(spec), spec)


def _from_files(files: Files, spec: str) -> Source:
    """A snapshot or a bare tree, perhaps inside one wrapping folder."""
    try:
        names = sorted(files.listing(""))
        if "manifest.json" in names:
            return SnapshotSource(files, spec)
        if _TOP.intersection(names):
            return TreeSource(files, spec)
        folders = [name for name in names if files.kind(name) == "dir"]
        if len(folders) == 1:
            from gdsctl.source.snapshot import Below

            inner = Below(files, folders[0])
            below = set(inner.listing(""))
            if "manifest.json" in below:
                return SnapshotSource(inner, spec)
            if _TOP & below:
                return TreeSource(inner, spec)
    except OSError as error:
        raise RefusedError(f"{spec}: {error.strerror}") from error
    raise InputError("neither a gdsctl snapshot nor a tree that mirrors / (no manifest.json, sys, proc ...)", path=spec)

"""What every command does before it begins."""

from __future__ import annotations

import os
from typing import Any

import typer.core

from gdsctl.errors import UsageError

_INPUTS = ("file", "files", "intent", "waivers", "snapshot", "snapshots", "baseline", "model", "path")
_OUTPUTS = ("output", "output_dir", "out", "plot")


class Command(typer.core.TyperCommand):
    """A command that takes no empty name for a file, and never puts its output in the place of what it reads."""

    def invoke(self, ctx: Any) -> Any:
        """Raises UsageError before anything is read."""
        given = [(name, value) for name in (*_INPUTS, *_OUTPUTS) for value in _values(ctx.params.get(name))]
        for name, value in given:
            if not value:
                raise UsageError(f"{name.upper()} is empty: a file's name is wanted")
        output = ctx.params.get("output")
        for name, value in given:
            if name in _INPUTS and output and _same_file(value, output):
                raise UsageError(f"{output} is what is read; name another file for --output")
        return super().invoke(ctx)


def _values(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value or ())


def _same_file(path: str, other: str) -> bool:
    try:
        return os.path.isfile(path) and os.path.samefile(path, other)
    except OSError:
        return False

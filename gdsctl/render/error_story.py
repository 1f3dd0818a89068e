"""`explain` of a cuFile error code."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from gdsctl.data.cufile_errors import CufileError


def error_story(error: CufileError) -> RenderableType:
    """The code, what it means, and each known cause with how it shows."""
    parts: list[RenderableType] = [Text.assemble((f"{error.code} CU_FILE_{error.name}", "bold")), Text(error.meaning)]
    parts += [Text(""), Text("Known causes, and how to tell them apart", style="bold")]
    for cause in error.causes:
        more = f" (gdsctl explain {cause.finding})" if cause.finding else ""
        parts.append(Padding(Text(f"- {cause.cause}{more}"), (0, 0, 0, 2)))
        parts.append(Padding(Text(cause.tell), (0, 0, 0, 4)))
    if not error.causes:
        parts.append(Padding(Text("none on record: look at the lines of cufile.log before it"), (0, 0, 0, 2)))
    return Group(*parts, Text(""), Text(f"Source: {error.source}", style="dim"))

"""Options that several commands share."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Optional

import typer


class Format(str, Enum):
    table = "table"
    json = "json"
    yaml = "yaml"


Snapshot = Annotated[
    Optional[str],
    typer.Option(
        "--snapshot",
        "-S",
        metavar="PATH",
        help="Read a snapshot, a bare tree (folder or archive) or example:NAME instead of this machine.",
        show_default=False,
    ),
]
Formatted = Annotated[Format, typer.Option("--format", "-f", help="How to print the document.")]
Output = Annotated[
    Optional[str],
    typer.Option(
        "--output", "-o", metavar="FILE", help="Write there, in one step, instead of stdout.", show_default=False
    ),
]
NoColor = Annotated[bool, typer.Option("--no-color", help="Plain text; the variable NO_COLOR does the same.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Tell everything, on stderr say what is being done.")]

from __future__ import annotations

from typing import Annotated

import typer

from gdsctl.cli.options import Output
from gdsctl.errors import UsageError


def schema(
    name: Annotated[
        str,
        typer.Argument(
            help="inspect, plan, verify, probe, app, size, diff, lint, explain, intent or snapshot.", show_default=False
        ),
    ],
    output: Output = None,
) -> None:
    """Print the JSON Schema of a document."""
    from gdsctl.render import documents, schemas

    if name not in schemas.SCHEMAS:
        raise UsageError(f"no schema named {name!r}; known: {', '.join(schemas.SCHEMAS)}")
    documents.deliver(documents.to_json(schemas.schema(name)), output)

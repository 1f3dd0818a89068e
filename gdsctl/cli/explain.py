from __future__ import annotations

from typing import Annotated

import typer

from gdsctl.cli.options import Format, Formatted, NoColor, Output
from gdsctl.errors import UsageError


def explain(
    id: Annotated[str, typer.Argument(help="A finding's id, such as acs.redirect-on-path.", show_default=False)],  # noqa: A002 -- the argument's name
    format: Formatted = Format.table,  # noqa: A002 -- the option's name
    output: Output = None,
    no_color: NoColor = False,
) -> None:
    """Tell the story of a finding: what, why, where to look, what to change, what not to conclude."""
    from gdsctl.assess.rules import explained, explanation
    from gdsctl.render import documents

    story = explanation(id)
    if story is None:
        import difflib

        close = difflib.get_close_matches(id, explained(), n=3)
        raise UsageError(f"no finding has the id {id!r}" + (f"; did you mean {' or '.join(close)}?" if close else ""))
    if format is Format.table:
        from gdsctl.render import terminal

        terminal.deliver(terminal.explanation(story), output, no_color=no_color)
    else:
        documents.deliver(documents.ENCODERS[format.value](story), output)

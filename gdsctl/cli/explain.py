from __future__ import annotations

from typing import Annotated, Optional

import typer

from gdsctl.cli.options import Format, Formatted, NoColor, Output
from gdsctl.errors import UsageError


def explain(
    id: Annotated[  # noqa: A002 -- the argument's name
        Optional[str],
        typer.Argument(
            help="A finding's id (acs.redirect-on-path), or a cuFile error code (5030). Default: a list of all ids.",
            show_default=False,
        ),
    ] = None,
    format: Formatted = Format.table,  # noqa: A002 -- the option's name
    output: Output = None,
    no_color: NoColor = False,
) -> None:
    """Tell the story of a finding: what, why, where to look, what to change, what not to conclude.

    Of a cuFile error code: what it means, every known cause, and how to tell them apart.
    """
    from gdsctl.assess.rules import explained, explanation
    from gdsctl.data.cufile_errors import error as cufile_error
    from gdsctl.render import documents

    if id is None:
        stories = [story for name in explained() if (story := explanation(name))]
        if format is Format.table:
            from gdsctl.render import terminal

            terminal.deliver(terminal.ids(stories), output, no_color=no_color)
        else:
            rows = [{name: story[name] for name in ("id", "severity", "problem")} for story in stories]
            documents.deliver(documents.ENCODERS[format.value](rows), output)
        return
    error = cufile_error(id)
    if error is not None:
        if format is Format.table:
            from gdsctl.render import terminal
            from gdsctl.render.error_story import error_story

            terminal.deliver(error_story(error), output, no_color=no_color)
        else:
            documents.deliver(documents.ENCODERS[format.value](error), output)
        return
    story = explanation(id)
    if story is None:
        import difflib

        close = (
            difflib.get_close_matches(id, explained(), n=3) or [name for name in explained() if id and id in name][:3]
        )
        hint = f"did you mean {' or '.join(close)}?" if close else "gdsctl explain lists them"
        raise UsageError(f"no finding has the id {id!r}; {hint}")
    if format is Format.table:
        from gdsctl.render import terminal

        terminal.deliver(terminal.explanation(story), output, no_color=no_color)
    else:
        documents.deliver(documents.ENCODERS[format.value](story), output)

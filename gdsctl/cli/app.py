"""The typer application: one row a command."""

from __future__ import annotations

from typing import Any

import typer
import typer.main

from gdsctl.cli import app_command, diff, explain, inspect, lint, parse, plan, probe, schema, size, snapshot, verify
from gdsctl.cli.command import Command
from gdsctl.errors import UsageError

# typer carries its own click from 0.26 on and uses the installed one before: its public subclass leads to either.
_ClickError: Any = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="gdsctl",
    help=(
        "Will the bytes of each GPU and mount go direct (GPUDirect Storage), over which route, at what ceiling; "
        "if not, why, and what to change?"
    ),
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help starts in half the time
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Without a GPU at hand: gdsctl inspect --snapshot example:hgx-h100-vast",
)


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", is_eager=True, help="Print the version and end."),
) -> None:
    if version:
        from gdsctl import __version__

        typer.echo(f"gdsctl {__version__}")
        raise typer.Exit


app.command("inspect", cls=Command)(inspect.inspect)
app.command("plan", cls=Command)(plan.plan)
app.command("verify", cls=Command)(verify.verify)
app.command("probe", cls=Command)(probe.probe)
app.add_typer(snapshot.app, name="snapshot")
app.command("lint", cls=Command)(lint.lint)
app.command("parse", cls=Command)(parse.parse)
app.command("app", cls=Command)(app_command.app)
app.command("size", cls=Command)(size.size)
app.command("diff", cls=Command)(diff.diff)
app.command("explain", cls=Command)(explain.explain)
app.command("schema", cls=Command)(schema.schema)


def invoke(argv: list[str]) -> int:
    """Run one command line; returns the exit code, raises GdsctlError for what can be explained in a line."""
    try:
        code = typer.main.get_command(app).main(args=argv, prog_name="gdsctl", standalone_mode=False)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except _ClickError as error:
        message = error.format_message()
        if not message or "\n" in message:  # no arguments at all: the help
            error.show()
            return int(error.exit_code)
        context = getattr(error, "ctx", None)
        raise UsageError(f"{message} ({context.command_path if context else 'gdsctl'} --help)") from None
    except SystemExit as ending:
        if isinstance(ending.__context__, BrokenPipeError):  # how typer ends where the reader went away
            raise BrokenPipeError from None
        raise
    if code == 130:  # how typer reports Ctrl-C, without a word
        raise KeyboardInterrupt
    return code if isinstance(code, int) else 0

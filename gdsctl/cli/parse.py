from __future__ import annotations

import os
import re
from typing import Annotated, Any, Optional

import typer

from gdsctl.cli.options import Output
from gdsctl.cli.text_files import read_bytes
from gdsctl.errors import InputError, RefusedError, UsageError
from gdsctl.parse import KINDS, parser

_TIME = re.compile(r"\d{4}-\d\d(-\d\d(T\d\d(:\d\d(:\d\d(\.\d{1,3})?)?)?)?)?")
_LIMIT = 256 * 1024 * 1024


def parse(
    kind: Annotated[str, typer.Argument(help=f"What the text is: {', '.join(KINDS)}.", show_default=False)],
    file: Annotated[str, typer.Argument(help="A file, or - for standard input.")] = "-",
    pid: Annotated[
        Optional[int],
        typer.Option("--pid", help="Of a cufile-log: the lines of this process only.", show_default=False),
    ] = None,
    since: Annotated[
        Optional[str],
        typer.Option(
            "--since",
            metavar="TIME",
            help="Of a cufile-log: nothing older, such as 2026-12-02T09:05, in the log's own (local) time.",
            show_default=False,
        ),
    ] = None,
    output: Output = None,
) -> None:
    """Read one tool's output, as pasted as it may be, and print it as JSON."""
    from gdsctl.render import documents
    from gdsctl.source.base import decode

    if kind not in KINDS:
        import difflib

        close = difflib.get_close_matches(kind, KINDS, n=1)
        hint = f"; did you mean {close[0]}?" if close else f"; known: {', '.join(KINDS)}"
        raise UsageError(f"no parser for {kind!r}{hint}")
    chosen: dict[str, Any] = {name: value for name, value in (("pid", pid), ("since", since)) if value is not None}
    if chosen and kind != "cufile-log":
        raise UsageError(f"--{next(iter(chosen))} goes with cufile-log only")
    if since is not None and not _TIME.fullmatch(since):
        raise UsageError(f"--since wants a time such as 2026-12-02T09:05:11, not {since!r}")
    name = "<stdin>" if file == "-" else file
    raw = _bytes(file)
    try:
        document = parser(kind)(decode(raw), **chosen)
    except InputError as error:
        raise error.at(name) from None
    documents.deliver(documents.to_json(document), output)


def _bytes(file: str) -> bytes:
    """The whole input; a file too large to be any tool's output is refused before it fills the memory."""
    try:
        if file != "-" and os.stat(file).st_size > _LIMIT:
            raise InputError(f"larger than {_LIMIT} bytes", path=file)
        raw = read_bytes(file, _LIMIT + 1)
    except FileNotFoundError:
        raise InputError("no such file", path=file) from None
    except IsADirectoryError:
        raise InputError("is a directory", path=file) from None
    except OSError as error:
        raise RefusedError(f"{file}: {error.strerror}") from error
    if len(raw) > _LIMIT:
        raise InputError(f"larger than {_LIMIT} bytes", path=file)
    return raw

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from gdsctl.cli.options import Output
from gdsctl.errors import InputError, RefusedError, UsageError
from gdsctl.parse import KINDS, parser

_LIMIT = 256 * 1024 * 1024


def parse(
    kind: Annotated[str, typer.Argument(help=f"What the text is: {', '.join(KINDS)}.", show_default=False)],
    file: Annotated[str, typer.Argument(help="A file, or - for standard input.")] = "-",
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
    name = "<stdin>" if file == "-" else file
    raw = _bytes(file)
    try:
        document = parser(kind)(decode(raw))
    except InputError as error:
        raise error.at(name) from None
    documents.deliver(documents.to_json(document), output)


def _bytes(file: str) -> bytes:
    """The whole input; a file too large to be any tool's output is refused before it fills the memory."""
    try:
        if file == "-":
            raw = sys.stdin.buffer.read(_LIMIT + 1)
        else:
            with open(file, "rb") as stream:
                if os.fstat(stream.fileno()).st_size > _LIMIT:
                    raise InputError(f"larger than {_LIMIT} bytes", path=file)
                raw = stream.read(_LIMIT + 1)
    except FileNotFoundError:
        raise InputError("no such file", path=file) from None
    except IsADirectoryError:
        raise InputError("is a directory", path=file) from None
    except OSError as error:
        raise RefusedError(f"{file}: {error.strerror}") from error
    if len(raw) > _LIMIT:
        raise InputError(f"larger than {_LIMIT} bytes", path=file)
    return raw

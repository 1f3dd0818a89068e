"""JSON and YAML, and the one way in which a document leaves gdsctl."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from gdsctl.errors import RefusedError
from gdsctl.render.safe_text import unseen_escaped

_ROWS = 500


def to_json(document: Any) -> str:
    """Indented JSON with a final newline; keys in the records' order; control and hidden characters escaped."""
    return unseen_escaped(msgspec.json.format(msgspec.json.encode(document), indent=2).decode()) + "\n"


def json_pieces(document: msgspec.Struct) -> Iterator[str]:
    """The text of `to_json` piece by piece: ten thousand functions have 56 MB of it, and no one needs all at once."""
    mark = "{\n"
    for field in msgspec.structs.fields(document):
        value = getattr(document, field.name)
        yield f'{mark}  "{field.encode_name}": '
        mark = ",\n"
        if not isinstance(value, tuple) or len(value) <= _ROWS:
            yield _indented(to_json(value)[:-1])
            continue
        yield "["
        for start in range(0, len(value), _ROWS):
            rows = to_json(value[start : start + _ROWS])
            yield ("," if start else "") + _indented(rows[1:-3])  # without the brackets of a list and their newlines
        yield "\n  ]"
    yield "\n}\n"


def _indented(text: str) -> str:
    """One level deeper; JSON's strings hold no raw newline."""
    return text.replace("\n", "\n  ")


def to_yaml(document: Any) -> str:
    """The same document as YAML 1.1 that a safe loader reads back equal."""
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(msgspec.to_builtins(document), Dumper=dumper, sort_keys=False, allow_unicode=False, width=120)
    return text


def deliver(text: str | Iterable[str], output: str | None) -> None:
    """Print a document, whole or in pieces, or put it at `output` in one step: a reader sees the old file or the new one, never a part.

    Raises RefusedError where the system refuses; the old file then stands as it was.
    """
    pieces = (text,) if isinstance(text, str) else text
    if output is None or output == "-":
        sys.stdout.writelines(pieces)
        sys.stdout.flush()
        return
    write_atomically(output, (piece.encode() for piece in pieces))


def write_atomically(path: str, content: bytes | Iterable[bytes], mode: int = 0o644) -> None:
    """Write beside the target, flush to the disk, rename. A link as target is followed, so that it stays a link."""
    pieces = (content,) if isinstance(content, bytes) else content
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    temporary = None
    try:
        if os.path.exists(target):
            if os.path.isdir(target):
                raise RefusedError(f"{path}: is a directory")
            if not os.path.isfile(target):  # /dev/stdout, a named pipe: nothing to replace
                with open(target, "wb") as stream:
                    stream.writelines(pieces)
                return
            mode = os.stat(target).st_mode & 0o777
        import tempfile

        descriptor, temporary = tempfile.mkstemp(prefix=f".{os.path.basename(target)}.", dir=folder)
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(descriptor, mode)
            stream.writelines(pieces)
            stream.flush()
            os.fsync(descriptor)
        os.replace(temporary, target)
        temporary = None
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise RefusedError(f"{path}: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


ENCODERS = {"json": to_json, "yaml": to_yaml}

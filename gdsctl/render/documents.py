"""JSON and YAML, and the one way in which a document leaves gdsctl."""

from __future__ import annotations

import contextlib
import io
import os
import re
import stat
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
        if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.encoding != "utf-8":
            sys.stdout.reconfigure(
                encoding="utf-8"
            )  # JSON that leaves a program is UTF-8 in every locale: RFC 8259, 8.1
        sys.stdout.writelines(pieces)
        sys.stdout.flush()
        return
    write_atomically(output, (piece.encode() for piece in pieces))


def write_atomically(path: str, content: bytes | Iterable[bytes]) -> None:
    """Write beside the target, flush to the disk, rename. A link as target is followed, so that it stays a link.

    A file that stood there keeps its mode and, where the system lets it, its owner; a new one gets what the umask leaves.
    """
    pieces = (content,) if isinstance(content, bytes) else content
    temporary = None
    try:
        target = os.path.realpath(path)
        folder = os.path.dirname(target)
        already_open = _descriptor(path)
        if already_open is not None:
            with os.fdopen(os.dup(already_open), "wb") as stream:
                stream.writelines(pieces)
            return
        if os.path.isdir(target) or path.endswith("/"):
            raise RefusedError(f"{path}: is a directory")
        before = os.stat(target) if os.path.exists(target) else None
        if before is not None and not stat.S_ISREG(before.st_mode):  # a named pipe, /dev/null: nothing to replace
            with open(target, "wb") as stream:
                stream.writelines(pieces)
            return
        import tempfile

        descriptor, temporary = tempfile.mkstemp(prefix=f".{os.path.basename(target)[:100]}.", dir=folder)
        with os.fdopen(descriptor, "wb") as stream:
            if before is not None:
                with contextlib.suppress(PermissionError):
                    os.fchown(descriptor, before.st_uid, before.st_gid)
            os.fchmod(descriptor, 0o666 & ~_umask() if before is None else before.st_mode & 0o777)
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


def _descriptor(path: str) -> int | None:
    """The number behind /dev/stdout and the like: what is open there goes on where it stands, a file under `>>` too."""
    name = {"/dev/stdout": "/dev/fd/1", "/dev/stderr": "/dev/fd/2"}.get(path, path)
    match = re.fullmatch(r"/(?:dev|proc/self)/fd/([0-9]{1,9})", name)
    return int(match[1]) if match else None


def _umask() -> int:
    """Only setting it tells it: umask(2)."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


ENCODERS = {"json": to_json, "yaml": to_yaml}

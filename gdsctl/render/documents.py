"""JSON and YAML, and the one way in which a document leaves gdsctl."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

import msgspec

from gdsctl.errors import RefusedError
from gdsctl.render.safe_text import unseen_escaped


def to_json(document: Any) -> str:
    """Indented JSON with a final newline; keys in the records' order; control and hidden characters escaped."""
    return unseen_escaped(msgspec.json.format(msgspec.json.encode(document), indent=2).decode()) + "\n"


def to_yaml(document: Any) -> str:
    """The same document as YAML 1.1 that a safe loader reads back equal."""
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(msgspec.to_builtins(document), Dumper=dumper, sort_keys=False, allow_unicode=False, width=120)
    return text


def deliver(text: str, output: str | None) -> None:
    """Print a document, or put it at `output` in one step: a reader sees the old file or the new one, never a part.

    Raises RefusedError where the system refuses; the old file then stands as it was.
    """
    if output is None or output == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    write_atomically(output, text.encode())


def write_atomically(path: str, content: bytes, mode: int = 0o644) -> None:
    """Write beside the target, flush to the disk, rename. A link as target is followed, so that it stays a link."""
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    temporary = None
    try:
        if os.path.exists(target):
            if os.path.isdir(target):
                raise RefusedError(f"{path}: is a directory")
            if not os.path.isfile(target):  # /dev/stdout, a named pipe: nothing to replace
                with open(target, "wb") as stream:
                    stream.write(content)
                return
            mode = os.stat(target).st_mode & 0o777
        import tempfile

        descriptor, temporary = tempfile.mkstemp(prefix=f".{os.path.basename(target)}.", dir=folder)
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(descriptor, mode)
            stream.write(content)
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

"""Small text files that a user names: intents, waivers, a cufile.json."""

from __future__ import annotations

import os
import sys

from gdsctl.errors import InputError, RefusedError

_LARGEST = 16 << 20


def read_text(path: str, *, errors: str = "strict") -> str:
    """The whole of a file, or of standard input for `-`, as UTF-8.

    Raises InputError where it is not there, too large or not UTF-8, RefusedError where the system refuses.
    """
    shown = "<stdin>" if path == "-" else path
    try:
        if path == "-":
            raw = sys.stdin.buffer.read(_LARGEST + 1)
        else:
            if os.path.isdir(path):
                raise InputError("is a directory", path=path)
            with open(path, "rb") as stream:
                raw = stream.read(_LARGEST + 1)
    except FileNotFoundError:
        raise InputError("no such file", path=path) from None
    except (OSError, ValueError) as error:
        raise RefusedError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if len(raw) > _LARGEST:
        raise InputError(f"larger than {_LARGEST} bytes", path=shown)
    try:
        return raw.decode("utf-8", errors)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError("not UTF-8 text", path=shown, line=line) from None

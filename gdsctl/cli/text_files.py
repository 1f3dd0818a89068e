"""Small text files that a user names: intents, waivers, a cufile.json."""

from __future__ import annotations

import os
import stat
import sys
import threading
from typing import BinaryIO

from gdsctl.cli.messages import say
from gdsctl.errors import InputError, RefusedError

_LARGEST = 16 << 20
_PATIENCE_S = 2.0  # a writer that is there has written by then, or the user wonders


def read_text(path: str, *, errors: str = "strict") -> str:
    """The whole of a file, or of standard input for `-`, as UTF-8.

    A pipe is waited for without an end, as other commands do; after a moment without a word from it a line says so.
    Raises InputError where it is not there, too large or not UTF-8, RefusedError where the system refuses.
    """
    shown = "<stdin>" if path == "-" else path
    try:
        raw = read_bytes(path, _LARGEST + 1)
    except FileNotFoundError:
        raise InputError("no such file", path=path) from None
    except IsADirectoryError:
        raise InputError("is a directory", path=path) from None
    except (OSError, ValueError) as error:
        raise RefusedError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if len(raw) > _LARGEST:
        raise InputError(f"larger than {_LARGEST} bytes", path=shown)
    try:
        return raw.decode("utf-8", errors)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError("not UTF-8 text", path=shown, line=line) from None


def read_bytes(path: str, most: int) -> bytes:
    """Up to `most` bytes of a file, a FIFO, or standard input for `-`; OSError as open and read raise it."""
    waiting = threading.Timer(_PATIENCE_S, _tell_of_waiting, ("standard input" if path == "-" else path,))
    waiting.daemon = True
    if _may_wait(path):
        waiting.start()
    try:
        if path == "-":
            return _until_first(sys.stdin.buffer, waiting, most)
        with open(path, "rb") as stream:
            return _until_first(stream, waiting, most)
    finally:
        waiting.cancel()


def _until_first(stream: BinaryIO, waiting: threading.Timer, most: int) -> bytes:
    first = stream.read(1)
    waiting.cancel()
    return first + stream.read(most - 1) if first else first


def _may_wait(path: str) -> bool:
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode if path == "-" else os.stat(path).st_mode
    except (OSError, ValueError):  # standard input of a test or of an embedding program is no file
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _tell_of_waiting(name: str) -> None:
    say(f"waiting for {name}: nobody has written to it yet (Ctrl-C ends this)")

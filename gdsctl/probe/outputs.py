"""Can a result be put where it is wanted? Asked before anything is measured, and without touching what stands there."""

from __future__ import annotations

import errno
import os
import re
import stat
import tempfile

from gdsctl.errors import RefusedError
from gdsctl.probe.target import NO_TMPFILE, refused

_DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/([0-9]{1,9})\Z")


def require_writable(path: str) -> None:
    """Raises RefusedError for a folder, a place without a folder, and where a new file cannot be made or written to."""
    try:
        _look(path)
    except ValueError as error:  # a NUL
        raise RefusedError(f"{path}: {error}") from error
    except OSError as error:
        raise refused(path, error) from error


def _look(path: str) -> None:
    if path in ("/dev/stdout", "/dev/stderr"):
        return
    if match := _DESCRIPTOR.match(path):
        os.fstat(int(match[1]))
        return
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        mode = None
    if path.endswith("/") or (mode is not None and stat.S_ISDIR(mode)):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if mode is not None and not os.access(target, os.W_OK, effective_ids=True):
        raise _no_access(target)
    if mode is not None and not stat.S_ISREG(mode):  # a pipe, /dev/null: written to as it stands
        return
    os.stat(folder)
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
        raise _no_access(folder)
    _new_file(folder)


def _no_access(path: str) -> OSError:
    """access(2) said no; Python does not tell why."""
    code = errno.EROFS if os.statvfs(path).f_flag & os.ST_RDONLY else errno.EACCES
    return OSError(code, os.strerror(code))


def _new_file(folder: str) -> None:
    """Make one, which takes the inode and the rights that the result will want; without a name where that can be done."""
    try:
        os.close(os.open(folder, os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC, 0o600))
    except OSError as error:
        if error.errno not in NO_TMPFILE:
            raise
        descriptor, name = tempfile.mkstemp(prefix=".gdsctl-", dir=folder)
        os.close(descriptor)
        os.unlink(name)

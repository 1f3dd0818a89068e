"""A folder or an archive laid out like `/`, read without ever leaving it."""

from __future__ import annotations

import errno
import os
import stat
from typing import Protocol

from gdsctl.source.base import FILE_LIMIT, MANIFEST_LIMIT, Missing, printable

_DOTS = frozenset(("", ".", ".."))
_MAX_LINKS = 40  # as the kernel's own limit, path_resolution(7)


class Files(Protocol):
    """The raw tree: paths are relative to its root, without leading slash, links not followed; OSError as the kernel's."""

    def kind(self, path: str) -> str:
        """`file`, `dir`, `link` or `other`; FileNotFoundError or NotADirectoryError where nothing stands."""

    def content(self, path: str) -> bytes:
        """The bytes of a file; OSError with ELOOP for a link."""

    def listing(self, path: str) -> list[str]: ...
    def target(self, path: str) -> str: ...


class FolderFiles:
    """A folder of the file system as a raw tree."""

    def __init__(self, root: str) -> None:
        self._root = os.path.join(root, "")

    def kind(self, path: str) -> str:
        try:
            mode = os.lstat(self._root + path).st_mode
        except ValueError:  # a NUL or half a surrogate pair, from a file's contents: no file has such a name
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)) from None
        if stat.S_ISREG(mode):
            return "file"
        return "dir" if stat.S_ISDIR(mode) else "link" if stat.S_ISLNK(mode) else "other"

    def content(self, path: str) -> bytes:
        try:
            return read_file(self._root + path, size_limit(path), follow=False)
        except ValueError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)) from None

    def listing(self, path: str) -> list[str]:
        return os.listdir(self._root + path)

    def target(self, path: str) -> str:
        return os.readlink(self._root + path)


def size_limit(path: str) -> int:
    """The most bytes that a file of this name in a raw tree may have."""
    return MANIFEST_LIMIT if path.rpartition("/")[2] == "manifest.json" else FILE_LIMIT


def read_file(path: str, limit: int = FILE_LIMIT, *, follow: bool = True) -> bytes:
    """The bytes of a regular file, whatever size it claims (procfs says 0); OSError with EFBIG above `limit`, with ELOOP
    for a link that is not to be followed.

    Opened without waiting, so that a FIFO or a device under a file's name cannot hang the reader.
    """
    links = 0 if follow else os.O_NOFOLLOW
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | links)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        first = os.read(descriptor, 65536)
        if not first or len(first) == status.st_size:  # sysfs claims 4096 for most attributes, procfs 0
            return first
        chunks = [first]
        size = len(first)
        while chunk := os.read(descriptor, 1 << 20):
            chunks.append(chunk)
            size += len(chunk)
            if size > limit:
                raise OSError(errno.EFBIG, f"more than {limit} bytes")
        return b"".join(chunks)
    finally:
        os.close(descriptor)


def missing(error: OSError) -> Missing:
    """The reason behind an OSError."""
    detail = error.strerror or str(error)
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return Missing(status="absent", detail=detail)
    if error.errno in (errno.EACCES, errno.EPERM):
        return Missing(status="denied", detail=detail)
    return Missing(status="error", detail=f"{errno.errorcode.get(error.errno or 0, 'error')}: {detail}")


class Tree:
    """Reads by absolute path inside a raw tree. Links, absolute ones too, are followed inside the root only.

    A path is absent where an ancestor's listing lacks the next component; a wholly missing top-level folder was not
    captured.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._folders: dict[str, str | Missing] = {"": ""}
        self._no_links: set[str] = set()

    def read(self, path: str) -> bytes | Missing:
        folder, _, name = path.strip("/").rpartition("/")
        found = self._folder(folder)
        if isinstance(found, str) and name not in _DOTS:
            place = f"{found}/{name}" if found else name
            try:
                return self._files.content(place)
            except OSError as error:
                if error.errno != errno.ELOOP:  # a link
                    return self._why(error, place)
            found = self._walk(place)
        elif isinstance(found, str):
            found = self._walk(path)
        if isinstance(found, Missing):
            return found
        try:
            return self._files.content(found)
        except OSError as error:
            return self._why(error, found)

    def names(self, path: str) -> tuple[str, ...] | Missing:
        found = self._folder(path.strip("/"))
        if isinstance(found, Missing):
            return found
        try:
            return tuple(sorted(map(printable, self._files.listing(found))))
        except OSError as error:
            return self._why(error, found)

    def real(self, path: str) -> str | Missing:
        stands = self._locate(path)
        if isinstance(stands, Missing):
            return stands
        found = stands if stands in self._no_links else self._walk(stands, strict=False)
        return path if isinstance(found, Missing) else "/" + printable(found)

    def exists(self, path: str) -> bool | Missing:
        found = self._locate(path)
        if isinstance(found, Missing):
            return False if found.status == "absent" else found
        return True

    def canonical(self, path: str) -> str:
        """The path with every link in it followed as far as the tree holds them; the rest as it stands."""
        folder, _, name = path.strip("/").rpartition("/")
        parent = self._folder(folder)
        if isinstance(parent, str) and name not in _DOTS:
            place = f"{parent}/{name}" if parent else name
            try:
                if self._files.kind(place) != "link":
                    return "/" + printable(place)
            except OSError:
                return "/" + printable(place)
        found = self._walk(path, strict=False)
        return path if isinstance(found, Missing) else "/" + printable(found)

    def _folder(self, path: str) -> str | Missing:
        """The canonical place of a folder; remembered, since thousands of files share a few hundred folders."""
        known = self._folders.get(path)
        if known is None:
            known = self._folders[path] = self._walk(path)
        return known

    def _locate(self, path: str) -> str | Missing:
        """Where the entry stands, its own link not followed."""
        folder, _, name = path.strip("/").rpartition("/")
        parent = self._folder(folder)
        if isinstance(parent, Missing):
            return parent
        if name in _DOTS:
            return self._walk(path)
        place = f"{parent}/{name}" if parent else name
        try:
            self._target(place)
        except OSError as error:
            return self._why(error, place)
        return place

    def _walk(self, path: str, *, strict: bool = True) -> str | Missing:
        links = _MAX_LINKS
        done, todo = self._start(path)
        while todo:
            part = todo.pop()
            if part == "..":
                done = done.rpartition("/")[0]
                continue
            place = f"{done}/{part}" if done else part
            try:
                target = self._target(place)
            except OSError as error:
                if strict:
                    return self._why(error, place)
                target = None
            if target is None:
                done = place
                continue
            links -= 1
            if links < 0:
                return Missing(status="error", detail="ELOOP: too many links")
            if target.startswith("/"):
                done = ""
            while target.startswith("../"):
                done, target = done.rpartition("/")[0], target[3:]
            done, rest = self._start(f"{done}/{target}" if done else target)
            todo += rest
        return done

    def _start(self, path: str) -> tuple[str, list[str]]:
        """The longest known folder at a path's head, and the components after it, the next one last."""
        head = path.rpartition("/")[0]
        known = self._folders.get(head)
        while not isinstance(known, str):
            head = head.rpartition("/")[0]
            known = self._folders.get(head)
        parts = path[len(head) :].split("/")
        return known, [part for part in parts if part and part != "."][::-1]

    def _target(self, place: str) -> str | None:
        """Where a link points, None for all else; remembered, since the ways to most places share their folders."""
        if place in self._no_links:
            return None
        if self._files.kind(place) == "link":
            return self._files.target(place)
        self._no_links.add(place)
        return None

    @staticmethod
    def _why(error: OSError, place: str) -> Missing:
        reason = missing(error)
        if reason.status == "absent" and "/" not in place:
            return Missing(status="not_captured", detail=f"/{place} is not part of this tree")
        return reason

"""A tar archive as a raw tree in memory: nothing is unpacked, so nothing can land outside.

Python's tarfile keeps a record of every member and spends most of a snapshot's opening time on fields that a tree does
not need; the format read here is POSIX.1-1988 ustar, POSIX.1-2001 pax and GNU tar's long names, as `man 5 tar` has them.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import lzma
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Protocol

from gdsctl.errors import InputError, RefusedError
from gdsctl.source.tree import size_limit

MAX_MEMBERS = 2_000_000
"""A sweep of 10,000 functions has about half a million; each member costs its name in memory."""

MAX_HELD_BYTES = 512 * 1024 * 1024
"""Contents and names kept. A big node's snapshot holds under 100 MB."""

MAX_STREAM_BYTES = 2 * 1024 * 1024 * 1024
"""The unpacked stream: tar spends 1 KiB on a one-byte attribute, so it is far longer than what is kept."""

MAX_RATIO = 2000
"""Unpacked to packed. Padded sysfs attributes reach a few hundred; zeros reach 1000 (gzip) to 100,000 (zstd, bzip2)."""

RATIO_FREE_BYTES = 64 * 1024 * 1024
"""Below this the ratio does not matter."""

MAX_DEPTH = 64
"""Folders in each other; sysfs has about 30."""

MAX_NAME = 4096
"""PATH_MAX of Linux: a longer name is no path that could have been captured."""

_MAX_PAX = 1024 * 1024  # a pax header holds a few names and times
_DECODER_MEMORY = 256 * 1024 * 1024  # xz -9 needs 65 MiB, zstd --ultra -22 128 MiB
_BLOCK = 512
_FILE, _SYMLINK, _GNU_NAME = b"02L"
_LONG_NAMES = b"Lx"
_CHUNK = 1 << 20
_BLANK_SUM = 8 * 32  # the eight bytes of the sum itself count as blanks
_ADLER = 65521
_SMALL = 256  # contents up to this length repeat by the thousand in sysfs and are kept once
_ENTRY_BYTES = 100  # what a name costs beyond its characters


class _Folder:
    __slots__ = ()


class _Link(str):
    __slots__ = ()


class _Refused:
    """A member that stands there but has no contents to give."""

    __slots__ = ("number", "reason")

    def __init__(self, number: int, reason: str) -> None:
        self.number = number
        self.reason = reason


_Entry = bytes | _Folder | _Link | _Refused
_FOLDER = _Folder()
_SPECIAL = _Refused(errno.EINVAL, "not a regular file")
_SPARSE = _Refused(errno.EOPNOTSUPP, "a sparse member of the archive")
_NO_TARGET = _Refused(errno.EIO, "a hard link to what the archive does not hold")


class ArchiveFiles:
    """The raw tree (`Files`) of an archive's members; of members with one name the last counts."""

    def __init__(self) -> None:
        self._folders: dict[str, dict[str, _Entry]] = {"": {}}
        self._contents: dict[bytes, bytes] = {}
        self._last = ("", self._folders[""])
        self._held = 0
        self._members = 0
        self._gave_way = False  # a folder's name went to something else

    def kind(self, path: str) -> str:
        entry = self._entry(path)
        if isinstance(entry, bytes):
            return "file"
        if isinstance(entry, _Folder):
            return "dir"
        return "link" if isinstance(entry, _Link) else "other" if entry is _SPECIAL else "file"

    def content(self, path: str) -> bytes:
        entry = self._entry(path)
        if isinstance(entry, bytes):
            return entry
        if isinstance(entry, _Folder):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if isinstance(entry, _Refused):
            raise OSError(entry.number, entry.reason)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))

    def listing(self, path: str) -> list[str]:
        if not isinstance(self._entry(path), _Folder):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        return list(self._folders[path])

    def target(self, path: str) -> str:
        entry = self._entry(path)
        if not isinstance(entry, _Link):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return str(entry)

    def add(self, path: str, entry: _Entry) -> None:
        """Place a member at a clean relative path; what stood there goes. Raises InputError above the bounds."""
        self._members += 1
        folder, _, name = path.rpartition("/")
        if folder == self._last[0]:
            siblings = self._last[1]
        elif not self._gave_way and folder in self._folders:
            siblings = self._folders[folder]
        else:
            siblings = self._make_folders(folder)
        if isinstance(entry, bytes):
            if len(entry) <= _SMALL:
                entry = self._contents.setdefault(entry, entry)
            self._held += len(entry)
        siblings[sys.intern(name)] = entry
        self._last = ("", self._folders[""])
        if entry is _FOLDER:
            self._folders.setdefault(path, {})
            self._held += len(path)
        elif path not in self._folders:
            self._last = (folder, siblings)
        else:  # perhaps one above the last
            self._gave_way = True
        self._held += len(name) + _ENTRY_BYTES
        if self._members > MAX_MEMBERS:
            raise InputError(f"the archive has more than {MAX_MEMBERS} members")
        if self._held > MAX_HELD_BYTES:
            raise InputError(f"the archive holds more than {MAX_HELD_BYTES >> 20} MiB")

    def get(self, path: str) -> _Entry | None:
        try:
            return self._entry(path)
        except OSError:
            return None

    def _make_folders(self, folder: str) -> dict[str, _Entry]:
        if not folder:
            return self._folders[""]
        parent, _, name = folder.rpartition("/")
        siblings = self._make_folders(parent)
        if not isinstance(siblings.get(name), _Folder):
            siblings[sys.intern(name)] = _FOLDER
            self._held += len(folder) + _ENTRY_BYTES
        return self._folders.setdefault(folder, {})

    def _entry(self, path: str) -> _Entry:
        if not path:
            return _FOLDER
        folder, _, name = path.rpartition("/")
        entry = self._folders.get(folder, {}).get(name)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return entry


def open_archive(path: str) -> ArchiveFiles:
    """The members of a tar archive, plain or packed by gzip, bzip2, xz or zstd; the kind is told by its first bytes.

    Raises InputError naming the file for what is no such archive, is cut off, damaged or beyond the bounds above;
    RefusedError where the system refuses to read it.
    """
    try:
        with open(path, "rb", buffering=0, opener=_without_waiting) as raw:
            return _read(_Stream(*_unpacked(raw)))
    except InputError as error:
        raise error.at(path) from error.__cause__
    except OSError as error:
        if isinstance(error, gzip.BadGzipFile) or error.errno is None:  # gzip and bz2 raise bare OSErrors for bad data
            raise InputError(f"the archive is damaged: {error}", path=path) from error
        raise RefusedError(f"{path}: {error.strerror}") from error
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise InputError(f"the archive is cut off or damaged: {error}", path=path) from error


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Xz:
    """lzma.LZMAFile with a bound on the decoder's memory."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._decoder = lzma.LZMADecompressor(memlimit=_DECODER_MEMORY)

    def read(self, size: int, /) -> bytes:
        while True:
            data = b""
            if self._decoder.eof:
                data = (self._decoder.unused_data or self._raw.read(_CHUNK)).lstrip(b"\0")  # stream padding
                if not data:
                    return b""
                self._decoder = lzma.LZMADecompressor(memlimit=_DECODER_MEMORY)
            elif self._decoder.needs_input:
                data = self._raw.read(_CHUNK)
                if not data:
                    raise EOFError("the xz stream has no end")
            out = self._decoder.decompress(data, size)
            if out:
                return out


def _zstd(raw: IO[bytes]) -> _Readable:
    import zstandard

    class Zstd:
        def __init__(self) -> None:
            decoder = zstandard.ZstdDecompressor(max_window_size=_DECODER_MEMORY)
            self._reader = decoder.stream_reader(raw, read_across_frames=True)

        def read(self, size: int, /) -> bytes:
            try:
                return self._reader.read(size)
            except zstandard.ZstdError as error:
                raise EOFError(str(error)) from error

    return Zstd()


_MAGIC: tuple[tuple[bytes, Callable[[IO[bytes]], _Readable]], ...] = (
    (b"\x1f\x8b", lambda raw: gzip.GzipFile(fileobj=raw)),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ\x00", _Xz),
    (b"\x28\xb5\x2f\xfd", _zstd),
)


def _unpacked(raw: IO[bytes]) -> tuple[IO[bytes], _Readable]:
    if not raw.seekable():
        raise InputError("a pipe or a terminal, not a file: write the archive to a file first")
    start = raw.read(_BLOCK)
    raw.seek(0)
    for magic, opened in _MAGIC:
        if start.startswith(magic):
            return raw, opened(raw)
    if start.startswith(b"PK\x03\x04"):
        raise InputError("a zip file; gdsctl reads tar archives (.tar, .tar.gz, .tar.bz2, .tar.xz, .tar.zst)")
    return raw, raw


class _Stream:
    """Exact reads from a packed stream, counted."""

    def __init__(self, raw: IO[bytes], unpacked: _Readable) -> None:
        self._raw = raw
        self._unpacked = unpacked
        self._buffer = b""
        self._at = 0
        self._total = 0

    def take(self, size: int) -> bytes:
        """The next bytes; fewer only at the end."""
        end = self._at + size
        if end <= len(self._buffer):
            data = self._buffer[self._at : end]
            self._at = end
            return data
        parts = [self._buffer[self._at :]]
        missing = size - len(parts[0])
        self._buffer, self._at = b"", 0
        while missing > 0:
            chunk = self._more()
            if not chunk:
                break
            parts.append(chunk[:missing])
            if len(chunk) > missing:
                self._buffer, self._at = chunk, missing
            missing -= len(parts[-1])
        return b"".join(parts)

    def lend(self, taker: Callable[[bytes, int], int]) -> None:
        """What is at hand without reading on: `taker` gets it with the place of the next byte, and gives the new place."""
        self._at = taker(self._buffer, self._at)

    def skip(self, size: int) -> bool:
        """Pass over bytes without keeping them; False where the stream ends before."""
        while size > 0:
            step = len(self.take(min(size, _CHUNK)))
            if not step:
                return False
            size -= step
        return True

    def _more(self) -> bytes:
        chunk = self._unpacked.read(_CHUNK)
        self._total += len(chunk)
        if self._total > MAX_STREAM_BYTES:
            raise InputError(f"the archive unpacks to more than {MAX_STREAM_BYTES >> 20} MiB")
        if self._total > RATIO_FREE_BYTES and self._total > MAX_RATIO * max(self._raw.tell(), 1):
            raise InputError(f"the archive unpacks to more than {MAX_RATIO} times its size")
        return chunk


def _read(stream: _Stream) -> ArchiveFiles:
    files = ArchiveFiles()
    hard_links: list[tuple[str, str]] = []
    shared: dict[str, bytes] = {}
    for name, type_, size, link in _members(stream, shared):
        path = _clean(name)
        entry: _Entry
        if type_ == b"5" or (type_ in b"0\0" and name.endswith("/")):
            _pass(stream, size)
            if path:
                files.add(path, _FOLDER)
            continue
        if not path:
            _pass(stream, size)
            continue
        if type_ in (b"0", b"\0", b"7"):
            entry = _contents(stream, path, size)
        else:
            _pass(stream, size)
            if type_ == b"1":
                hard_links.append((path, _clean(link)))
                entry = files.get(hard_links[-1][1]) or _NO_TARGET
                entry = _NO_TARGET if isinstance(entry, _Folder) else entry
            elif type_ == b"2":
                entry = _Link(link)
            elif type_ == b"S":
                entry = _SPARSE
            else:  # devices, FIFOs, multi-volume parts, what is yet to be invented
                entry = _SPECIAL
        files.add(path, entry)
        if not shared:
            stream.lend(lambda data, at: _plain(data, at, files))
    for path, target in hard_links:  # a target that came later
        later = files.get(target)
        if files.get(path) is _NO_TARGET and later is not None and not isinstance(later, _Folder):
            files.add(path, later)
    return files


def _plain(data: bytes, at: int, files: ArchiveFiles) -> int:
    """Add the plain members that stand at `data[at:]`: small files and links, whole, perhaps behind a long name.

    Nearly all of a snapshot's are. Where the first that is not plain begins: it, and all that is wrong, is `_members`'.
    """
    begin, long_name = at, b""
    while (start := at + _BLOCK) <= len(data):
        header = data[at:start]
        type_ = header[156]
        name = long_name or header[:100].partition(b"\0")[0]
        if not name or not _checked(header):
            return begin
        size = _number(header[124:136])
        at = start + size + -size % _BLOCK
        if size < 0 or at > len(data):
            return begin
        if type_ in _LONG_NAMES and not long_name:
            told = data[start : start + size]
            found = {"path": told.partition(b"\0")[0]} if type_ == _GNU_NAME else _pax(told)
            long_name = found.get("path", b"")
            if {*found} != {"path"} or not long_name:
                return begin
            continue
        if not long_name and header[345]:
            if header[257:263] != b"ustar\0":
                return begin
            name = header[345:500].partition(b"\0")[0] + b"/" + name
        if name[-1:] == b"/":
            return begin
        if type_ == _FILE:
            files.add(_clean(_text(name)), data[start : start + size])
        elif type_ == _SYMLINK and not size:
            files.add(_clean(_text(name)), _Link(_text(header[157:257].partition(b"\0")[0])))
        else:
            return begin
        begin, long_name = at, b""
    return begin


def _clean(name: str) -> str:
    """A member's place below the root: an absolute name is taken from the root, as tar itself does."""
    if "\0" in name:
        raise InputError("a member of the archive has a NUL in its name")
    if (
        len(name) < 1024
        and name[:1] not in "/."
        and "//" not in name
        and "/." not in name
        and name.count("/") < MAX_DEPTH
    ):
        return name.rstrip("/")
    parts = [part for part in name.split("/") if part and part != "."]
    if ".." in parts:
        raise InputError(f"a member of the archive leaves it: {name[:200]!r}")
    if len(parts) > MAX_DEPTH or len(name) > MAX_NAME:
        raise InputError(f"a member of the archive has too long a name: {name[:200]!r}")
    return "/".join(parts)


def _contents(stream: _Stream, path: str, size: int) -> _Entry:
    limit = size_limit(path)
    if size > limit:
        _pass(stream, size)
        return _Refused(errno.EFBIG, f"more than {limit} bytes")
    data = stream.take(-size % _BLOCK + size)
    if len(data) < size:
        raise InputError("the archive is cut off within a member")
    return data[:size]


def _pass(stream: _Stream, size: int) -> None:
    if not stream.skip(size):
        raise InputError("the archive is cut off within a member")
    _pad(stream, size)


def _pad(stream: _Stream, size: int) -> None:
    if size % _BLOCK:
        stream.take(_BLOCK - size % _BLOCK)


def _members(stream: _Stream, shared: dict[str, bytes]) -> Iterator[tuple[str, bytes, int, str]]:
    """Name, type, size and link target of each member, long names joined; its data is the reader's to take.

    `shared`: filled with what pax headers say of all members that follow.
    """
    first = True
    own: dict[str, bytes] = {}
    while True:
        header = stream.take(_BLOCK)
        if not header:
            if first:
                raise InputError("neither a tar archive nor a folder: the file is empty")
            return  # tar(1) accepts an archive without its closing blocks
        if header[0] == 0 and header.count(0) == len(header):
            if first:
                _only_zeros(stream)
            return
        if len(header) < _BLOCK or not _checked(header):
            if first:
                raise InputError("neither a tar archive (plain or packed by gzip, bzip2, xz, zstd) nor a folder")
            raise InputError("the archive is cut off or damaged: a member's header does not add up")
        first = False
        type_ = header[156:157]
        size = _number(header[124:136])
        if type_ in b"LKxgX":
            if size > _MAX_PAX:
                raise InputError(f"a header of the archive has more than {_MAX_PAX} bytes")
            data = stream.take(size)
            if len(data) != size:
                raise InputError("the archive is cut off within a header")
            _pad(stream, size)
            if type_ == b"L":
                own["path"] = data.partition(b"\0")[0]
            elif type_ == b"K":
                own["linkpath"] = data.partition(b"\0")[0]
            else:
                (shared if type_ == b"g" else own).update(_pax(data))
            continue
        if type_ == b"S":
            extended = header[482]
            while extended:  # old GNU sparse maps go on in blocks of their own
                block = stream.take(_BLOCK)
                extended = block[504] if len(block) == _BLOCK else 0
        meta = {**shared, **own} if shared else own
        sparse, name, link = False, None, None
        if meta:
            sparse = any(key.startswith("GNU.sparse.") for key in meta)
            name = meta.get("GNU.sparse.name") or meta.get("path")
            link = meta.get("linkpath")
        if name is None:
            name = header[:100].partition(b"\0")[0]
            if header[257:263] == b"ustar\0" and header[345]:
                name = header[345:500].partition(b"\0")[0] + b"/" + name
        if link is None:
            link = header[157:257].partition(b"\0")[0]
        if "size" in meta:
            try:
                size = int(meta["size"])
            except ValueError:
                size = -1
        if size < 0:
            raise InputError("a member of the archive has no valid size")
        if type_ in b"123456":
            size = size if type_ in b"1" and "size" in meta else 0  # pax lets a hard link carry data
        yield _text(name), b"S" if sparse else type_, size, _text(link)
        if own:
            own = {}


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _only_zeros(stream: _Stream) -> None:
    while rest := stream.take(_CHUNK):
        if rest.count(0) != len(rest):
            raise InputError("neither a tar archive nor a folder")


def _checked(header: bytes) -> bool:
    """The header's sum: all bytes, its own eight as blanks; some old tars summed them as signed.

    The low half of Adler-32 is one more than the sum modulo 65521 (RFC 1950), at C's speed.
    """
    try:
        wanted = _number(header[148:156])
    except InputError:
        return False
    total = (zlib.adler32(header[:148] + header[156:]) & 0xFFFF) - 1 + _BLANK_SUM
    if (total - wanted) % _ADLER == 0:
        return True
    return (total - 256 * sum(byte > 127 for byte in header[:148] + header[156:]) - wanted) % _ADLER == 0


def _number(field: bytes) -> int:
    """Octal digits, or GNU's base-256 for what does not fit."""
    if field[0] in (0x80, 0xFF):
        return int.from_bytes(field[1:], "big") if field[0] == 0x80 else -1
    digits = field.strip(b" \0")
    try:
        return int(digits, 8) if digits else 0
    except ValueError:
        raise InputError("the archive is damaged: a number in a header is not octal") from None


def _pax(data: bytes) -> dict[str, bytes]:
    """`LENGTH KEY=VALUE` lines; only names, sizes and the marks of sparse members matter here."""
    found: dict[str, bytes] = {}
    at = 0
    while at < len(data):
        blank = data.find(b" ", at, at + 20)
        try:
            length = int(data[at:blank]) if blank > 0 else 0
        except ValueError:
            length = 0
        if length <= blank - at or at + length > len(data):
            if data[at:].strip(b"\0\n"):
                raise InputError("the archive is damaged: a pax header does not add up")
            break
        key, _, value = data[blank + 1 : at + length - 1].partition(b"=")
        if key in (b"path", b"linkpath", b"size") or key.startswith(b"GNU.sparse."):
            found[key.decode("utf-8", "replace")] = value
        at += length
    return found

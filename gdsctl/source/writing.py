"""A snapshot onto disk: a folder, or a tar archive whose suffix names its packing."""

from __future__ import annotations

import bz2
import calendar
import gzip
import io
import lzma
import os
import posixpath
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

import msgspec

from gdsctl.errors import RefusedError
from gdsctl.source.capture import Capture, capture_of
from gdsctl.source.record import Recorder
from gdsctl.source.snapshot import answer_file

_SUFFIXES = (".tar", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst")


def write_snapshot(recorder: Recorder, out_path: str, *, redact: bool = False) -> None:
    """Write what a Recorder heard to `out_path`, a folder or an archive by its suffix; see `write_capture`."""
    capture = capture_of(recorder)
    if redact:
        from gdsctl.source.redact import redacted

        capture = redacted(capture)
    write_capture(capture, out_path)


def write_capture(capture: Capture, out_path: str) -> None:
    """Write a snapshot under a temporary name beside `out_path` and rename it; an end in between leaves nothing behind.

    Raises RefusedError where something stands at `out_path` already or the system refuses.
    """
    out = out_path.rstrip("/") or "/"
    archive = out.endswith(_SUFFIXES)
    try:
        if os.path.lexists(out) and (archive or not os.path.isdir(out) or os.listdir(out)):
            raise RefusedError(f"{out} exists already; nothing was written")
        if archive:
            _write_archive(capture, out)
        else:
            _write_folder(capture, out)
    except OSError as error:
        raise RefusedError(f"{out}: {error.strerror or error}") from error


def _members(capture: Capture) -> Iterator[tuple[str, bytes | None, str]]:
    """Path below the snapshot, contents or None for a link, and the link's relative target; manifest first, rest sorted."""
    yield "manifest.json", msgspec.json.format(msgspec.json.encode(capture.manifest), indent=1) + b"\n", ""
    members: dict[str, tuple[bytes | None, str]] = {}
    for name, entry in capture.manifest.commands.items():
        members[f"commands/{name}.json"] = (msgspec.json.encode(entry) + b"\n", "")
    for name, output in capture.outputs.items():
        members[f"commands/{name}.stdout"] = (output.stdout.encode("utf-8", "surrogateescape"), "")
        members[f"commands/{name}.stderr"] = (output.stderr.encode("utf-8", "surrogateescape"), "")
    for name, answer in capture.answers.items():
        members[answer_file(name)] = (msgspec.json.format(msgspec.json.encode(answer), indent=1) + b"\n", "")
    for path, content in capture.files.items():
        members["root" + _inside(path)] = (content, "")
    for path, target in capture.links.items():
        _inside(path)
        members["root" + path] = (None, posixpath.relpath(target, posixpath.dirname(path)))
    for path in sorted(members):
        yield path, *members[path]


def _inside(path: str) -> str:
    if not path.startswith("/") or posixpath.normpath(path) != path:
        raise AssertionError(f"not a canonical path: {path!r}")  # a Source broke its promise; never write outside
    return path


def _write_folder(capture: Capture, out: str) -> None:
    parent, name = os.path.split(os.path.abspath(out))
    temporary = tempfile.mkdtemp(prefix=f".{name}.", suffix=".tmp", dir=parent)
    try:
        made = set()
        for path, content, target in _members(capture):
            place = f"{temporary}/{path}"
            folder = os.path.dirname(place)
            if folder not in made:
                os.makedirs(folder, exist_ok=True)
                made.add(folder)
            if content is None:
                os.symlink(target, place)
                continue
            with open(place, "xb") as file:
                file.write(content)
                if (
                    path == "manifest.json"
                ):  # without it the folder is no snapshot; syncing each attribute takes minutes
                    file.flush()
                    os.fsync(file.fileno())
        os.rename(temporary, out)  # refuses where another folder was filled meanwhile
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _write_archive(capture: Capture, out: str) -> None:
    parent, name = os.path.split(os.path.abspath(out))
    descriptor, temporary = tempfile.mkstemp(prefix=f".{name}.", suffix=".tmp", dir=parent)
    try:
        with open(descriptor, "wb") as raw:
            seconds = _seconds(capture.manifest.captured_at)
            with _packed(raw, out, seconds) as packed, tarfile.open(fileobj=packed, mode="w|") as tar:
                for path, content, target in _members(capture):
                    tar.addfile(*_member(path, content, target, seconds))
            raw.flush()
            os.fsync(raw.fileno())
        try:
            os.link(temporary, out)  # unlike rename, never in the place of another
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links
            if os.path.lexists(out):
                raise
            os.rename(temporary, out)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)


def _member(path: str, content: bytes | None, target: str, seconds: int) -> tuple[tarfile.TarInfo, IO[bytes] | None]:
    info = tarfile.TarInfo(path)
    info.mtime = seconds
    info.mode = 0o644
    if content is None:
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, target, 0o777
        return info, None
    info.size = len(content)
    return info, io.BytesIO(content)


@contextmanager
def _packed(raw: IO[bytes], out: str, seconds: int) -> Iterator[IO[bytes]]:
    packer: Any
    if out.endswith(".gz"):
        packer = gzip.GzipFile("", "wb", fileobj=raw, mtime=seconds)
    elif out.endswith(".bz2"):
        packer = bz2.BZ2File(raw, "wb")
    elif out.endswith(".xz"):
        packer = lzma.LZMAFile(raw, "wb")  # noqa: SIM115 - closed below with the others
    elif out.endswith(".zst"):
        import zstandard

        packer = zstandard.ZstdCompressor(level=10).stream_writer(raw, closefd=False)
    else:
        yield raw
        return
    with packer:
        yield packer


def _seconds(captured_at: str | None) -> int:
    """Unix time of `2025-01-31T12:00:00Z`; 0 for a capture that does not say."""
    try:
        return calendar.timegm(time.strptime(captured_at or "", "%Y-%m-%dT%H:%M:%SZ"))
    except ValueError:
        return 0

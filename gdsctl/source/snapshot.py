"""A captured machine: `manifest.json`, `root/...`, `commands/...`, and the libraries' answers."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import msgspec

from gdsctl.errors import InputError
from gdsctl.model.node import SourceInfo, Tool
from gdsctl.record import Record
from gdsctl.source.base import Missing, Output, Status, decode
from gdsctl.source.tree import Files, Tree

SNAPSHOT_SCHEMA = "1"

T = TypeVar("T")

ManifestStatus = Literal["ok", "absent", "denied", "error", "timeout", "skipped", "no_tool"]
_REPLAY: dict[ManifestStatus, Status] = {
    "absent": "absent",
    "denied": "denied",
    "error": "error",
    "timeout": "timeout",
    "skipped": "not_captured",
    "no_tool": "no_tool",
}


class CommandEntry(Record, frozen=True, kw_only=True):
    status: ManifestStatus
    exit_code: int | None = None
    detail: str = ""


class Manifest(Record, frozen=True, kw_only=True):
    """What was asked for and what came of it.

    Paths are canonical (links followed). `paths`: absolute path -> status; `details`: the system's words where they say more than the status;
    `listings`: folder -> names in it, for folders of which not every entry was read.
    """

    schema_version: str
    tool: Tool
    kind: Literal["snapshot", "assembled"] = "snapshot"
    host: str | None = None
    captured_at: str | None = None
    euid: int | None = None
    note: str | None = None
    redacted: bool = False
    paths: dict[str, ManifestStatus] = {}
    details: dict[str, str] = {}
    listings: dict[str, tuple[str, ...]] = {}
    commands: dict[str, CommandEntry] = {}
    answers: dict[str, CommandEntry] = {}


class SnapshotSource:
    """Replays a snapshot. A file that stands in `root/` is believed whatever the manifest says of it."""

    def __init__(self, files: Files, path: str) -> None:
        """`files`: the raw tree that holds manifest.json; `path`: what the user called it, for errors."""
        self._files = files
        _refuse_links(files, path)
        self._manifest = manifest_of(files, path)
        self._tree = Tree(Below(files, "root"))
        self._path = path
        manifest = self._manifest
        self._info = SourceInfo(
            kind=manifest.kind,
            path=path,
            host=manifest.host,
            captured_at=manifest.captured_at,
            euid=manifest.euid,
            note=manifest.note,
        )

    @property
    def info(self) -> SourceInfo:
        return self._info

    @property
    def manifest(self) -> Manifest:
        return self._manifest

    def read(self, path: str) -> bytes | Missing:
        reading = self._tree.read(path)
        return self._recorded(path, reading) if isinstance(reading, Missing) else reading

    def names(self, path: str) -> tuple[str, ...] | Missing:
        reading = self._tree.names(path)
        listed = self._manifest.listings.get(self._tree.canonical(path))
        if listed is not None:
            return listed if isinstance(reading, Missing) else tuple(sorted({*listed, *reading}))
        return self._recorded(path, reading) if isinstance(reading, Missing) else reading

    def real(self, path: str) -> str | Missing:
        reading = self._tree.real(path)
        if isinstance(reading, Missing):
            return self._tree.canonical(path) if self._stands(path) else self._recorded(path, reading)
        return reading

    def exists(self, path: str) -> bool | Missing:
        if self._tree.exists(path) is True or self._stands(path):
            return True
        recorded = self._recorded(path, Missing(status="absent"))
        return False if recorded.status == "absent" else recorded

    def run(self, name: str) -> Output | Missing:
        entry = self._manifest.commands.get(name)
        if entry is not None and entry.status != "ok":
            return Missing(status=_REPLAY[entry.status], detail=entry.detail)
        stdout = self._optional(f"commands/{name}.stdout")
        if stdout is None:
            return Missing(status="not_captured", detail=f"{name} was not run for this snapshot")
        stderr = self._optional(f"commands/{name}.stderr")
        return Output(
            stdout=decode(stdout),
            stderr=decode(stderr or b""),
            exit_code=entry.exit_code or 0 if entry else 0,
        )

    def ask(self, name: str) -> Any | Missing:
        entry = self._manifest.answers.get(name)
        if entry is not None and entry.status != "ok":
            return Missing(status=_REPLAY[entry.status], detail=entry.detail)
        place = answer_file(name)
        raw = self._optional(place)
        if raw is None:
            return Missing(status="not_captured", detail=f"{name} was not asked for this snapshot")
        try:
            return msgspec.json.decode(raw)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InputError(f"{place}: {error}", path=self._path) from error

    def _optional(self, place: str) -> bytes | None:
        try:
            return self._files.content(place) if self._files.kind(place) == "file" else None
        except OSError:
            return None

    def _recorded(self, path: str, reading: Missing) -> Missing:
        """What the manifest says became of a path that the tree lacks, or of the folder above it."""
        if reading.status not in ("absent", "not_captured"):
            return reading
        place = self._tree.canonical(path)
        status = self._manifest.paths.get(place)
        if status == "ok" and place in self._manifest.listings:
            return Missing(status="error", detail="EISDIR: Is a directory")
        if status == "ok":
            return Missing(status="not_captured", detail="the manifest lists it; its contents are not in the snapshot")
        if status is not None:
            return Missing(status=_REPLAY[status], detail=self._manifest.details.get(place, ""))
        if self._known_absent(place):
            return Missing(status="absent", detail="not in its folder's listing")
        return Missing(status="not_captured", detail="this snapshot did not ask for it")

    def _stands(self, path: str) -> bool:
        """Recorded as standing there, though nothing of it was kept."""
        place = self._tree.canonical(path)
        folder, _, name = place.rpartition("/")
        return self._manifest.paths.get(place) == "ok" or name in self._manifest.listings.get(folder or "/", ())

    def _known_absent(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        while folder:
            if folder in self._manifest.listings:
                return name not in self._manifest.listings[folder]
            if self._manifest.paths.get(folder) == "absent":
                return True
            folder, _, name = folder.rpartition("/")
        return False


class Below:
    """A raw tree's subfolder as a raw tree."""

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self._prefix = folder + "/"

    def kind(self, path: str) -> str:
        return self._files.kind(self._prefix + path if path else self._prefix[:-1])

    def content(self, path: str) -> bytes:
        return self._files.content(self._prefix + path)

    def listing(self, path: str) -> list[str]:
        return self._files.listing(self._prefix + path if path else self._prefix[:-1])

    def target(self, path: str) -> str:
        return self._files.target(self._prefix + path)


def answer_file(name: str) -> str:
    """Where a library's answer lies in a snapshot: NVML's at the top, the others beside the commands."""
    return "nvml.json" if name == "nvml" else f"commands/{name}.json"


def manifest_of(files: Files, path: str) -> Manifest:
    """The manifest of a snapshot; InputError with the name of the input where it is none."""
    try:
        raw = files.content("manifest.json")
    except OSError as error:
        raise InputError(f"manifest.json cannot be read: {error.strerror}", path=path) from error
    try:
        version = msgspec.json.decode(raw, type=_Version).schema_version
        if version != SNAPSHOT_SCHEMA:
            raise InputError(
                f"manifest.json has schema version {version!r}; this gdsctl reads {SNAPSHOT_SCHEMA!r}", path=path
            )
        return msgspec.json.decode(raw, type=Manifest)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InputError(f"manifest.json: {error}", path=path) from error


def _refuse_links(files: Files, path: str) -> None:
    """Below `root` a link stays inside; one in place of a snapshot's own parts would lead out of it."""
    for name in sorted({"manifest.json", "root", "commands", "nvml.json"}.intersection(files.listing(""))):
        if files.kind(name) == "link":
            raise InputError(f"{name} is a link, which no snapshot has there", path=path)


class _Version(msgspec.Struct):
    schema_version: str

"""A Source that writes down every answer it passes on, refusals included: so that a capture is what a run asked for."""

from __future__ import annotations

import re
from typing import Any

from gdsctl.model.node import SourceInfo
from gdsctl.source.base import Missing, Output, Source
from gdsctl.source.snapshot import CommandEntry, ManifestStatus

_PASSWORD = re.compile(rb"\b(pass(?:wd|word)?2?|secret)=[^,\s]*")  # of mount.cifs(8) and mount.ceph(8)


class Recorder:
    """Wraps a Source. What it heard stands in its public dictionaries, keyed by canonical path or by name.

    `links`: every link on the way to a path asked for -> its canonical target.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._places = {"": "", "/": "/"}
        self.files: dict[str, bytes] = {}
        self.links: dict[str, str] = {}
        self.listings: dict[str, tuple[str, ...]] = {}
        self.paths: dict[str, ManifestStatus] = {}
        self.details: dict[str, str] = {}
        self.outputs: dict[str, Output] = {}
        self.commands: dict[str, CommandEntry] = {}
        self.answers: dict[str, Any] = {}
        self.asked: dict[str, CommandEntry] = {}

    @property
    def info(self) -> SourceInfo:
        return self._source.info

    def read(self, path: str) -> bytes | Missing:
        reading = self._source.read(path)
        place = self._place(path)
        if not isinstance(reading, Missing):
            self.files[place] = _PASSWORD.sub(rb"\1=-", reading) if place == "/etc/fstab" else reading
        self._note(place, reading)
        return reading

    def names(self, path: str) -> tuple[str, ...] | Missing:
        reading = self._source.names(path)
        place = self._place(path)
        if not isinstance(reading, Missing):
            self.listings[place] = reading
        self._note(place, reading)
        return reading

    def real(self, path: str) -> str | Missing:
        reading = self._source.real(path)
        self._place(path)
        self._note(self._entry_place(path), reading)
        return reading

    def exists(self, path: str) -> bool | Missing:
        reading = self._source.exists(path)
        self._note(self._entry_place(path), Missing(status="absent") if reading is False else reading)
        return reading

    def run(self, name: str) -> Output | Missing:
        if name not in self.commands:
            reading = self._source.run(name)
            if isinstance(reading, Missing):
                self.commands[name] = _entry(reading)
            else:
                self.outputs[name] = reading
                self.commands[name] = CommandEntry(status="ok", exit_code=reading.exit_code)
            return reading
        return self.outputs[name] if name in self.outputs else _missing(self.commands[name])

    def ask(self, name: str) -> Any | Missing:
        if name not in self.asked:
            reading = self._source.ask(name)
            if isinstance(reading, Missing):
                self.asked[name] = _entry(reading)
            else:
                self.answers[name] = reading
                self.asked[name] = CommandEntry(status="ok")
            return reading
        return self.answers[name] if name in self.answers else _missing(self.asked[name])

    def _entry_place(self, path: str) -> str:
        """Where the name itself stands: its folder canonical, its own link not followed."""
        folder, _, name = path.rpartition("/")
        return f"{self._place(folder)}/{name}"

    def _place(self, path: str) -> str:
        """The canonical path; a link met on the way is written down."""
        known = self._places.get(path)
        if known is None:
            entry = self._entry_place(path)
            real = self._source.real(path)
            known = self._places[path] = entry if isinstance(real, Missing) else real
            if known != entry:
                self.links[entry] = known
        return known

    def _note(self, path: str, reading: Any) -> None:
        if not isinstance(reading, Missing):
            self.paths[path] = "ok"
            self.details.pop(path, None)
        elif self.paths.get(path) != "ok":
            self.paths[path] = _entry(reading).status
            if reading.detail:
                self.details[path] = reading.detail


def _entry(reading: Missing) -> CommandEntry:
    status: ManifestStatus = "skipped" if reading.status == "not_captured" else reading.status
    return CommandEntry(status=status, detail=reading.detail)


def _missing(entry: CommandEntry) -> Missing:
    status = entry.status
    if status == "ok":
        raise AssertionError("an answer that is ok is kept")
    return Missing(status="not_captured" if status == "skipped" else status, detail=entry.detail)

"""What a recording heard, ready to be redacted and written."""

from __future__ import annotations

from typing import Any

from gdsctl import __version__
from gdsctl.model.node import Tool
from gdsctl.record import Record
from gdsctl.source.base import Output
from gdsctl.source.record import Recorder
from gdsctl.source.snapshot import SNAPSHOT_SCHEMA, Manifest


class Capture(Record, frozen=True, kw_only=True):
    """What a snapshot is to hold. `files` and `links` by canonical absolute path; a link's target is absolute too."""

    manifest: Manifest
    files: dict[str, bytes] = {}
    links: dict[str, str] = {}
    outputs: dict[str, Output] = {}
    answers: dict[str, Any] = {}


def capture_of(recorder: Recorder) -> Capture:
    """What a Recorder heard, with its manifest. A capture of a capture keeps the first one's host and time."""
    info = recorder.info
    manifest = Manifest(
        schema_version=SNAPSHOT_SCHEMA,
        tool=Tool(name="gdsctl", version=__version__),
        kind="assembled" if info.kind == "assembled" else "snapshot",
        host=info.host,
        captured_at=info.captured_at,
        euid=info.euid,
        note=info.note,
        paths=dict(sorted(recorder.paths.items())),
        details=dict(sorted(recorder.details.items())),
        listings=dict(sorted(recorder.listings.items())),
        commands=dict(sorted(recorder.commands.items())),
        answers=dict(sorted(recorder.asked.items())),
    )
    return Capture(
        manifest=manifest,
        files=recorder.files,
        links=recorder.links,
        outputs=recorder.outputs,
        answers=recorder.answers,
    )

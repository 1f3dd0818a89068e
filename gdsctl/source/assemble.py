"""A snapshot from what somebody pasted: it knows what it was given and nothing else."""

from __future__ import annotations

import errno
import posixpath
import re
import time
from collections.abc import Iterable

from gdsctl import __version__, parse
from gdsctl.errors import InputError, RefusedError, UsageError
from gdsctl.model.node import Tool
from gdsctl.source import bug_report as report_text
from gdsctl.source import origin
from gdsctl.source.base import Output, decode
from gdsctl.source.capture import Capture
from gdsctl.source.snapshot import SNAPSHOT_SCHEMA, CommandEntry, Manifest, ManifestStatus
from gdsctl.source.tree import read_file
from gdsctl.source.writing import write_capture

_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_REPORT_LIMIT = 64 * 1024 * 1024  # packed, it has a few MB
_PARSED_FILES = {"/proc/self/mounts": "mounts", "/etc/cufile.json": "cufile-json", "/proc/modules": "proc-modules"}


def assemble(
    out: str,
    *,
    lspci: str | None = None,
    nvidia_smi_topo: str | None = None,
    gdscheck: str | None = None,
    nccl_topo: str | None = None,
    lsmod: str | None = None,
    mounts: str | None = None,
    dmesg: str | None = None,
    cufile_json: str | None = None,
    bug_report: str | None = None,
    files: Iterable[tuple[str, str]] = (),
    commands: Iterable[tuple[str, str]] = (),
) -> tuple[str, ...]:
    """Write a snapshot of kind `assembled` to `out`; each argument names a file that holds the output. Returns warnings.

    What is given by itself outranks the same found in a bug report. Nothing is written where an input is not valid:
    InputError for text that is not its tool's output and for texts of two machines, UsageError for a name or path that cannot be one, RefusedError
    where the system refuses or nothing was given.
    """
    outputs: dict[str, str] = {}
    contents: dict[str, bytes] = {}
    fates: dict[str, ManifestStatus] = {}
    host: str | None = None
    labels: dict[str, str] = {}
    if bug_report is not None:
        report = _report(bug_report)
        outputs |= report.outputs
        contents |= {path: text.encode("utf-8", "surrogateescape") for path, text in report.files.items()}
        fates |= {path: "denied" if fate == "denied" else "absent" for path, fate in report.fates.items()}
        host = report.host
        labels |= dict.fromkeys((*outputs, *contents), bug_report)
    given = {
        "lspci": lspci,
        "nvidia-smi-topo": nvidia_smi_topo,
        "gdscheck": gdscheck,
        "nccl-topo": nccl_topo,
        "lsmod": lsmod,
        "dmesg": dmesg,
    }
    for name, place in [*((name, place) for name, place in given.items() if place is not None), *commands]:
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} cannot be a command's name: small letters, digits and - only")
        text = decode(_bytes(place))
        _checked(name, text, place)
        outputs[name], labels[name] = text, place
    whole = {"/proc/self/mounts": mounts, "/etc/cufile.json": cufile_json}
    for path, place in [*((path, place) for path, place in whole.items() if place is not None), *files]:
        if not path.startswith("/") or posixpath.normpath(path) != path or path in ("/", "//"):
            raise UsageError(f"{path!r} is not an absolute path in its plain form")
        contents[path], labels[path] = _bytes(place), place
        if path in _PARSED_FILES:
            _checked(_PARSED_FILES[path], decode(contents[path]), place)
    if not outputs and not contents:
        raise UsageError("nothing to assemble: give at least one output or file")
    _no_file_is_a_folder(contents)
    texts = {name: (labels[name], text) for name, text in outputs.items()}
    texts |= {path: (labels[path], decode(content)) for path, content in contents.items()}
    if host is not None and bug_report is not None:
        texts.setdefault("/proc/sys/kernel/hostname", (bug_report, host))
    doubts = origin.contradictions(texts)
    if doubts and doubts[0].certain:
        raise InputError(doubts[0].said)
    warnings = tuple(doubt.said for doubt in doubts)
    paths: dict[str, ManifestStatus] = {path: fate for path, fate in fates.items() if path not in contents}
    paths |= dict.fromkeys(contents, "ok")
    manifest = Manifest(
        schema_version=SNAPSHOT_SCHEMA,
        tool=Tool(name="gdsctl", version=__version__),
        kind="assembled",
        host=host,
        captured_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        note="; ".join(("assembled from pasted outputs", *warnings)),
        paths=dict(sorted(paths.items())),
        commands={name: CommandEntry(status="ok") for name in sorted(outputs)},
    )
    write_capture(
        Capture(
            manifest=manifest,
            files=contents,
            outputs={name: Output(stdout=text) for name, text in outputs.items()},
        ),
        out,
    )
    return warnings


def _bytes(place: str, limit: int | None = None) -> bytes:
    try:
        return read_file(place) if limit is None else read_file(place, limit)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EISDIR, errno.EINVAL, errno.EFBIG):
            raise InputError(str(error.strerror).lower(), path=place) from error
        raise RefusedError(f"{place}: {error.strerror}") from error


def _report(place: str) -> report_text.BugReport:
    try:
        return report_text.split(report_text.unpacked(_bytes(place, _REPORT_LIMIT)))
    except InputError as error:
        raise error.at(place) from error


def _checked(kind: str, text: str, place: str) -> None:
    """Through the parser of this kind, if there is one."""
    if kind in parse.KINDS:
        try:
            parse.parser(kind)(text)
        except InputError as error:
            raise error.at(place) from error


def _no_file_is_a_folder(contents: dict[str, bytes]) -> None:
    for path in contents:
        folder = posixpath.dirname(path)
        while folder != "/":
            if folder in contents:
                raise UsageError(f"{folder} cannot be a file and the folder of {path}")
            folder = posixpath.dirname(folder)

"""nvidia-bug-report.log[.gz] taken apart: what nvidia-bug-report.sh wrote down of files and commands.

The script (shipped with every driver) separates sections by a line of underscores. A file is `*** PATH`, `*** ls: ...`
and its contents; a command is its line, a blank one and its output; older scripts wrote a file's path without stars.
"""

from __future__ import annotations

import gzip
import io
import posixpath
import re
import zlib
from collections.abc import Iterator

from gdsctl.errors import InputError
from gdsctl.record import Record
from gdsctl.source.base import decode

MAX_BYTES = 256 * 1024 * 1024
"""Unpacked; a report with debug dumps of 16 GPUs has about 50 MB."""

_RULE = re.compile(r"^_{20,}$")
_FILE = re.compile(r"^\*\*\* (/\S.*)$")
_OLD_FILE = re.compile(r"^(/(?:proc|sys|etc)/\S+)$")
_FATE = re.compile(r"^(?P<path>/.*?) (?P<what>does not exist|is not readable)$")
_COMMAND = re.compile(r"^(?:\S*/)?(?:lspci|nvidia-smi) -?\w.*$")
_PARAMETER = re.compile(r"^(/sys/module/[\w-]+/parameters/\w+):(.*)$")
_PATH = re.compile(r"(?:/[!-.0-~]{1,255}){1,40}")
_WANTED = ("/proc/", "/etc/", "/sys/module/", "/sys/kernel/", "/sys/devices/system/node/")
"""Not /sys/bus/pci: a report holds two attributes of NVIDIA's functions alone, which would pass for the whole bus."""


class BugReport(Record, frozen=True, kw_only=True):
    """`files`: absolute path -> contents; `fates`: path -> absent or denied; `outputs`: command's name -> its output."""

    files: dict[str, str]
    fates: dict[str, str]
    outputs: dict[str, str]
    host: str | None


def unpacked(raw: bytes) -> str:
    """The report's text, gunzipped where need be: the script appends one gzip stream for each section."""
    if not raw.startswith(b"\x1f\x8b"):
        return decode(raw)
    parts: list[bytes] = []
    left = MAX_BYTES
    with gzip.GzipFile(fileobj=io.BytesIO(raw)) as file:
        try:
            while part := file.read1(1 << 20):
                parts.append(part)
                left -= len(part)
                if left < 0:
                    raise InputError(f"unpacks to more than {MAX_BYTES >> 20} MiB")
        except EOFError:
            pass  # the script was ended while it wrote; what came before holds
        except (gzip.BadGzipFile, zlib.error) as error:
            raise InputError(f"the gzip data is damaged: {error}") from error
    return decode(b"".join(parts))


def split(text: str) -> BugReport:
    """Files and outputs of a report. Raises InputError for text that is no such report."""
    if "NVIDIA bug report log file" not in text[:10000]:
        raise InputError("not an nvidia-bug-report.log: its first lines do not say so", line=1)
    report = BugReport(files={}, fates={}, outputs={}, host=_host(text[:10000]))
    for section in _sections(text):
        _parameters(report, section) or _file(report, section) or _commands(report, section)
    return report


def _host(head: str) -> str | None:
    match = re.search(r"^uname: Linux (\S+) ", head, re.MULTILINE)
    return match[1] if match else None


def _sections(text: str) -> Iterator[list[str]]:
    lines: list[str] = []
    for line in text.split("\n"):
        if _RULE.match(line):
            yield lines
            lines = []
        elif lines or line:
            lines.append(line)
    yield lines


def _file(report: BugReport, section: list[str]) -> bool:
    match = (_FILE.match(section[0]) or _OLD_FILE.match(section[0])) if section else None
    if match is None:
        return False
    fate = _FATE.match(match[1])
    path = posixpath.normpath(fate["path"] if fate else match[1])
    if not path.startswith(_WANTED) or not _PATH.fullmatch(path):
        return True
    if fate:
        report.fates.setdefault(path, "absent" if fate["what"] == "does not exist" else "denied")
        return True
    body = section[2:] if len(section) > 1 and section[1].startswith("*** ls:") else section[1:]
    while body and not body[-1]:  # the script's own blank lines before the next rule
        body.pop()
    report.files[path] = "".join(line + "\n" for line in body)
    return True


def _parameters(report: BugReport, section: list[str]) -> bool:
    """`grep -Hr . /sys/module/*/parameters/`: one attribute a line."""
    found = {match[1]: match[2] + "\n" for match in map(_PARAMETER.match, section) if match}
    report.files.update(found)
    return bool(found)


def _commands(report: BugReport, section: list[str]) -> bool:
    """One section holds several commands at times; each begins with its own line."""
    starts = [number for number, line in enumerate(section) if _COMMAND.match(line) or (number, line) == (0, "dmesg:")]
    for start, end in zip(starts, [*starts, len(section)][1:], strict=True):
        name = _name(section[start])
        body = section[start + 1 : end]
        if body and not body[0]:
            del body[0]
        while body and not body[-1]:
            body.pop()
        if name and body:
            report.outputs.setdefault(name, "".join(line + "\n" for line in body))
    return bool(starts)


def _name(line: str) -> str | None:
    """What a snapshot calls the output of this command line, where gdsctl reads it."""
    if line == "dmesg:":
        return "dmesg"
    program, _, arguments = line.partition(" ")
    tool = program.rpartition("/")[2]
    if tool == "lspci":  # -nn and -nntv come before; only the full one tells links and ACS
        return "lspci" if re.fullmatch(r"-\w*vv\w*(?: -\w+)*", arguments) else None
    if tool == "nvidia-smi":
        return {
            "topo -m": "nvidia-smi-topo",
            "topo --matrix": "nvidia-smi-topo",
            "nvlink --status": "nvidia-smi-nvlink",
            "nvlink -s": "nvidia-smi-nvlink",
        }.get(arguments)
    return None

"""What the last cuFile process of this boot wrote, where the node or the user says in which file.

The library writes to `./cufile.log` by default, which nobody can look for; with `logging.dir` to a file for each process
(`cufile_PID_TIME.log`), with CUFILE_LOGFILE_PATH to that one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta

from gdsctl.collect.reader import Reader
from gdsctl.model.cufile_run import CufileRun
from gdsctl.model.software import CufileConfig
from gdsctl.parse import cufile_json, cufile_log
from gdsctl.parse.cufile_log import CufileLog
from gdsctl.source.base import Missing

ENV_LOG = "CUFILE_LOGFILE_PATH"
_OF_A_PROCESS = re.compile(r"cufile_\d+_[\d.:_-]+\.log")
_MOST_FILES = 16
_FARTHEST_ZONE = timedelta(hours=14)  # the log has local time, without saying which


def collect(reader: Reader, config: CufileConfig) -> CufileRun | None:
    """None, without a gap, where no log is named or what it holds is older than the machine's last boot."""
    runs = [log.runs[-1] for log in _logs(reader, config) if not isinstance(log, Missing) and log.runs]
    last = max(runs, key=lambda run: run.last, default=None)
    return None if last is None or _before_boot(reader, last) else last


def _logs(reader: Reader, config: CufileConfig) -> Iterator[CufileLog | Missing]:
    if reader.source.info.kind == "assembled":
        yield reader.printed("cufile-log", cufile_log.parse)
    if path := config.env.get(ENV_LOG):
        yield reader.parsed(path, cufile_log.parse) if path.startswith("/") else Missing(status="not_captured")
        return
    for folder in _folders(config):
        names = reader.source.names(folder)
        if not isinstance(names, Missing):
            ours = [name for name in names if _OF_A_PROCESS.fullmatch(name)]
            yield from (reader.parsed(f"{folder}/{name}", cufile_log.parse) for name in ours[-_MOST_FILES:])


def _folders(config: CufileConfig) -> Iterator[str]:
    """`logging.dir` of the file that is read last and has one."""
    for text in reversed(config.texts.values()):
        root = cufile_json.parse(text).value
        logging = root.get("logging") if isinstance(root, dict) else None
        folder = logging.get("dir") if isinstance(logging, dict) else None
        if isinstance(folder, str) and folder.startswith("/") and "\0" not in folder:
            yield folder.rstrip("/")
            return


def _before_boot(reader: Reader, run: CufileRun) -> bool:
    """Of another boot than the one that was captured: drivers and modules may have been others."""
    try:
        now = datetime.fromisoformat((reader.source.info.captured_at or "").removesuffix("Z"))
        last = datetime.fromisoformat(run.last)
        booted = now - timedelta(seconds=float((reader.value("/proc/uptime") or "").split(" ")[0]))
    except (ValueError, OverflowError):
        return False
    return last < booted - _FARTHEST_ZONE

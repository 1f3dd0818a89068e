"""The configuration of one run of libcufile, in a folder of its own.

It is the node's with statistics and a log of this run; `/etc/cufile.json` is merged below it by the library itself.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import tempfile
from collections.abc import Mapping
from typing import Any

from gdsctl.errors import InputError
from gdsctl.parse import cufile_log
from gdsctl.probe.target import own_folder

STATS_LEVEL = 3
_OVERRULING = ("CUFILE_ALLOW_COMPAT_MODE", "CUFILE_FORCE_COMPAT_MODE", "CUFILE_LOGGING_LEVEL", "CUFILE_STATS_LEVEL")
_MOST_LOG = 16 << 20


class CufileSettings:
    """`strict`: without compat mode; `compat`: in nothing but compat mode.

    Its folder is gone when it is closed, or when the process ends, however it ends.

    `environment`: what makes the library of a process use them, None to be removed; it overrules a cufile.json.
    """

    def __init__(self, configuration: dict[str, Any], *, strict: bool, compat: bool = False) -> None:
        """`configuration`: merged values of the node's cufile.json."""
        self._stack = contextlib.ExitStack()
        self._folder = self._stack.enter_context(own_folder(tempfile.gettempdir()))
        self._log = os.path.join(self._folder, "cufile.log")
        path = os.path.join(self._folder, "cufile.json")
        try:
            merged = private_configuration(configuration, self._folder, strict=strict, compat=compat)
            with open(path, "w", encoding="utf-8") as file:
                json.dump(merged, file)
        except BaseException:
            self.close()
            raise
        self.compat_allowed: bool = merged["properties"]["allow_compat_mode"]
        self.environment: Mapping[str, str | None] = {
            **dict.fromkeys(_OVERRULING),
            "CUFILE_ENV_PATH_JSON": path,
            "CUFILE_LOGFILE_PATH": self._log,
        }

    def log_lines(self) -> tuple[str, ...]:
        """Errors and warnings of the library's log of this run."""
        try:
            with open(self._log, encoding="utf-8", errors="backslashreplace") as file:
                entries = cufile_log.parse(file.read(_MOST_LOG)).entries
        except (OSError, InputError):
            return ()
        return tuple(
            dict.fromkeys(f"{entry.level} {entry.text}" for entry in entries if entry.level in ("ERROR", "WARN"))
        )

    def close(self) -> None:
        self._stack.close()


def private_configuration(merged: dict[str, Any], folder: str, *, strict: bool, compat: bool = False) -> dict[str, Any]:
    """The node's configuration with statistics and a log for this run.

    `strict`: compat mode forbidden, not forced; `compat`: forced (force_compat_mode, libcufile 1.11 and newer at least).
    """
    values = copy.deepcopy(merged)
    for section in ("profile", "logging", "properties"):
        values.setdefault(section, {})
    values["profile"]["cufile_stats"] = STATS_LEVEL
    values["logging"] |= {"dir": folder, "level": "INFO"}
    values["properties"].setdefault("allow_compat_mode", True)
    if strict:
        values["properties"] |= {"allow_compat_mode": False}
        values["properties"].pop("force_compat_mode", None)
    if compat:
        values["properties"] |= {"allow_compat_mode": True, "force_compat_mode": True}
    return values

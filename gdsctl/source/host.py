"""The machine as a process sees it: the only module that imports psutil."""

from __future__ import annotations

import os
import resource
import time
from typing import Any

from gdsctl.source.base import Missing
from gdsctl.source.deadline import within

_PATIENCE_S = 10.0
_PROCESSES_S = 1.0  # a node with 100,000 processes shall not hold up the report


def ask() -> dict[str, Any] | Missing:
    """Facts of the running machine; no_tool without psutil.

    {euid, hostname, machine, cpu_count, memory_bytes, partitions [{device, mountpoint, fstype, opts}], cufile_environment
    {NAME: value} (CUFILE_* and CUDA_VISIBLE_DEVICES), toolkit_environment (NVIDIA_GDS and NVIDIA_MOFED, where set),
    memlock_bytes {soft, hard} (null: unlimited), cufile_processes [{pid, name}]} (processes that have libcufile mapped, as
    far as they let us see and one second goes).
    """
    return within(_PATIENCE_S, "host", _asked)


def _asked() -> dict[str, Any] | Missing:
    try:
        import psutil  # noqa: TID251 - here and nowhere else
    except ImportError as error:
        return Missing(status="no_tool", detail=f"psutil: {error}")
    uname = os.uname()
    soft, hard = (
        None if limit == resource.RLIM_INFINITY else limit for limit in resource.getrlimit(resource.RLIMIT_MEMLOCK)
    )
    return {
        "euid": os.geteuid(),
        "hostname": uname.nodename,
        "machine": uname.machine,
        "cpu_count": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "partitions": [
            {"device": part.device, "mountpoint": part.mountpoint, "fstype": part.fstype, "opts": part.opts}
            for part in psutil.disk_partitions(all=True)
        ],
        "cufile_environment": {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith("CUFILE_") or name == "CUDA_VISIBLE_DEVICES"
        },
        "toolkit_environment": {
            name: os.environ[name] for name in ("NVIDIA_GDS", "NVIDIA_MOFED") if name in os.environ
        },
        "memlock_bytes": {"soft": soft, "hard": hard},
        "cufile_processes": _cufile_processes(psutil),
    }


def _cufile_processes(psutil: Any) -> list[dict[str, Any]]:
    found = []
    until = time.monotonic() + _PROCESSES_S
    for process in psutil.process_iter(["pid", "name"]):
        if time.monotonic() > until:
            break
        try:
            with open(f"/proc/{process.info['pid']}/maps", encoding="utf-8", errors="replace") as maps:
                if "libcufile" in maps.read():
                    found.append({"pid": process.info["pid"], "name": process.info["name"]})
        except OSError:
            continue  # gone, or another user's
    return found

"""nvidia-fs as it runs: /proc/driver/nvidia-fs, its device nodes, its parameters.

Where these were not captured, gdscheck's report tells whether it is loaded, its version, and the bridges it lists.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from gdsctl.collect import modules
from gdsctl.collect.reader import Reader
from gdsctl.model.software import NvidiaFs
from gdsctl.parse import late, nvidia_fs_proc
from gdsctl.source.base import Missing

if TYPE_CHECKING:
    from gdsctl.parse.gdscheck import Gdscheck
    from gdsctl.parse.nvidia_fs_stats import NvfsStats

_FOLDER = "/proc/driver/nvidia-fs"
_GDSCHECK = "gdscheck"
_NODE = re.compile(r"nvidia-fs\d+")


def collect(reader: Reader) -> NvidiaFs:
    """Where nvidia-fs is known not to be loaded its files are None without a gap; device nodes are looked for anyway."""
    stands = _stands(reader)
    if isinstance(stands, Missing):
        return _from_gdscheck(reader, stands)
    if not stands:
        return NvidiaFs(loaded=False, device_nodes=_nodes(reader))
    stats: NvfsStats | Missing = reader.parsed(f"{_FOLDER}/stats", late("nvidia-fs-stats"))
    version = reader.parsed(f"{_FOLDER}/version", nvidia_fs_proc.parse_version)
    registered = reader.parsed(f"{_FOLDER}/modules", nvidia_fs_proc.parse_modules)
    bridges = reader.parsed(f"{_FOLDER}/bridges", nvidia_fs_proc.parse_bridges)
    distance = reader.parsed(f"{_FOLDER}/peer_distance", nvidia_fs_proc.parse_peer_distance)
    sources: dict[str, str] = {}
    printed = _bridges(_report(reader)) if _uncaptured(bridges) else None
    if printed is not None:
        bridges, sources["acs_bridges"] = nvidia_fs_proc.NvfsBridges(bridges=printed), _GDSCHECK
    for field, reading in (
        ("registered", registered),
        ("acs_bridges", bridges),
        ("stats", stats),
        ("peer_distance", distance),
    ):
        if isinstance(reading, Missing):
            file = {"registered": "modules", "acs_bridges": "bridges"}.get(field, field)
            reader.gap("nvidia_fs", field, reading, settle_with=f"cat {_FOLDER}/{file}")
    return NvidiaFs(
        loaded=True,
        version=_version(reader, version, stats, sources),
        device_nodes=_nodes(reader),
        registered=None if isinstance(registered, Missing) else tuple(registered.modules),
        acs_bridges=None if isinstance(bridges, Missing) else bridges.bridges,
        stats=None if isinstance(stats, Missing) else msgspec.to_builtins(stats),
        rw_stats_enabled=_rw_stats(reader, stats),
        peer_distance=None
        if isinstance(distance, Missing)
        else tuple(msgspec.to_builtins(row) for row in distance.rows),
        sources=sources,
    )


def _stands(reader: Reader) -> bool | Missing:
    """A module of its own, never built in: its folders in /proc and /sys stand and fall with it, and so does its row."""
    places = [reader.source.exists(path) for path in (_FOLDER, "/sys/module/nvidia_fs")]
    if True in places:
        return True
    rows, why = modules.listed(reader)
    if why is None or "nvidia_fs" in rows:
        return "nvidia_fs" in rows
    # Every kernel has these two folders: where neither stands nobody looked.
    looked = [
        place
        for path, place in zip(("/proc/driver", "/sys/module"), places, strict=True)
        if place is False and reader.source.exists(path) is True
    ]
    return False if looked else places[0] if isinstance(places[0], Missing) else why


def _report(reader: Reader) -> Gdscheck | None:
    report: Gdscheck | Missing = reader.printed("gdscheck", late("gdscheck"))
    return None if isinstance(report, Missing) else report


def _uncaptured(reading: object) -> bool:
    return isinstance(reading, Missing) and reading.status == "not_captured"


def _bridges(report: Gdscheck | None) -> tuple[str, ...] | None:
    """`Found ACS enabled for switch ...`; none of these lines means no bridge where the rows beside them are there."""
    if report is None:
        return None
    whole = bool(report.nvidia_fs_version and report.platform_info.iommu and not report.truncated)
    return report.platform_info.acs_bridges if report.platform_info.acs_bridges or whole else None


def _from_gdscheck(reader: Reader, why: Missing) -> NvidiaFs:
    """What gdscheck's report says of it: the loaded version in its head, and the bridges that nvidia-fs lists."""
    report = _report(reader)
    version = report.nvidia_fs_version if report is not None else None
    # The head names the loaded driver's version or, without one, only libcufile's side of it.
    headed = report is not None and bool(report.nvidia_fs_minimum or report.libcufile_interface)
    loaded = True if version else False if headed else None
    told = {"loaded": loaded, "version": version, "acs_bridges": _bridges(report)}
    for field in ("loaded", "version", "registered", "acs_bridges", "stats", "rw_stats_enabled", "peer_distance"):
        if told.get(field) is None and loaded is not False:
            settle = f"ls {_FOLDER}" if field == "loaded" else f"cat {_FOLDER}/*"
            reader.gap("nvidia_fs", field, why, settle_with=settle)
    return NvidiaFs(
        loaded=loaded,
        version=version,
        device_nodes=_nodes(reader),
        acs_bridges=_bridges(report),
        sources={field: _GDSCHECK for field, value in told.items() if value is not None},
    )


def _version(
    reader: Reader, version: str | Missing | None, stats: NvfsStats | Missing, sources: dict[str, str]
) -> str | None:
    """The most precise of three: the file `version` says 2.28 where stats and the module say 2.28.4."""
    told = [
        None if isinstance(stats, Missing) else stats.driver_version,
        reader.value("/sys/module/nvidia_fs/version"),
        None if isinstance(version, Missing) else version,
    ]
    known = [text for text in told if text]
    report = _report(reader) if not known and _uncaptured(version) else None
    if report is not None and report.nvidia_fs_version:
        known, sources["version"] = [report.nvidia_fs_version], _GDSCHECK
    if not known:
        why = version if isinstance(version, Missing) else Missing(status="error", detail="no version in the file")
        reader.gap("nvidia_fs", "version", why, settle_with=f"cat {_FOLDER}/version")
    return max(known, key=lambda text: text.count("."), default=None)


def _rw_stats(reader: Reader, stats: NvfsStats | Missing) -> bool | None:
    parameter = reader.text("/sys/module/nvidia_fs/parameters/rw_stats_enabled")
    if not isinstance(parameter, Missing) and parameter.strip() in ("0", "1"):
        return parameter.strip() == "1"
    if not isinstance(stats, Missing) and stats.io_stats_enabled is not None:
        return stats.io_stats_enabled
    why = parameter if isinstance(parameter, Missing) else Missing(status="error", detail="neither 0 nor 1")
    reader.gap(
        "nvidia_fs", "rw_stats_enabled", why, settle_with="cat /sys/module/nvidia_fs/parameters/rw_stats_enabled"
    )
    return None


def _nodes(reader: Reader) -> tuple[str, ...] | None:
    """Paths of /dev/nvidia-fsN by N."""
    names = reader.source.names("/dev")
    if isinstance(names, Missing):
        reader.gap("nvidia_fs", "device_nodes", names, settle_with="ls /dev/nvidia-fs*")
        return None
    nodes = [name for name in names if _NODE.fullmatch(name)]
    return tuple(f"/dev/{name}" for name in sorted(nodes, key=lambda name: (len(name), name)))

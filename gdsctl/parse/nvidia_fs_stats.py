"""/proc/driver/nvidia-fs/stats of nvidia-fs 2.x. Layout: nvidia-fs, src/nvfs-stat.c and src/nvfs-proc.c."""

from __future__ import annotations

import re

import msgspec

from gdsctl.errors import InputError
from gdsctl.model.pci import canonical_address
from gdsctl.parse import pasted, terminal
from gdsctl.record import Record, Warned


class NvfsGpuStats(Record, frozen=True, kw_only=True):
    """`cross_root_port_percent` only with peer statistics on."""

    address: str
    uuid: str | None = None
    registered_mib: int | None = None
    cache_mib: int | None = None
    max_pinned_mib: int | None = None
    cross_root_port_percent: int | None = None


class NvfsStats(Record, frozen=True, kw_only=True):
    """Counters by row; a counter that the text does not hold is None, and a row that it does not hold has Nones only.

    With `io_stats_enabled` false the driver counts no reads and writes: what it then prints as 0 says nothing.
    """

    gds_version: str | None = None
    driver_version: str | None = None
    nvfs_statistics_version: str | None = None
    peerdirect: bool | None = None
    io_stats_enabled: bool | None = None
    peer_io_stats_enabled: bool | None = None
    logging_level: str | None = None
    active_shadow_buffer_mib: int | None = None
    active_processes: int | None = None
    batches: dict[str, int | None]
    reads: dict[str, int | None]
    sparse_reads: dict[str, int | None]
    writes: dict[str, int | None]
    mmap: dict[str, int | None]
    bar1_map: dict[str, int | None]
    error: dict[str, int | None]
    ops: dict[str, int | None]
    gpus: tuple[NvfsGpuStats, ...] = ()
    truncated: bool = False
    warnings: tuple[Warned, ...] = ()


# Row as printed -> (field, {counter as printed: name in the record}). Old drivers wrote MB for the same MiB.
_ROWS: dict[str, tuple[str, dict[str, str]]] = {
    "Batches": ("batches", {"n": "n", "ok": "ok", "err": "err", "Avg-Submit-Latency(usec)": "avg_submit_latency_us"}),
    "Reads": (
        "reads",
        {
            "n": "n",
            "ok": "ok",
            "err": "err",
            "readMiB": "mib",
            "readMB": "mib",
            "io_state_err": "io_state_err",
            "Bandwidth(MiB/s)": "bandwidth_mibs",
            "Bandwidth(MB/s)": "bandwidth_mibs",
            "Avg-Latency(usec)": "avg_latency_us",
        },
    ),
    "Sparse Reads": ("sparse_reads", {"n": "n", "io": "io", "holes": "holes", "pages": "pages"}),
    "Writes": (
        "writes",
        {
            "n": "n",
            "ok": "ok",
            "err": "err",
            "writeMiB": "mib",
            "writeMB": "mib",
            "io_state_err": "io_state_err",
            "pg-cache": "pg_cache",
            "pg-cache-fail": "pg_cache_fail",
            "pg-cache-eio": "pg_cache_eio",
            "Bandwidth(MiB/s)": "bandwidth_mibs",
            "Bandwidth(MB/s)": "bandwidth_mibs",
            "Avg-Latency(usec)": "avg_latency_us",
        },
    ),
    "Mmap": ("mmap", {"n": "n", "ok": "ok", "err": "err", "munmap": "munmap"}),
    "Bar1-map": (
        "bar1_map",
        {
            "n": "n",
            "ok": "ok",
            "err": "err",
            "free": "free",
            "callbacks": "callbacks",
            "active": "active",
            "delay-frees": "delay_frees",
        },
    ),
    "Error": (
        "error",
        {"cpu-gpu-pages": "cpu_gpu_pages", "sg-ext": "sg_ext", "dma-map": "dma_map", "dma-ref": "dma_ref"},
    ),
    "Ops": ("ops", {"Read": "read", "Write": "write", "BatchIO": "batch_io"}),
}
_GPU_COUNTERS = {
    "Registered_MiB": "registered_mib",
    "Registered_MB": "registered_mib",
    "Cache_MiB": "cache_mib",
    "Cache_MB": "cache_mib",
    "max_pinned_MiB": "max_pinned_mib",
    "max_pinned_MB": "max_pinned_mib",
    "cross_root_port(%)": "cross_root_port_percent",
}

_GDS = re.compile(r"\s*GDS Version\s*:\s*([\d.]{1,40})\s*", re.ASCII)
_STATISTICS = re.compile(r"\s*NVFS statistics\s*\(ver:\s*([\d.]{1,20})\)\s*", re.ASCII)
_DRIVER = re.compile(r"\s*NVFS Driver\s*\(version:\s*([\d.:]{1,40})\)\s*", re.ASCII)
_PEERDIRECT = re.compile(r"\s*Mellanox PeerDirect Supported\s*:\s*(True|False)\s*", re.IGNORECASE)
_ENABLED = re.compile(r"\s*IO stats\s*:\s*(Enabled|Disabled)(?:,\s*peer IO stats\s*:\s*(Enabled|Disabled))?,?\s*")
_LOGGING = re.compile(r"\s*Logging level\s*:\s*(\w{1,20})\s*", re.ASCII)
_SHADOW = re.compile(r"\s*Active Shadow-Buffer \(Mi?B\)\s*:\s*(\d{1,18})\s*", re.ASCII)
_PROCESSES = re.compile(r"\s*Active Process(?:es)?\s*:\s*(\d{1,18})\s*", re.ASCII)
_COUNTER = re.compile(r"([A-Za-z0-9][\w/()%-]{0,40})=[ \t]*(\d{1,18})(?!\S)", re.ASCII)
_GPU = re.compile(r"\s*GPU\s+([0-9a-fA-F:.]{7,20})\s+uuid:\s*(\S{1,64})\s*:(.*)", re.ASCII)


def _counters(cells: str, names: dict[str, str]) -> tuple[dict[str, int], str]:
    """(counters by field, what could not be read)."""
    found = {names[m[1]]: int(m[2]) for m in _COUNTER.finditer(cells) if m[1] in names}
    rest = _COUNTER.sub(lambda m: "" if m[1] in names else m[0], cells)
    return found, rest.strip()


def parse(text: str) -> NvfsStats:
    """Raises InputError where neither a header nor a row of the statistics is found."""
    facts: dict[str, str | int | bool | None] = {}
    rows: dict[str, dict[str, int | None]] = {
        field: dict.fromkeys(dict.fromkeys(names.values())) for field, names in _ROWS.values()
    }
    gpus: list[NvfsGpuStats] = []
    warnings: list[Warned] = []
    seen: set[str] = set()
    cut = False
    for number, line in enumerate(pasted.lines(text), 1):
        if not line.strip() or terminal.is_chrome(line):
            continue
        cut = False
        label, colon, cells = line.partition(":")
        if match := _GDS.fullmatch(line):
            facts["gds_version"] = match[1]
        elif match := _STATISTICS.fullmatch(line):
            facts["nvfs_statistics_version"] = match[1]
        elif match := _DRIVER.fullmatch(line):
            facts["driver_version"] = match[1].replace(":", ".")
        elif match := _PEERDIRECT.fullmatch(line):
            facts["peerdirect"] = match[1].lower() == "true"
        elif match := _ENABLED.fullmatch(line):
            facts["io_stats_enabled"] = match[1] == "Enabled"
            if match[2]:
                facts["peer_io_stats_enabled"] = match[2] == "Enabled"
        elif match := _LOGGING.fullmatch(line):
            facts["logging_level"] = match[1]
        elif match := _SHADOW.fullmatch(line):
            facts["active_shadow_buffer_mib"] = int(match[1])
        elif match := _PROCESSES.fullmatch(line):
            facts["active_processes"] = int(match[1])
        elif (match := _GPU.fullmatch(line)) and (address := canonical_address(match[1])):
            counters, rest = _counters(match[3], _GPU_COUNTERS)
            gpus.append(NvfsGpuStats(address=address, uuid=match[2], **counters))
            cut = bool(rest)
        elif colon and (row := _ROWS.get(" ".join(label.split()))):
            counters, rest = _counters(cells, row[1])
            rows[row[0]].update(counters)
            seen.add(row[0])
            cut = bool(rest)
        else:
            cut = True
        if cut:
            warnings.append(Warned(line=number, message="not, or only in part, a line of the statistics"))
    if not facts and not seen:
        raise InputError("not the text of /proc/driver/nvidia-fs/stats", line=1)
    # Ops is the last row of every version.
    ends = {"gpus": tuple(gpus), "truncated": cut or "ops" not in seen, "warnings": tuple(warnings)}
    return msgspec.convert({**facts, **rows, **ends}, NvfsStats)

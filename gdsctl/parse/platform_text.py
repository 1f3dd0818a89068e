"""Text files that say what the host is: kernel configuration, cpuinfo, os-release, NUMA nodes, process limits, modinfo."""

from __future__ import annotations

import re

from gdsctl.errors import InputError
from gdsctl.record import Record


class CpuInfo(Record, frozen=True, kw_only=True):
    """`vendor`: as printed on x86 and s390, by name for Arm's implementer code; POWER, SPARC and others print none.

    `sockets`: distinct physical ids, None where the architecture prints none (Arm).
    """

    vendor: str | None = None
    family: int | None = None
    model_name: str | None = None
    sockets: int | None = None
    processors: int = 0


class OsRelease(Record, frozen=True, kw_only=True):
    id: str | None = None
    version_id: str | None = None
    pretty_name: str | None = None
    id_like: tuple[str, ...] = ()


class Limit(Record, frozen=True, kw_only=True):
    """Of max locked memory; None: unlimited."""

    soft_bytes: int | None
    hard_bytes: int | None


class ModInfo(Record, frozen=True, kw_only=True):
    """`modinfo MODULE`. `parameters`: name -> description."""

    filename: str | None = None
    version: str | None = None
    license: str | None = None
    srcversion: str | None = None
    vermagic: str | None = None
    signer: str | None = None
    depends: tuple[str, ...] = ()
    parameters: dict[str, str] = {}


_CONFIG = re.compile(r"^(?:(CONFIG_\w{1,120})=(.*)|# (CONFIG_\w{1,120}) is not set)[ \t\r]*$", re.MULTILINE | re.ASCII)
_NODE_TOTAL = re.compile(r"MemTotal:\s{1,40}([0-9]{1,18}) kB")
_RANGE = re.compile(r"([0-9]{1,7})(?:-([0-9]{1,7}))?")
_MEMLOCK = re.compile(
    r"^Max locked memory\s{1,40}(\d{1,20}|unlimited)\s{1,40}(\d{1,20}|unlimited)\s{1,40}bytes", re.MULTILINE | re.ASCII
)
_MOST_CPUS = 1 << 20
_MODEL_KEYS = ("model name", "Model Name", "cpu model", "cpu", "uarch")  # x86, LoongArch, MIPS, POWER and SPARC, RISC-V
_S390_PROCESSOR = re.compile(r"processor [0-9]+")
# Linux arch/arm64/include/asm/cputype.h; names as lscpu has them (util-linux sys-utils/lscpu-arm.c).
_ARM_IMPLEMENTERS = {
    "0x41": "ARM",
    "0x42": "Broadcom",
    "0x43": "Cavium",
    "0x46": "FUJITSU",
    "0x48": "HiSilicon",
    "0x4e": "NVIDIA",
    "0x50": "APM",
    "0x51": "Qualcomm",
    "0x61": "Apple",
    "0x6d": "Microsoft",
    "0x70": "Phytium",
    "0xc0": "Ampere",
}


def parse_kernel_config(text: str) -> dict[str, str]:
    """`CONFIG_X` -> "y", "m", "n" (is not set) or the value as written, strings without quotes.

    An option without a line does not exist in that kernel. Raises InputError where no line is an option.
    """
    options = {m[1] or m[3]: m[2].strip().strip('"') if m[1] else "n" for m in _CONFIG.finditer(text)}
    if not options:
        raise InputError("not a kernel configuration", line=1)
    return options


def parse_cpuinfo(text: str) -> CpuInfo:
    """/proc/cpuinfo. Raises InputError where no processor is listed."""
    first: dict[str, str] = {}
    sockets: set[str] = set()
    processors = 0
    for line in text.split("\n"):
        key, colon, value = line.partition(":")
        key, value = key.strip(), value.strip()
        if not colon:
            continue
        first.setdefault(key, value)
        processors += key == "processor" or _S390_PROCESSOR.fullmatch(key) is not None
        if key == "physical id":
            sockets.add(value)
    if not processors and "ncpus active" not in first:  # SPARC counts its processors and lists none
        raise InputError("not the text of /proc/cpuinfo", line=1)
    family = first.get("cpu family", "")
    return CpuInfo(
        vendor=first.get("vendor_id") or _ARM_IMPLEMENTERS.get(first.get("CPU implementer", "")),
        family=int(family) if re.fullmatch(r"[0-9]{1,6}", family) else None,
        model_name=next((first[key] for key in _MODEL_KEYS if first.get(key)), None),
        sockets=len(sockets) or None,
        processors=processors,
    )


def parse_os_release(text: str) -> OsRelease:
    """os-release(5); anything else gives Nones."""
    cells = {}
    for line in text.split("\n"):
        key, equals, value = line.strip().partition("=")
        if equals and not key.startswith("#"):
            quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
            cells[key] = re.sub(r"\\(.)", r"\1", value[1:-1]) if quoted else value
    return OsRelease(
        id=cells.get("ID"),
        version_id=cells.get("VERSION_ID"),
        pretty_name=cells.get("PRETTY_NAME"),
        id_like=tuple(cells.get("ID_LIKE", "").split()),
    )


def parse_node_meminfo(text: str) -> int | None:
    """MemTotal of /sys/devices/system/node/nodeN/meminfo or /proc/meminfo in bytes (its kB are KiB)."""
    match = _NODE_TOTAL.search(text)
    return int(match[1]) * 1024 if match else None


def parse_cpulist(text: str) -> tuple[int, ...] | None:
    """`0-3,8` -> (0, 1, 2, 3, 8); an empty list is no CPU, None is no list."""
    cpus: list[int] = []
    for part in text.strip().split(",") if text.strip() else ():
        match = _RANGE.fullmatch(part)
        if match is None:
            return None
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < _MOST_CPUS or len(cpus) + last - first >= _MOST_CPUS:
            return None
        cpus += range(first, last + 1)
    return tuple(cpus)


def parse_distances(text: str) -> tuple[int, ...]:
    """/sys/devices/system/node/nodeN/distance: one number a node, 10 is the node itself; () where it is none."""
    cells = text.split()
    return tuple(map(int, cells)) if all(re.fullmatch(r"[0-9]{1,6}", cell) for cell in cells) else ()


def parse_memlock(text: str) -> Limit | None:
    """Max locked memory from /proc/PID/limits; None where the text does not have it."""
    match = _MEMLOCK.search(text)
    if match is None:
        return None
    soft, hard = (None if cell == "unlimited" else int(cell) for cell in match.groups())
    return Limit(soft_bytes=soft, hard_bytes=hard)


def parse_modinfo(text: str) -> ModInfo:
    """Raises InputError where neither a file name nor a licence is found."""
    cells: dict[str, str] = {}
    parameters = {}
    for line in text.split("\n"):
        key, colon, value = line.partition(":")
        if not colon:
            continue
        if key.strip() == "parm":
            name, _, meaning = value.strip().partition(":")
            parameters[name] = meaning
        else:
            cells.setdefault(key.strip(), value.strip())
    if not cells.keys() & {"filename", "license"}:
        raise InputError("not the output of modinfo", line=1)
    return ModInfo(
        filename=cells.get("filename"),
        version=cells.get("version"),
        license=cells.get("license"),
        srcversion=cells.get("srcversion"),
        vermagic=cells.get("vermagic"),
        signer=cells.get("signer") or None,
        depends=tuple(name for name in cells.get("depends", "").split(",") if name),
        parameters=parameters,
    )

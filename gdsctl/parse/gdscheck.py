"""`gdscheck -p`: the platform report of GDS 0.9 to 1.20.

A report is a head (versions), then rows under ENVIRONMENT, DRIVER CONFIGURATION, CUFILE CONFIGURATION, GPU INFO and
PLATFORM INFO, then one line `Platform verification succeeded|failed`:

    GDS release version: 1.13.1.3
    nvidia_fs version:  2.24 libcufile version: 2.12
    Platform: x86_64
    NVMe               : Supported
    --rdma_device_status  : Up: 0 Down: 0
    properties.use_compat_mode : true
    GPU index 0 NVIDIA L4 bar:1 bar size (MiB):32768 supports GDS, IOMMU State: Disabled

Rows name themselves, so most are read without their heading, which pastes lose. From 1.16 a driver row lists modes
(`nvfs, compat`). Instead of a report, a bad cufile.json gives a few complaint lines (`parsing error, invalid json ...`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, Literal

from gdsctl.data.tables import load
from gdsctl.errors import InputError
from gdsctl.parse import pasted
from gdsctl.record import Record, Warned


class DriverSupport(Record, frozen=True, kw_only=True):
    """`modes`: in printed order, only with state `modes` (GDS 1.16 and later)."""

    state: Literal["supported", "unsupported", "modes", "unknown"]
    modes: tuple[str, ...] = ()


class UserspaceRdma(Record, frozen=True, kw_only=True):
    """The `--` rows, values as printed; `up` and `down` count addresses of rdma_dev_addr_list."""

    peer_direct: str | None = None
    dmabuf: str | None = None
    library: str | None = None
    devices: str | None = None
    up: int | None = None
    down: int | None = None
    multipath: str | None = None
    health_monitor: str | None = None


class Gpu(Record, frozen=True, kw_only=True):
    """`iommu` as printed; `reason`: the tool's words for a GPU it does not support."""

    index: int
    name: str | None = None
    bar1_mib: int | None = None
    supports_gds: bool | None = None
    iommu: str | None = None
    reason: str | None = None


class PlatformInfo(Record, frozen=True, kw_only=True):
    """As printed, but `acs_bridges` with the domain; `cuda_driver` is CUDA's integer form (12080 for 12.8)."""

    iommu: str | None = None
    acs_bridges: tuple[str, ...] = ()
    nvidia_driver_status: str | None = None
    cuda_driver: str | None = None
    product: str | None = None
    arch: str | None = None
    kernel: str | None = None


class Gdscheck(Record, frozen=True, kw_only=True):
    """`nvidia_fs_version` is the loaded module's; `libcufile_interface` is an interface number, not a release."""

    gds_release: str | None = None
    nvidia_fs_version: str | None = None
    nvidia_fs_minimum: str | None = None
    libcufile_interface: str | None = None
    platform: str | None = None
    environment: dict[str, str] = {}
    drivers: dict[str, DriverSupport] = {}
    userspace_rdma: UserspaceRdma = UserspaceRdma()
    cufile: dict[str, str] = {}
    cufile_keys: dict[str, Any] = {}
    gpus: tuple[Gpu, ...] = ()
    platform_info: PlatformInfo = PlatformInfo()
    verification: Literal["succeeded", "failed"] | None = None
    truncated: bool = False
    warnings: tuple[Warned, ...] = ()


def parse(text: str) -> Gdscheck:
    """Read one report; of several, the last. Raises InputError where no line is gdscheck's."""
    lines = pasted.lines(text.encode("utf-8", "replace").decode("utf-8"))
    reader = _Reader()
    for number, line in enumerate(lines, start=1):
        if len(line) > _LINE_LIMIT:
            reader.warn(number, f"a line of {len(line)} characters is not gdscheck's")
        elif number == len(lines) and line.strip() and not reader.ended and not _is_end(line):
            # The paste stops inside this line: a number in it may have lost digits.
            reader.cut(number, " ".join(line.split()))
        else:
            reader.read(number, " ".join(line.split()))
    return reader.report()


_LINE_LIMIT = 4096
_MODES = frozenset({"nvfs", "p2pdma", "c2c", "dmabuf", "nvidia_peermem", "compat"})
_SECTIONS = ("ENVIRONMENT", "DRIVER CONFIGURATION", "CUFILE CONFIGURATION", "GPU INFO", "PLATFORM INFO")
# As printed, lower-cased: GDS 0.9 printed SCALEFLUX CSD, LUSTRE, WEKAFS, USERSPACE RDMA.
_DRIVERS = frozenset({
    "nvme p2pdma", "nvme", "nvmeof", "scsi", "scaleflux csd", "nvmesh", "ddn exascaler", "lustre", "fsx lustre",
    "ibm spectrum scale", "nfs", "beegfs", "scatefs", "virtiofs", "panfs", "wekafs", "userspace rdma",
})  # fmt: skip
_RDMA_ROWS = {
    "mofed peer direct": "peer_direct",
    "mellanox peerdirect": "peer_direct",
    "dmabuf support": "dmabuf",
    "rdma library": "library",
    "rdma devices": "devices",
    "rdma_multipath": "multipath",
    "rdma_health_monitor": "health_monitor",
}
_CONFIG_FAILURE = re.compile(
    r"parsing error, invalid json config|json type mismatch, config read failed|error reading config \S"
    r"|failed to load (?:user )?config:|cuFile configuration load error|cuFile initialization failed",
    re.IGNORECASE,
)
_SAID = re.compile(
    r"Platform does not have any supported GPU|platform is not supported by cufile"
    r"|GPUDirect Storage not supported on current platform|No GPU found in the system|No cuda devices available"
    r"|Platform verification error|warn: error opening log file",
    re.IGNORECASE,
)
_REPEATS = re.compile(r"WARN: GDS is not guaranteed to work|(?:INFO: ?)?use_mq not detected in scsi", re.IGNORECASE)
_RULER = re.compile(r"[=\-_~`]+")
_BULLET = re.compile(r"^(?:[#*|\u2022] |- )+")
_REMARK = re.compile(r" (?:<-+|\u2190|#|//) .*")
_VERSION = r": ?(\d+(?:\.\d+)*)(?![\w.])"
_RELEASE = re.compile(r"GDS release version(?: \(beta\))? ?" + _VERSION)
_NVFS = re.compile(r"nvidia_fs version ?" + _VERSION)
_NVFS_MINIMUM = re.compile(r"nvidia_fs minimum version ?" + _VERSION)
_INTERFACE = re.compile(r"libcufile version ?" + _VERSION)
_PLATFORM = re.compile(r"Platform ?: ?(.+)")
_ARCH = re.compile(r"(?:Platform ?: ?(?P<product>.*?) ?, ?)?Arch ?: ?(?P<arch>\w+) ?\(Linux (?P<kernel>[^()\s]+)\)")
_VERIFICATION = re.compile(r"Platform verification (succeeded|failed|error)\b")
_ROW = re.compile(r"([^:]{1,80}?) ?: ?(.*)")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*_[A-Z0-9_]*")
_LABEL = re.compile(r"(?:logging|profile|execution|properties|fs|block|sparse|denylist|miscellaneous)(?:\.\w+)+")
_MOUNT = re.compile(r"(/.*) dev_id (\d+) ?: ?(.*)")
_RDMA_STATUS = re.compile(r"Up: ?(\d+) Down: ?(\d+)")
_BDF = re.compile(r"(?<![\w:.])(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])(?![\w:.])", re.IGNORECASE)
_GPU = re.compile(
    r"GPU [Ii]ndex:? (?P<index>\d+)(?: (?P<name>\S.*?))? bar: ?(?:\d+|disabled)"
    r" bar size \((?:MiB|MB)\): ?(?P<mib>\d+|N/A)(?: (?P<tail>.*))?"
)
_GPU_TAIL = re.compile(
    r"(?P<verdict>supports GDS|compat mode)?(?:(?:^|, ?)IOMMU State: (?P<iommu>Disabled|Enabled|Pass-through or Enabled))?"
)
_GPU_REFUSED = re.compile(
    r"GPU (?:index )?(?P<index>\d+) (?P<name>\S.*?)(?:"
    r": (?P<model>Model Not Supported)|,? NO GDS SUPPORT - Reason: (?P<reason>\S.*)"
    r"|,? (?P<architecture>does not have supported architecture.*))"
)
_GPU_TOTAL = re.compile(r"Total GPUS supported on this platform (\d+)|GPUs with GDS support: (\d+) Total GPUs: (\d+)")


def _names_a_row(piece: str) -> bool:
    name = piece.partition(":")[0].strip()
    return name.lower() in _DRIVERS or _LABEL.fullmatch(name) is not None


def _is_end(line: str) -> bool:
    return _VERIFICATION.search(line) is not None or _CONFIG_FAILURE.match(line.strip()) is not None


class _Reader:
    """State of one pass: what was read so far, where we are, and which row may go on in the next line."""

    def __init__(self) -> None:
        self.warnings: list[Warned] = []
        self.recognised = False
        self.start()

    def start(self) -> None:
        self.fields: dict[str, Any] = {}
        self.environment: dict[str, str] = {}
        self.drivers: dict[str, DriverSupport] = {}
        self.rdma: dict[str, Any] = {}
        self.cufile: dict[str, str] = {}
        self.cufile_line: dict[str, int] = {}
        self.mounts: dict[str, dict[str, list[str]]] = {}
        self.gpus: dict[int, Gpu] = {}
        self.info: dict[str, Any] = {}
        self.bridges: dict[str, None] = {}
        self.verification: Literal["succeeded", "failed"] | None = None
        self.config_failed = False
        self.section: str | None = None
        self.seen_sections: set[str] = set()
        self.beta = False
        self.mount_label: str | None = None
        self.held: tuple[int, str] | None = None

    @property
    def ended(self) -> bool:
        return self.verification is not None or self.config_failed

    def warn(self, number: int, message: str) -> None:
        self.warnings.append(Warned(line=number, message=message))

    def cut(self, number: int, line: str) -> None:
        """The unfinished last line counts as gdscheck's if it can be read, but its value does not."""
        other = _Reader()
        other.section = self.section
        other.read(number, line)
        self.recognised = self.recognised or other.recognised
        self.warn(number, f"the text ends in this line, its value may be cut: {line[:80]}")

    def read(self, number: int, line: str) -> None:
        line = _REMARK.sub("", _BULLET.sub("", line.replace("\\_", "_"), count=1)).strip(" |")
        if not line or _RULER.fullmatch(line):
            return
        held, self.held = self.held, None
        if self.row(number, line):
            self.drop(held)
        elif held is None or not self.row(number, f"{held[1]} {line}"):
            self.drop(held)
            if self.held is None:
                self.warn(number, f"not read: {line[:80]}")
                self.distrust(number, line)

    def distrust(self, number: int, line: str) -> None:
        """A cuFile value right above digits that belong to no row: a narrow terminal may have cut its number in two."""
        label = next(reversed(self.cufile), None)
        if label and self.cufile_line[label] == number - 1 and line[0].isdigit() and self.cufile[label][-1:].isdigit():
            del self.cufile[label]
            self.warn(number - 1, f"{label}: its number may go on in the next line")

    def hold(self, number: int, line: str) -> None:
        """A row that may go on in the next line, as terminals wrap it."""
        self.held = (number, line)

    def drop(self, held: tuple[int, str] | None) -> None:
        if held is not None:
            self.warn(held[0], f"not read: {held[1][:80]}")

    def row(self, number: int, line: str) -> bool:
        pieces = line.split(" / ")
        if len(pieces) > 1 and all(_names_a_row(piece) for piece in pieces):
            read = [self.row(number, piece.strip()) for piece in pieces]
            return all(read)
        return any(reader(self, number, line) for reader in _ROWS)

    def put(self, number: int, where: dict[str, Any], name: str, value: Any) -> None:
        """A fact printed once; a second, different one is not believed."""
        if where.setdefault(name, value) != value:
            self.warn(number, f"{name} stands twice with different values; the first is kept")
        self.recognised = True

    def heading(self, number: int, line: str) -> bool:
        line = line.strip("= ")
        name = line.removesuffix(":").rstrip().upper()
        if name not in _SECTIONS or not line.endswith(":"):
            return False
        if name in self.seen_sections:
            self.again(number)
        self.seen_sections.add(name)
        self.section, self.mount_label = name, None
        self.beta = self.beta or line.startswith("cuFile")
        self.recognised = self.recognised or name in _SECTIONS[1:3]
        return True

    def again(self, number: int) -> None:
        self.warn(number, "a second report starts here; what stands before it is left out")
        self.start()

    def head(self, number: int, line: str) -> bool:
        if release := _RELEASE.match(line):
            if "gds_release" in self.fields or self.drivers or self.cufile:
                self.again(number)
            self.put(number, self.fields, "gds_release", release[1])
        found = release is not None
        for pattern, name in (
            (_NVFS, "nvidia_fs_version"),
            (_NVFS_MINIMUM, "nvidia_fs_minimum"),
            (_INTERFACE, "libcufile_interface"),
        ):
            if match := pattern.search(line):
                self.put(number, self.fields, name, match[1])
                found = True
        return found

    def said(self, number: int, line: str) -> bool:
        if verdict := _VERIFICATION.match(line):
            self.verification = "succeeded" if verdict[1] == "succeeded" else "failed"
            self.recognised = True
            if verdict[1] != "error":
                return True
        if _CONFIG_FAILURE.match(line):
            self.config_failed = self.recognised = True
        elif _SAID.match(line):
            self.recognised = True
        else:
            return _REPEATS.match(line) is not None
        self.warn(number, f"gdscheck says: {line[:200]}")
        return True

    def platform(self, number: int, line: str) -> bool:
        if match := _ARCH.match(line):
            for name, value in match.groupdict().items():
                if value:
                    self.put(number, self.info, name, value)
            return True
        if not (match := _PLATFORM.fullmatch(line)):
            return False
        if re.fullmatch(r"x86_64|aarch64|ppc64le", match[1]):
            if "platform" not in self.fields:
                self.fields["platform"] = match[1]
            return True
        self.hold(number, line)
        return False

    def platform_row(self, number: int, line: str) -> bool:
        if line.startswith("Found ACS enabled for switch"):
            bridges = [f"{domain or '0000'}:{rest}".lower() for domain, rest in _BDF.findall(line)]
            if not bridges:
                return False
            self.bridges.update(dict.fromkeys(bridges))
            self.recognised = True
            return True
        row = _ROW.fullmatch(line)
        if not row or not row[2]:
            return False
        name, value = row[1].lower(), row[2]
        if name == "iommu" and value.lower() in {"disabled", "pass-through or enabled"}:
            self.put(number, self.info, "iommu", value)
        elif name == "nvidia driver info status":
            if value.count("(") != value.count(")"):
                self.hold(number, line)
                return False
            self.put(number, self.info, "nvidia_driver_status", value)
        elif name == "cuda driver version installed" and value.isdecimal():
            self.put(number, self.info, "cuda_driver", value)
        else:
            return False
        return True

    def gpu(self, number: int, line: str) -> bool:
        if total := _GPU_TOTAL.fullmatch(line):
            expected = int((total[3] or total[1])[:9])
            if len(self.gpus) < expected:
                self.warn(number, f"the report counts {expected} GPUs, {len(self.gpus)} rows were read")
            self.recognised = True
            return True
        if match := _GPU.fullmatch(line):
            tail = _GPU_TAIL.fullmatch(match["tail"] or "")
            if tail is None or (match["name"] and not match["tail"]):
                self.hold(number, line)
                return False
            refused = tail["verdict"] == "compat mode"
            gpu = Gpu(
                index=int(match["index"][:9]),
                name=match["name"],
                bar1_mib=int(match["mib"][:12]) if match["mib"].isdecimal() else None,
                supports_gds=None if tail["verdict"] is None else not refused,
                iommu=tail["iommu"],
                reason="compat mode" if refused else None,
            )
        elif match := _GPU_REFUSED.fullmatch(line):
            gpu = Gpu(
                index=int(match["index"][:9]),
                name=match["name"],
                supports_gds=False,
                reason=match["model"] or match["reason"] or match["architecture"],
            )
        else:
            if re.match(r"GPU (?:[Ii]ndex:? )?\d+ ", line):
                self.hold(number, line)
            return False
        self.recognised = True
        earlier = self.gpus.get(gpu.index)
        if earlier is None:
            self.gpus[gpu.index] = gpu
        elif earlier != gpu and (earlier.name or gpu.name) == (gpu.name or earlier.name):
            # 1.17 and later print the refusal and the plain row of the same GPU.
            merged = {name: getattr(earlier, name) for name in Gpu.__struct_fields__}
            merged.update({name: getattr(gpu, name) for name, value in merged.items() if value is None})
            self.gpus[gpu.index] = Gpu(**merged)
        elif earlier != gpu:
            self.warn(number, f"GPU {gpu.index} stands twice under different names; the first is kept")
        return True

    def rdma_row(self, number: int, line: str) -> bool:
        row = _ROW.fullmatch(line.lstrip("-\u2010\u2011\u2012\u2013\u2014 "))
        if not row or not row[2]:
            return False
        name = row[1].lower()
        if name in {"rdma_device_status", "rdma_dev_addr_list_status"} and (status := _RDMA_STATUS.fullmatch(row[2])):
            self.put(number, self.rdma, "up", int(status[1][:9]))
            self.put(number, self.rdma, "down", int(status[2][:9]))
            return True
        if name not in _RDMA_ROWS:
            return False
        self.put(number, self.rdma, _RDMA_ROWS[name], row[2])
        return True

    def mount(self, number: int, line: str) -> bool:
        match = _MOUNT.fullmatch(line)
        if self.mount_label is None or match is None:
            return False
        # The library stores the table by device: mount points of one device share a row.
        paths = re.split(r" (?=/)", match[1])
        if len(paths) > 1:
            self.warn(number, f"mount points of one device share these addresses: {match[1][:80]}")
        for path in paths:
            self.mounts[self.mount_label][path] = match[3].split()
        return True

    def cufile_row(self, number: int, line: str) -> bool:
        row = _ROW.fullmatch(line)
        if not row or not _LABEL.fullmatch(row[1]):
            return False
        label, value = row[1], row[2]
        self.put(number, self.cufile, label, value)
        self.cufile_line.setdefault(label, number)
        self.mount_label = None
        if label.endswith(".mount_table"):
            self.mount_label = label
            self.mounts.setdefault(label, {})
        return True

    def variable(self, number: int, line: str) -> bool:
        row = _ROW.fullmatch(line)
        if not row or not _VARIABLE.fullmatch(row[1]):
            return False
        if self.section != "ENVIRONMENT" and not row[1].startswith(("CUFILE_", "CUOBJ_")):
            return False
        self.put(number, self.environment, row[1], row[2])
        return True

    def driver(self, number: int, line: str) -> bool:
        row = _ROW.fullmatch(line)
        if not row or not row[2]:
            return False
        known = row[1].lower() in _DRIVERS
        words = [word.strip().lower() for word in row[2].split(",")]
        modes = tuple(word for word in words if word in _MODES)
        if not known and self.section != "DRIVER CONFIGURATION":
            return False
        if row[2].lower() in {"supported", "unsupported"}:
            support = DriverSupport(state="supported" if row[2].lower() == "supported" else "unsupported")
        elif modes:
            support = DriverSupport(state="modes", modes=modes)
            if len(modes) < len(words):
                self.warn(number, f"{row[1]}: not all modes read: {row[2][:80]}")
        elif known:
            support = DriverSupport(state="unknown")
            self.warn(number, f"{row[1]}: neither support nor modes: {row[2][:80]}")
            self.drivers.setdefault(row[1], support)
            return True
        else:
            return False
        self.put(number, self.drivers, row[1], support)
        return True

    def keys(self) -> dict[str, Any]:
        beta = self.beta or self.fields.get("gds_release", "").startswith("0.")
        keys: dict[str, Any] = {}
        for label, text in self.cufile.items():
            if label not in _labels():
                continue
            pointer, kind = _labels()[label]
            try:
                value: Any = self.mounts[label] if kind == "mount_table" else _TYPES[kind](text)
            except ValueError:
                self.warn(self.cufile_line[label], f"{label}: not of type {kind}: {text[:80]}")
                continue
            if label == "properties.posix_pool_slab_size_kb" and beta:
                if any(size % 1024 for size in value):
                    self.warn(self.cufile_line[label], f"{label}: neither bytes nor KiB: {text[:80]}")
                    continue
                self.warn(self.cufile_line[label], f"{label}: GDS 0.9 prints bytes; converted to KiB")
                value = [size // 1024 for size in value]
            if kind == "mount_table":
                value = {path: {"rdma_dev_addr_list": addresses} for path, addresses in value.items()}
            keys[pointer] = value
        return keys

    def report(self) -> Gdscheck:
        if not self.recognised:
            raise InputError("not gdscheck output: no version, driver, cuFile, GPU or verification line", line=1)
        self.drop(self.held)
        keys = self.keys()
        return Gdscheck(
            **self.fields,
            environment=self.environment,
            drivers=self.drivers,
            userspace_rdma=UserspaceRdma(**self.rdma),
            cufile=self.cufile,
            cufile_keys=keys,
            gpus=tuple(gpu for _, gpu in sorted(self.gpus.items())),
            platform_info=PlatformInfo(**self.info, acs_bridges=tuple(self.bridges)),
            verification=self.verification,
            truncated=not self.ended,
            warnings=tuple(sorted(self.warnings, key=lambda warned: warned.line)),
        )


_ROWS: tuple[Callable[[_Reader, int, str], bool], ...] = (
    _Reader.heading,
    _Reader.head,
    _Reader.said,
    _Reader.platform,
    _Reader.platform_row,
    _Reader.gpu,
    _Reader.rdma_row,
    _Reader.mount,
    _Reader.cufile_row,
    _Reader.variable,
    _Reader.driver,
)


def _bool(text: str) -> bool:
    if text not in {"true", "false", "1", "0"}:
        raise ValueError
    return text in {"true", "1"}


def _int(text: str) -> int:
    if not re.fullmatch(r"-?\d{1,20}", text, re.ASCII):
        raise ValueError
    return int(text)


def _str(text: str) -> str:
    if not text:
        raise ValueError
    return text


def _list(text: str, element: Callable[[str], Any]) -> list[Any]:
    if not text:
        raise ValueError
    return [element(word) for word in text.split()]


_TYPES: dict[str, Callable[[str], Any]] = {
    "bool": _bool,
    "int": _int,
    "str": _str,
    "int_list": lambda text: _list(text, _int),
    "str_list": lambda text: _list(text, _str),
}


@functools.cache
def _labels() -> dict[str, tuple[str, str]]:
    """Printed label -> (pointer into cufile.json, type)."""
    rows = load("gdscheck_labels.toml", dict[str, list[dict[str, str]]])["label"]
    return {row["label"]: (row["key"], row["type"]) for row in rows}

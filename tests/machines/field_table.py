"""What goes wrong in the field, one case a row: the machine, the ids that must be raised, and what must not be said.

Every machine is `tests/sound.py`'s with one thing (or, in the last rows, several) changed. All go through the whole
chain, from files and outputs to findings. A finding that is neither of the sound machine nor expected is a wrong one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from gdsctl import pipeline
from gdsctl.model.judgement import Finding
from gdsctl.model.node import Report
from tests.builders import CR, RR, SV, UF
from tests.made import XEON, Made
from tests.sound import DRIVE_PORT, FIRMWARE_NOISE, GPU_PORT, P2PDMA_DWORDS, P2PDMA_KEYS, Sound

Change = Callable[[Made], None]
P2P: dict[str, Any] = {
    "hooks": None,
    "nvidia_fs": None,
    "registry": P2PDMA_DWORDS,
    "release": "1.16.0",
    "config": P2PDMA_KEYS,
}
CUDA_AGAIN = "install CUDA again"
PROPRIETARY = "the driver's licence"
HOPELESS = "GDS is impossible"
NEEDS_RAID = "wants RAID0 or PeerDirect"
BLANKET = "ACS off everywhere"
BESIDE = "the port beside the path"
BROKEN = "the file system is broken"
BY_HAND = "write udev's database by hand"
NOT_CAPABLE = "the GPU cannot do GDS"
UNSUPPORTED = "not supported"
IDLE = "no traffic"
FOR_NFS = "P2PDMA for NFS or GPFS"
INTERFACE = "libcufile's interface number"
FAULTY_CHECK = "gdscheck failed"

UNSAID: dict[str, tuple[str, str]] = {
    CUDA_AGAIN: (r"re-?install(ing)? (the )?cuda|cuda (toolkit )?again", "Reinstall the CUDA toolkit."),
    PROPRIETARY: (r"proprietary|licen[cs]e", "The proprietary modules are in the way."),
    HOPELESS: (
        r"(gds|gpudirect storage) (is |will be )?(impossible|cannot work|will not work)",
        "GDS cannot work here.",
    ),
    NEEDS_RAID: (
        r"(needs?|requires?|wants?) (an? )?(md )?raid ?0|peerdirect|peermem",
        "This file system needs an md RAID0.",
    ),
    BLANKET: (
        r"setpci[^\n]*\*|for \w+ in \$\(lspci|\b(clear|disable|turn off|switch off) acs (on|at|of|for|every)",
        "for port in $(lspci -d ::0604 | cut -c1-7)",
    ),
    BESIDE: (r"0000:42:02\.0", "setpci -s 0000:42:02.0 ECAP_ACS+6.w=0000"),
    BROKEN: (r"file system is (broken|damaged|corrupt)|fsck", "Run fsck on it."),
    BY_HAND: (
        r"(write|create|edit) [^.]{0,30}(database|/run/udev)[^.]{0,20}by hand|echo [^\n]*/run/udev|tee /run/udev",
        "echo E:ID_FS_USAGE=filesystem >> /run/udev/data/b259:0",
    ),
    NOT_CAPABLE: (r"gpu (is )?(not supported|unsupported)|does not support gds", "This GPU is not supported."),
    UNSUPPORTED: (r"not supported|unsupported", "Not supported on the current file."),
    IDLE: (r"no traffic|nothing (was|is being) transferred|no i/?o (was|is) ", "There was no traffic."),
    FOR_NFS: (r"fs\.(nfs|gpfs)\.use_pci_p2pdma[^.]{0,20}true", "Set fs.nfs.use_pci_p2pdma to true."),
    INTERFACE: (r"libcufile version:? 2\.12|libcufile 2\.12", "It is older than libcufile 2.12."),
    FAULTY_CHECK: (r"gdscheck (has )?failed|platform verification failed", "gdscheck failed."),
}
"""What must not be said: a pattern, whatever its case, and a sentence that would be one."""


class FieldCase(NamedTuple):
    """`expected`: ids, each once or more; `route`: of GPU 0 to /mnt; `unsaid`: keys of UNSAID.

    `why`: the report's lesson, in our words. `severity`: of ids whose gravity is the point.
    """

    name: str
    why: str
    expected: frozenset[str]
    route: str
    options: dict[str, Any]
    change: Change | None
    unsaid: tuple[str, ...]
    severity: dict[str, str]


SOUND = FieldCase("", "nothing", frozenset(), "nvidia-fs", {}, None, (), {})
CASES: list[FieldCase] = []


def case(
    name: str,
    why: str,
    expected: str = "",
    *,
    route: str,
    change: Change | None = None,
    unsaid: tuple[str, ...] = (),
    severity: dict[str, str] | None = None,
    **options: Any,
) -> None:
    ids = frozenset(expected.split())
    CASES.append(FieldCase(name, why, ids, route, options, change, (*unsaid, HOPELESS), severity or {}))


def report_of(case_: FieldCase, folder: Path) -> Report:
    root = folder / "machine"
    root.mkdir(parents=True)
    if case_.options.get("container"):
        (root / ".dockerenv").touch()
    made = Sound(root, **{key: value for key, value in case_.options.items() if key != "container"})
    if case_.options.get("container"):
        made.mount("/", "overlay", "overlay", "rw,relatime", "rw,lowerdir=/var/lib/docker/overlay2/l/AB,upperdir=/u")
    if case_.change:
        case_.change(made)
    return pipeline.inspect(made.source())


def raised(report: Report) -> set[tuple[str, str]]:
    """(id, one subject) of every finding; findings that name several subjects count for each."""
    return {(finding.id, subject) for finding in report.findings for subject in finding.subject.split(", ")}


def words(report: Report) -> Iterator[str]:
    """All that is told of the case itself."""
    for finding in report.findings:
        yield from said(finding)
    for route in report.routes:
        if route.mount == "/mnt":
            yield route.because


def said(finding: Finding) -> tuple[str, ...]:
    remedy = finding.remedy
    return (finding.message, finding.why, remedy.text, *remedy.commands, remedy.risk or "")


# --- what a case changes ----------------------------------------------------------------------------------------------


def logged(*lines: str) -> Change:
    def change(made: Made) -> None:
        made.outputs["dmesg"] = "".join(f"[   12.{number:06d}] {line}\n" for number, line in enumerate(lines))

    return change


def all_of(*changes: Change) -> Change:
    def change(made: Made) -> None:
        for one in changes:
            one(made)

    return change


def file(path: str, text: str) -> Change:
    return lambda made: made.file(path, text)


def without(path: str) -> Change:
    def change(made: Made) -> None:
        place = made.root / path.lstrip("/")
        for below in sorted(place.rglob("*"), reverse=True) if place.is_dir() else ():
            below.unlink() if below.is_file() or below.is_symlink() else below.rmdir()
        place.rmdir() if place.is_dir() else place.unlink()

    return change


def nfs(options: str, *, client: str | None = "rpcrdma") -> Change:
    """An export at /nfs; `client`: whose rpcrdma has the hooks."""

    def change(made: Made) -> None:
        made.mount("/nfs", "10.0.0.16:/data", "nfs", "rw,relatime", f"rw,vers=3,{options},addr=10.0.0.16")
        made.module("rpcrdma")
        if client:
            made.hooks("rpcrdma", client)

    return change


def mapped(uuid: str) -> Change:
    """/mnt on a device-mapper volume over the drive."""

    def change(made: Made) -> None:
        home = "/sys/devices/virtual/block/dm-0"
        made.file(f"{home}/dm/name", "data")
        made.file(f"{home}/dm/uuid", uuid)
        made.block("dm-0", home, gib=3000, filesystem="xfs", device="253:0")
        made.link(f"{home}/slaves/nvme0n1", "/sys/class/block/nvme0n1")
        remount(made, "/dev/dm-0", "xfs")

    return change


def array(level: str = "raid0", *, udev: bool = True) -> Change:
    """/mnt on an md array of the drive."""

    def change(made: Made) -> None:
        made.array("md0", ["nvme0n1"], gib=3000, level=level, filesystem="xfs")
        if not udev:
            made.file("/run/udev/data/b9:0", "E:ID_FS_USAGE=filesystem\nE:ID_FS_TYPE=xfs")
            made.file("/usr/lib/udev/rules.d/63-md-raid-arrays.rules", 'SUBSYSTEM!="block", GOTO="md_end"')
        remount(made, "/dev/md0", "xfs")

    return change


def remount(made: Made, source: str, fstype: str) -> None:
    made._mounts = [line for line in made._mounts if " /mnt " not in line]
    made.mount("/mnt", source, fstype)


def bare(source: str, fstype: str) -> Change:
    return lambda made: remount(made, source, fstype)


def kernel_without_p2pdma(made: Made) -> None:
    made.config(CONFIG_PCI_P2PDMA="n")
    made._symbols = []


# --- nvidia-fs --------------------------------------------------------------------------------------------------------

case(
    "module-never-loaded",
    "A node without nvidia_fs: compat works, and P2PDMA would need no such module.",
    "nvidia-fs.not-loaded",
    route="compat",
    nvidia_fs=None,
    unsaid=(NEEDS_RAID,),
)
case(
    "gpl-only-symbols",
    "modprobe fails on GPL-only symbols: the driver's licence is the cause, the open modules of the same version the cure.",
    "driver.proprietary nvidia-fs.not-loaded nvidia-fs.proprietary-driver",
    route="compat",
    nvidia_fs=None,
    open_kernel=False,
    change=logged(
        "nvidia_fs: module using GPL-only symbols uses symbols nvidia_p2p_put_pages from proprietary module nvidia."
    ),
    unsaid=(CUDA_AGAIN,),
)
case(
    "built-for-another-driver",
    "`disagrees about version of symbol`: built against another driver, to be rebuilt; no matter of licences.",
    "nvidia-fs.not-loaded nvidia-fs.symbol-version",
    route="compat",
    nvidia_fs=None,
    change=logged(
        "nvidia_fs: disagrees about version of symbol nvidia_p2p_get_pages",
        "nvidia_fs: Unknown symbol nvidia_p2p_get_pages (err -22)",
    ),
    unsaid=(CUDA_AGAIN, PROPRIETARY),
)
case(
    "provider-lacks-the-symbol",
    "`Unknown symbol ... (err 0)`: the provider is not loaded or lacks it.",
    "nvidia-fs.not-loaded nvidia-fs.symbol-version",
    route="compat",
    nvidia_fs=None,
    change=logged("nvidia_fs: Unknown symbol nvidia_p2p_dma_map_pages (err 0)"),
    unsaid=(CUDA_AGAIN, PROPRIETARY),
)
case(
    "no-symbol-version-but-loaded",
    "`no symbol version for` is a warning: the module is in the kernel and works.",
    route="nvidia-fs",
    change=logged("nvidia_fs: no symbol version for nvidia_p2p_get_pages"),
)
case(
    "another-modules-symbols",
    "nvidia_peermem's unknown symbols say nothing of nvidia_fs, and local NVMe needs no peermem.",
    route="nvidia-fs",
    change=logged("nvidia_peermem: Unknown symbol ib_register_peer_memory_client (err 0)"),
)
case(
    "refused-once-loaded-since",
    "Lines of a failed attempt stay in the log after the module was loaded.",
    route="nvidia-fs",
    change=logged("nvidia_fs: disagrees about version of symbol nvidia_p2p_get_pages"),
)
case(
    "known-bad-release",
    "nvidia-fs 2.25.6 corrupts; 2.25.7 does not.",
    "nvidia-fs.known-bad-version",
    route="nvidia-fs",
    nvidia_fs="2.25.6",
    release="1.14.1",
)
case(
    "module-of-another-age",
    "nvidia-fs 2.9 under a libcufile that takes 2.12 at the least.",
    "nvidia-fs.version-too-old",
    route="compat",
    nvidia_fs="2.9.2",
    unsaid=(INTERFACE,),
)
case(
    "counters-off",
    "`IO stats: Disabled` makes `Ops Read=0` mean nothing.",
    route="nvidia-fs",  # the sound machine has them off, too: nvidia-fs.stats-disabled is in its own list
    stats=False,
    unsaid=(IDLE,),
)
case(
    "page-tables-of-another-driver",
    "nvidia_fs runs beside a driver that was updated under it.",
    "nvidia-fs.page-table-version",
    route="nvidia-fs",
    change=logged(
        "nvidia_fs: Initializing nvfs driver module",
        "nvidia-fs:nvfs_get_dma:1103 Incompatible page table version 0x00010002",
    ),
    unsaid=(CUDA_AGAIN, PROPRIETARY),
)
case(
    "page-tables-rebuilt-since",
    "The same line from before the module was loaded anew is stale.",
    route="nvidia-fs",
    change=logged(
        "nvidia-fs:nvfs_get_dma:1103 Incompatible page table version 0x00010002",
        "nvidia_fs: Initializing nvfs driver module",
    ),
)
case(
    "devices-missing",
    "The module is loaded and /dev/nvidia-fs* is not there: worse than neither, libcufile goes on with descriptor 0.",
    "nvidia-fs.no-device-node",
    route="none",
    nodes=0,
    severity={"nvidia-fs.no-device-node": "critical"},
)

# --- NVMe -------------------------------------------------------------------------------------------------------------

case(
    "stock-nvme",
    "nvidia-fs is loaded and nvme is the distribution's: no hooks, every file falls back.",
    "nvme.unpatched",
    route="compat",
    hooks=None,
    unsaid=(NEEDS_RAID,),
)
case(
    "patched-for-v1-asked-for-v2",
    "A patched nvme that exports v1 under an nvidia-fs that asks for v2: not `unpatched`, and both symbols are named.",
    "nvme.symbol-mismatch",
    route="compat",
    kernel="6.17.0-14-generic",
    nvidia_fs="2.28.4",
    unsaid=(NEEDS_RAID,),
)
case(
    "patched-for-v2",
    "The same kernel with a v2 nvme.",
    route="nvidia-fs",
    kernel="6.17.0-14-generic",
    nvidia_fs="2.28.4",
    hooks="nvme_v2",
)
case(
    "native-multipath-under-p2pdma",
    "P2PDMA stops at the multipath head on kernels that do not pass it on.",
    "nvme.native-multipath cufile.compat-hides-failure",
    route="compat",
    multipath=True,
    **P2P,
)
case(
    "native-multipath-under-nvidia-fs",
    "nvidia-fs reaches through the multipath head.",
    route="nvidia-fs",
    multipath=True,
)
case(
    "integrity-drive",
    "A drive formatted with protection information.",
    "nvme.integrity-capable",
    route="compat",
    change=file("/sys/class/block/nvme0n1/integrity/device_is_integrity_capable", "1"),
)

# --- driver and P2PDMA ------------------------------------------------------------------------------------------------

case(
    "p2pdma-complete",
    "Kernel, open driver, registry keys, cufile.json and multipath off: nothing is missing; that compat hides a loss is a hint.",
    "cufile.compat-hides-failure",
    route="p2pdma",
    severity={"cufile.compat-hides-failure": "info"},
    **P2P,
)
case(
    "p2pdma-without-registry-keys",
    "All of P2PDMA but the driver's static BAR1.",
    "driver.registry-key-missing cufile.compat-hides-failure",
    route="compat",
    **{**P2P, "registry": ""},
)
case(
    "p2pdma-json-half",
    "1.16 wants the key of the backend besides the one of `properties`.",
    "p2pdma.half-configured cufile.compat-hides-failure",
    route="compat",
    **{**P2P, "config": {"properties": {"use_pci_p2pdma": True}}},
)
case(
    "p2pdma-kernel-without",
    "A kernel built without CONFIG_PCI_P2PDMA.",
    "kernel.no-p2pdma cufile.compat-hides-failure",
    route="compat",
    change=kernel_without_p2pdma,
    **P2P,
)
case(
    "p2pdma-asked-for-nfs",
    "P2PDMA reaches drives on PCIe; a key for NFS does nothing, and must not be advised.",
    "p2pdma.filesystem-unsupported rpcrdma.unpatched nvidia-fs.not-loaded cufile.compat-hides-failure",
    route="p2pdma",
    change=nfs("proto=rdma,port=20049", client=None),
    unsaid=(FOR_NFS,),
    **{**P2P, "config": {**P2PDMA_KEYS, "fs": {"nfs": {"use_pci_p2pdma": True}}}},
)
case(
    "proprietary-driver-old-nvidia-fs",
    "nvidia-fs before 2.18 loads beside the proprietary driver.",
    "driver.proprietary",
    route="nvidia-fs",
    open_kernel=False,
    nvidia_fs="2.17.3",
    release="1.7.0",
    unsaid=(CUDA_AGAIN,),
    severity={"driver.proprietary": "warning"},
)
case(
    "reboot-pending",
    "modprobe.d says what the running driver does not have.",
    "driver.pending-reboot p2pdma.half-configured",
    route="nvidia-fs",
    change=file("/etc/modprobe.d/nvidia.conf", 'options nvidia NVreg_RegistryDwords="RMForceStaticBar1=1"'),
)

# --- GPUs -------------------------------------------------------------------------------------------------------------

case(
    "geforce",
    "get_pages answers -22 on GeForce: no rebuild helps.",
    "gpu.geforce",
    route="compat",
    gpu="NVIDIA GeForce RTX 4090",
    capability="8.9",
    change=logged("nvidia-fs:nvfs_pin_gpu_pages:1202 Error ret -22 invoking nvidia_p2p_get_pages"),
)
case(
    "too-old-a-gpu",
    "Compute capability 5.0, while gdscheck's NVMe row says Supported all the same.",
    "gpu.compute-capability",
    route="compat",
    gpu="Quadro K1200",
    capability="5.0",
)
case(
    "integrated-gpu",
    "GB10: memory shared with the CPU, nothing to copy around.",
    "gpu.integrated",
    route="compat",
    gpu="NVIDIA GB10",
    capability="12.1",
)
case(
    "bar1-full",
    "get_pages answers -12: no room left in BAR1, to be told apart from -22.",
    "gpu.pinning-refused",
    route="nvidia-fs",
    change=logged("nvidia-fs:nvfs_pin_gpu_pages:1202 Error ret -12 invoking nvidia_p2p_get_pages"),
    unsaid=(NOT_CAPABLE,),
    severity={"gpu.pinning-refused": "warning"},
)
case(
    "bar1-256-mib",
    "A small BAR1 limits how much is mapped at a time; the GPU does GDS.",
    "gpu.bar1-small",
    route="nvidia-fs",
    gpu="NVIDIA RTX A4000",
    capability="8.6",
    bars=(1 << 24, 0, 256 << 20),
    unsaid=(NOT_CAPABLE,),
    severity={"gpu.bar1-small": "warning"},
)

# --- IOMMU, ACS, PCI --------------------------------------------------------------------------------------------------

case(
    "iommu-translates",
    "The IOMMU is on and reads go direct nevertheless: told, not failed.",
    "iommu.translated",
    route="nvidia-fs",
    groups="DMA-FQ",
    severity={"iommu.translated": "warning"},
)
case(
    "iommu-passthrough",
    "Pass-through is what P2PDMA wants, and harmless to nvidia-fs.",
    "iommu.passthrough",
    route="nvidia-fs",
    groups="identity",
    severity={"iommu.passthrough": "info"},
)
case(
    "acs-redirects-on-the-path",
    "The ports between this GPU and this drive redirect: those two are named, no other, and it goes direct, only slower.",
    "acs.redirect-on-path",
    route="nvidia-fs",
    acs=(FIRMWARE_NOISE, FIRMWARE_NOISE),
    unsaid=(BLANKET, BESIDE),
    severity={"acs.redirect-on-path": "warning"},
)
case(
    "acs-elsewhere",
    "gdscheck counts bridges of the whole machine; a port beside the path is nobody's business.",
    route="nvidia-fs",
    acs=(0, 0),
    unsaid=(BLANKET, BESIDE),
)
case(
    "acs-source-validation",
    "SrcValid and upstream forwarding alone redirect nothing.",
    route="nvidia-fs",
    acs=(SV, SV | UF),
)
case(
    "acs-parameter-without-effect",
    "pci=disable_acs_redir= is on the command line and the port redirects all the same.",
    "acs.redirect-on-path acs.cmdline-not-effective",
    route="nvidia-fs",
    acs=(RR | CR, 0),
    cmdline=f"ro pci=disable_acs_redir={GPU_PORT};{DRIVE_PORT}",
    unsaid=(BLANKET,),
)
case(
    "across-root-complexes",
    "GPU and drive under different host bridges of one socket: a note on speed, not a verdict on support.",
    "pci.cross-root",
    route="nvidia-fs",
    far="root",
    unsaid=(UNSUPPORTED,),
    severity={"pci.cross-root": "info"},
)
case(
    "across-sockets",
    "GPU and drive at different sockets.",
    "pci.cross-socket",
    route="nvidia-fs",
    far="socket",
    sockets=2,
    unsaid=(UNSUPPORTED,),
    severity={"pci.cross-socket": "warning"},
)
case("half-a-link", "A drive that trained at two lanes of four.", "pci.link-degraded", route="nvidia-fs", width=2)

# --- file systems -----------------------------------------------------------------------------------------------------

case(
    "ext4-mode-not-shown",
    "data=ordered is ext4's default and therefore not in the mount table, where cuFile wants to read it.",
    "fs.ext4-data-ordered",
    route="compat",
    fstype="ext4",
    options="rw,stripe=32",
    unsaid=(BROKEN,),
)
case(
    "ext4-mode-shown", "The same with the option written.", route="nvidia-fs", fstype="ext4", options="rw,data=ordered"
)
case(
    "lvm",
    "A logical volume between file system and drive.",
    "fs.device-mapper",
    route="compat",
    change=mapped("LVM-abcdef"),
    unsaid=(BROKEN,),
)
case("luks", "An encrypted volume.", "fs.device-mapper", route="compat", change=mapped("CRYPT-LUKS2-abcdef-data"))
case(
    "md-without-udev-rule",
    "md RAID0 whose MD_* properties udev does not know: the rule with IMPORT{program} mdadm is missing.",
    "fs.md-udev-rule",
    route="compat",
    change=array(udev=False),
)
case("md-raid0", "The same array with the rule.", route="nvidia-fs", change=array())
case("md-raid5", "A level that libcufile does not take.", "fs.md-level", route="compat", change=array("raid5"))
case(
    "data-on-tmpfs",
    "A test file in memory.",
    "fs.tmpfs fs.unsupported",
    route="none",
    change=bare("tmpfs", "tmpfs"),
    unsaid=(BROKEN,),
)
case(
    "data-on-fuse",
    "A FUSE mount.",
    "fs.unsupported",
    route="compat",
    change=bare("/dev/fuse", "fuse.sshfs"),
    unsaid=(BROKEN,),
)

# --- containers -------------------------------------------------------------------------------------------------------

case(
    "container-sound",
    "A container that was given the devices, /run/udev and the mount.",
    "fs.overlay",
    route="nvidia-fs",
    container=True,
    unsaid=(BROKEN,),
)
case(
    "container-half-state",
    "The host's /proc/driver/nvidia-fs without the devices.",
    "fs.overlay container.no-nvidia-fs-device nvidia-fs.no-device-node",
    route="none",
    container=True,
    nodes=0,
    severity={"container.no-nvidia-fs-device": "critical", "nvidia-fs.no-device-node": "critical"},
)
case(
    "container-on-a-node-without-the-module",
    "Neither module nor devices: harmless.",
    "fs.overlay nvidia-fs.not-loaded",
    route="compat",
    container=True,
    nvidia_fs=None,
    nodes=0,
)
case(
    "container-without-udev",
    "No /run/udev: libcufile finds no ID_FS_USAGE.",
    "fs.overlay container.no-udev",
    route="none",  # compat mode registers the file, too
    container=True,
    change=without("/run/udev"),
    unsaid=(BY_HAND, BROKEN),
)
case(
    "container-without-cufile-json",
    "Nobody put /etc/cufile.json into the image.",
    "fs.overlay container.no-cufile-json",
    route="nvidia-fs",
    container=True,
    change=without("/etc/cufile.json"),
)

# --- NFS, RDMA --------------------------------------------------------------------------------------------------------

case("nfs-over-tcp", "An export mounted over TCP.", "nfs.tcp", route="nvidia-fs", change=nfs("proto=tcp,port=2049"))
case(
    "nfs-port-2009",
    "2009 for 20049, copied from page to page.",
    "nfs.port",
    route="nvidia-fs",
    change=nfs("proto=rdma,port=2009"),
    severity={"nfs.port": "error"},
)
case(
    "nfs-stock-rpcrdma",
    "The kernel's own rpcrdma has no hooks.",
    "rpcrdma.unpatched",
    route="nvidia-fs",
    change=nfs("proto=rdma,port=20049", client=None),
)
case(
    "empty-address-list",
    "`--rdma devices : Not configured` and an empty list mean nothing to local NVMe and plain NFS.",
    route="nvidia-fs",
    config={"properties": {"rdma_dev_addr_list": []}},
)

# --- cufile.json ------------------------------------------------------------------------------------------------------

case(
    "json-of-gdscheck-labels",
    "A file written from what gdscheck prints: the library ignores every name of it.",
    "cufile.label-not-key",
    route="nvidia-fs",
    config={"properties": {"use_compat_mode": False, "max_batch_io_size": 64}},
)
case(
    "json-invented-names",
    "A name that exists nowhere.",
    "cufile.unknown-key",
    route="nvidia-fs",
    config={"properties": {"max_device_cache_mb": 128}},
)
case(
    "json-trailing-comma",
    "A file that is no JSON stops every process that opens the library.",
    "cufile.syntax",
    route="none",
    config='{"properties": {"allow_compat_mode": true,}}',
)
case(
    "json-compat-allowed",
    "allow_compat_mode true is the default and neutral.",
    route="nvidia-fs",
    config={"properties": {"allow_compat_mode": True}},
)

# --- the rest ---------------------------------------------------------------------------------------------------------


def secure_boot(made: Made) -> None:
    made.file("/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", b"\x06\x00\x00\x00\x01")


CHECKED = """\
 GDS release version: 1.16.0.49
 nvidia_fs minimum version: 2.12
 Platform: x86_64
 ============
 ENVIRONMENT:
 ============
 =====================
 DRIVER CONFIGURATION:
 =====================
 NVMe               : compat
 NVMeOF             : compat
 NFS                : compat
 IBM Spectrum Scale : {gpfs}
 Userspace RDMA     : Unsupported
 =====================
 CUFILE CONFIGURATION:
 =====================
 properties.use_compat_mode : true
 =========
 GPU INFO:
 =========
 GPU index 0 NVIDIA A100 80GB PCIe bar:1 bar size (MiB):131072 supports GDS, IOMMU State: Disabled
 ==============
 PLATFORM INFO:
 ==============
 IOMMU: disabled
 Platform verification succeeded
"""


def checked(gpfs: str = "compat", head: str = "") -> Change:
    def change(made: Made) -> None:
        made.outputs["gdscheck"] = head + CHECKED.format(gpfs=gpfs)

    return change


case(
    "minimum-version-is-not-the-loaded-one",
    "gdscheck 1.16 without the module: the only nvidia_fs number is the least that the library takes.",
    "nvidia-fs.not-loaded",
    route="compat",
    nvidia_fs=None,
    release="1.16.0",
    change=checked(),
    unsaid=(INTERFACE,),
)
case(
    "gdscheck-claims-p2pdma-for-gpfs",
    "A row of gdscheck that no such node can live up to.",
    "gdscheck.false-positive-gpfs",
    route="nvidia-fs",
    release="1.16.0",
    nvidia_fs="2.27.3",
    change=checked(gpfs="p2pdma"),
    unsaid=(FOR_NFS,),
)
case(
    "log-file-not-writable",
    "gdscheck warns that it cannot open its log; the rest of its report holds.",
    route="nvidia-fs",
    release="1.16.0",
    nvidia_fs="2.27.3",
    change=checked(head="warn: error opening log file: Permission denied, logging will be disabled\n"),
    unsaid=(FAULTY_CHECK,),
)
case(
    "address-of-another-host",
    "rdma_dev_addr_list with the server's address in place of the node's own.",
    "rdma.dev-addr-not-local",
    route="nvidia-fs",
    config={"properties": {"rdma_dev_addr_list": ["10.0.0.16"]}},
    nic=True,
)
case(
    "key-was-rejected",
    "Secure Boot is on and the module's key is not enrolled.",
    "nvidia-fs.not-loaded secure-boot.unsigned",
    route="compat",
    nvidia_fs=None,
    change=all_of(secure_boot, logged("Loading of module with unavailable key is rejected")),
    unsaid=(CUDA_AGAIN,),
)


case(
    "three-causes-at-once",
    "Stock nvme, an unwritten ext4 mode and redirecting ports: all are told in one run, and each with its own remedy.",
    "nvme.unpatched fs.ext4-data-ordered acs.redirect-on-path",
    route="compat",
    hooks=None,
    fstype="ext4",
    options="rw",
    acs=(FIRMWARE_NOISE, FIRMWARE_NOISE),
    unsaid=(BLANKET, NEEDS_RAID, BROKEN),
)
case(
    "licence-then-symbols-then-nvme",
    "The whole chain of a node set up from distribution packages: proprietary driver, module refused, nvme without hooks.",
    "driver.proprietary nvidia-fs.not-loaded nvidia-fs.proprietary-driver nvme.unpatched",
    route="compat",
    nvidia_fs=None,
    open_kernel=False,
    hooks=None,
    cpu=XEON,
    change=logged("nvidia_fs: module using GPL-only symbols uses symbols from proprietary module nvidia."),
    unsaid=(CUDA_AGAIN, NEEDS_RAID),
)


def unwanted(label: str, report: Report) -> list[str]:
    """What is told of the case and should not be."""
    pattern, _ = UNSAID[label]
    return [text for text in words(report) if re.search(pattern, text, re.IGNORECASE)]

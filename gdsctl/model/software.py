"""Kernel, modules, drivers, GDS and the container they are seen from."""

from __future__ import annotations

from typing import Any, Literal

from gdsctl.model.cufile_run import CufileRun
from gdsctl.record import Record


class Platform(Record, frozen=True, kw_only=True):
    """`kernel_config`: CONFIG_* -> y | m | n for the options gdsctl looks at; `symbols`: kernel symbol -> exported.

    `module_list`: can /proc/modules be read?
    """

    hostname: str | None = None
    kernel: str | None = None
    kernel_version: tuple[int, int, int] | None = None
    arch: str | None = None
    cmdline: str | None = None
    cpu_vendor: str | None = None
    cpu_model: str | None = None
    cpu_family: int | None = None
    sockets: int | None = None
    product: str | None = None
    virtualization: str | None = None
    secure_boot: bool | None = None
    os_id: str | None = None
    os_version: str | None = None
    kernel_config: dict[str, str] | None = None
    symbols: dict[str, bool | None] | None = None
    module_list: bool | None = None
    kernel_log: tuple[str, ...] | None = None


class IommuGroup(Record, frozen=True, kw_only=True):
    id: str
    type: str | None = None
    devices: tuple[str, ...] = ()


class Iommu(Record, frozen=True, kw_only=True):
    """`evidence`: one sentence a source, strongest first; `units`: those a driver runs, dmar0 (Intel) or ivhd0 (AMD)."""

    state: Literal["off", "passthrough", "translated", "unknown"] = "unknown"
    evidence: tuple[str, ...] = ()
    groups: tuple[IommuGroup, ...] = ()
    units: tuple[str, ...] = ()


class Module(Record, frozen=True, kw_only=True):
    loaded: bool | None
    version: str | None = None
    size: int | None = None
    license: str | None = None
    used_by: tuple[str, ...] = ()
    parameters: dict[str, str | None] | None = None
    taint: str | None = None


class NvfsHook(Record, frozen=True, kw_only=True):
    """Does the storage module export what nvidia-fs registers with? `symbol`: exported; `wanted_symbol`: asked for.

    `mismatched` is true where one of the pair v1/v2 is exported and the other is wanted. `source`: what told of the
    registration, where it is not nvidia-fs's own list.
    """

    state: Literal["patched", "stock", "not_loaded", "unknown"] = "unknown"
    symbol: str | None = None
    wanted_symbol: str | None = None
    registered: bool | None = None
    mismatched: bool = False
    source: str | None = None


class NvidiaDriver(Record, frozen=True, kw_only=True):
    """`registry_dwords`: parsed NVreg_RegistryDwords of the running driver.

    `modprobe_registry_dwords`: what modprobe.d would give at the next load (None: not readable).
    `sources`: field -> file or command it came from.
    """

    version: str | None = None
    kind: Literal["open", "proprietary", "unknown"] = "unknown"
    params: dict[str, str] | None = None
    registry_dwords: dict[str, str] | None = None
    modprobe_registry_dwords: dict[str, str] | None = None
    modprobe_files: dict[str, str] | None = None
    sources: dict[str, str] = {}


class NvidiaFs(Record, frozen=True, kw_only=True):
    """`registered`: names in /proc/driver/nvidia-fs/modules; `acs_bridges`: PCI bridges with any ACS bit on.

    `sources`: field -> command it came from, where that is not nvidia-fs itself.
    """

    loaded: bool | None = None
    version: str | None = None
    device_nodes: tuple[str, ...] | None = None
    registered: tuple[str, ...] | None = None
    acs_bridges: tuple[str, ...] | None = None
    stats: dict[str, Any] | None = None
    rw_stats_enabled: bool | None = None
    peer_distance: tuple[dict[str, Any], ...] | None = None
    sources: dict[str, str] = {}


class CufileConfig(Record, frozen=True, kw_only=True):
    """What the node's library would merge. `files`: paths in order read; `problems`: one line a problem.

    `texts`: path -> text, kept for lint; `env`: CUFILE_* of the environment gdsctl ran in.
    `paths`: what the files name and libcufile looks at -> does it stand there; None: not known, with a gap.
    `static_routing`: text of the static routing file where one is switched on and could be read.
    """

    files: tuple[str, ...] | None = None
    merged: dict[str, Any] | None = None
    problems: tuple[str, ...] = ()
    env: dict[str, str] = {}
    texts: dict[str, str] = {}
    paths: dict[str, bool | None] = {}
    static_routing: str | None = None


class Gds(Record, frozen=True, kw_only=True):
    """`version`: of libcufile as the package counts (1.14.1); `libcufile`: its path; `gdscheck`: parsed report.

    `last_run`: what the last cuFile process of this boot logged, None where no log is named or none was written.
    `gpfs_verbs_ports`: devices of Storage Scale's verbsPorts (`mlx5_0/1`), None where Storage Scale did not say.
    """

    version: str | None = None
    libcufile: str | None = None
    gdscheck: dict[str, Any] | None = None
    cufile_config: CufileConfig = CufileConfig()
    last_run: CufileRun | None = None
    udev_rule_md: bool | None = None
    gpfs_verbs_ports: tuple[str, ...] | None = None


class Container(Record, frozen=True, kw_only=True):
    """`kind`: docker | podman | kubernetes | lxc | none | unknown.

    `has_gpu_nodes`: /dev/nvidiaN; `has_sysfs`: /sys with the PCI functions; `nvidia_fs_nodes`: how many /dev/nvidia-fsN the
    driver made (on the host); `rdma_nodes`: names in /dev/infiniband; `ipc_lock`: CAP_IPC_LOCK, which lifts the limit on
    locked memory; `io_uring`: may rings be set up; `toolkit_gds`: is NVIDIA's container toolkit asked for what GDS needs?
    `host_network`: of a container known by its file alone: does it share the node's network?
    """

    kind: str | None = None
    has_udev_db: bool | None = None
    has_cufile_json: bool | None = None
    has_gpu_nodes: bool | None = None
    has_sysfs: bool | None = None
    nvidia_fs_nodes: int | None = None
    rdma_nodes: tuple[str, ...] | None = None
    memlock_bytes: int | None = None
    ipc_lock: bool | None = None
    io_uring: bool | None = None
    toolkit_gds: bool | None = None
    host_network: bool | None = None
    evidence: tuple[str, ...] = ()

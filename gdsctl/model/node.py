"""The whole machine, and the document that `inspect` prints."""

from __future__ import annotations

from typing import Any, Literal

from gdsctl.model.devices import Block, FstabEntry, Gpu, LnetNi, LnetOption, Mount, Nic, Nvme, NvmeHost
from gdsctl.model.judgement import Finding, Pair, Route
from gdsctl.model.pci import PciDevice
from gdsctl.model.software import Container, Gds, Iommu, Module, NvfsHook, NvidiaDriver, NvidiaFs, Platform
from gdsctl.model.unknown import Gap, Unknown
from gdsctl.record import Record

SCHEMA_VERSION = "1"


class Tool(Record, frozen=True, kw_only=True):
    name: str
    version: str


class SourceInfo(Record, frozen=True, kw_only=True):
    """Where the facts came from. `path`: what the user named; `captured_at`: ISO time; `note`: e.g. "synthetic"."""

    kind: Literal["live", "snapshot", "tree", "assembled"]
    path: str | None = None
    host: str | None = None
    captured_at: str | None = None
    euid: int | None = None
    note: str | None = None


class Pci(Record, frozen=True, kw_only=True):
    """`whole`: every function of the machine is among them; false where they were pasted, which may be a part."""

    devices: tuple[PciDevice, ...] = ()
    whole: bool = True


class NumaNode(Record, frozen=True, kw_only=True):
    id: int
    cpus: str | None = None
    memory_bytes: int | None = None
    socket: int | None = None
    distances: tuple[int, ...] = ()


class Numa(Record, frozen=True, kw_only=True):
    nodes: tuple[NumaNode, ...] = ()


class Node(Record, frozen=True, kw_only=True):
    """Facts only. `gaps` says which Nones are unknowns and why; a None without a gap means "none" or "does not apply".

    Not in the document, so without a gap: `smi_topo`; `fstab`, None where /etc/fstab was not captured; `nvme_host`; `lnet`,
    None where LNet's interfaces were not read; `lnet_options`, None where modprobe.d was not.
    """

    source: SourceInfo
    platform: Platform = Platform()
    iommu: Iommu = Iommu()
    pci: Pci = Pci()
    numa: Numa = Numa()
    gpus: tuple[Gpu, ...] = ()
    nics: tuple[Nic, ...] = ()
    nvme: tuple[Nvme, ...] = ()
    block: tuple[Block, ...] = ()
    mounts: tuple[Mount, ...] = ()
    modules: dict[str, Module] = {}
    nvfs_hooks: dict[str, NvfsHook] = {}
    nvidia_driver: NvidiaDriver = NvidiaDriver()
    nvidia_fs: NvidiaFs = NvidiaFs()
    gds: Gds = Gds()
    container: Container = Container()
    smi_topo: dict[str, Any] | None = None
    fstab: tuple[FstabEntry, ...] | None = None
    nvme_host: NvmeHost = NvmeHost()
    lnet: tuple[LnetNi, ...] | None = None
    lnet_options: tuple[LnetOption, ...] | None = None
    gaps: tuple[Gap, ...] = ()

    def gap(self, section: str, field: str, key: str | None = None) -> Gap | None:
        """Why a field of a record is not known, or None where it is known (or is none)."""
        return next((g for g in self.gaps if g.section == section and g.field == field and g.key in (key, None)), None)


class Report(Record, frozen=True, kw_only=True):
    """The `inspect` document: facts, pairs, routes, findings and what stayed unknown."""

    schema_version: str = SCHEMA_VERSION
    tool: Tool
    source: SourceInfo
    platform: Platform
    iommu: Iommu
    pci: Pci
    numa: Numa
    gpus: tuple[Gpu, ...]
    nics: tuple[Nic, ...]
    nvme: tuple[Nvme, ...]
    block: tuple[Block, ...]
    mounts: tuple[Mount, ...]
    modules: dict[str, Module]
    nvfs_hooks: dict[str, NvfsHook]
    nvidia_driver: NvidiaDriver
    nvidia_fs: NvidiaFs
    gds: Gds
    container: Container
    pairs: tuple[Pair, ...]
    routes: tuple[Route, ...]
    findings: tuple[Finding, ...]
    unknowns: tuple[Unknown, ...]

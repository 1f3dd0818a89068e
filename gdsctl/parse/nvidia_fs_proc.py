"""The small files of /proc/driver/nvidia-fs: nvidia-fs, src/nvfs-proc.c and src/nvfs-pci.c."""

from __future__ import annotations

import re

from gdsctl.errors import InputError
from gdsctl.model.pci import canonical_address
from gdsctl.record import Record, Warned


class NvfsModules(Record, frozen=True, kw_only=True):
    """Registered names -> version as printed. Only wekafsio (always listed) and scsi_mod have one; go by the names."""

    modules: dict[str, str | None]
    warnings: tuple[Warned, ...] = ()


class NvfsBridges(Record, frozen=True, kw_only=True):
    """PCI bridges with any ACS bit on, in the order listed."""

    bridges: tuple[str, ...]
    warnings: tuple[Warned, ...] = ()


class PeerDistance(Record, frozen=True, kw_only=True, rename={"class_": "class"}):
    """One row: the driver's rank of a peer for a GPU, lower is nearer.

    `link`: lanes, `gen`: PCIe generation, `numa`: the peer's node, None in drivers without the column or for -1.
    """

    gpu: str
    peer: str
    peerrank: int | None = None
    p2pdist: int | None = None
    link: int | None = None
    gen: int | None = None
    numa: int | None = None
    np2p: int | None = None
    class_: str | None = None


class PeerDistances(Record, frozen=True, kw_only=True):
    rows: tuple[PeerDistance, ...]
    warnings: tuple[Warned, ...] = ()


_MODULE = re.compile(r"\s*([\w.-]{1,64})\s*:\s*(\(null\)|\S{1,64})\s*", re.ASCII)
_VERSION = re.compile(r"\s*version\s*:\s*(\d{1,4}(?:\.\d{1,4}){1,3})\s*", re.ASCII)
_NUMBER = re.compile(r"0x[0-9a-fA-F]{1,16}|\d{1,18}", re.ASCII)
_NUMBERS = ("peerrank", "p2pdist", "link", "gen", "numa", "np2p")
_NO_NODE = 0xFFFFFFFF


def _lines(text: str) -> list[tuple[int, str]]:
    return [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]


def parse_modules(text: str) -> NvfsModules:
    """An empty file is no module."""
    modules: dict[str, str | None] = {}
    warnings = []
    for number, line in _lines(text):
        if match := _MODULE.fullmatch(line):
            modules[match[1]] = None if match[2] == "(null)" else match[2]
        else:
            warnings.append(Warned(line=number, message="not `module: version`"))
    return NvfsModules(modules=modules, warnings=tuple(warnings))


def parse_bridges(text: str) -> NvfsBridges:
    """An empty file is no bridge with ACS on."""
    bridges = []
    warnings = []
    for number, line in _lines(text):
        if address := canonical_address(line):
            bridges.append(address)
        else:
            warnings.append(Warned(line=number, message="not a PCI address"))
    return NvfsBridges(bridges=tuple(bridges), warnings=tuple(warnings))


def parse_version(text: str) -> str | None:
    """`version: 2.28` -> "2.28": major and minor only."""
    match = _VERSION.fullmatch(text)
    return match[1] if match else None


def parse_devcount(text: str) -> int | None:
    """Number of /dev/nvidia-fs* that the driver made."""
    return int(text) if re.fullmatch(r"\s*[0-9]{1,4}\s*", text) else None


def _number(cell: str) -> int | None:
    return int(cell, 0 if cell.startswith("0x") else 10) if _NUMBER.fullmatch(cell) else None


def parse_peer_distance(text: str) -> PeerDistances:
    """Columns by the names in the header, which moved between versions. Raises InputError without a header."""
    lines = _lines(text)
    if not lines:
        return PeerDistances(rows=())
    header = lines[0][1].split()
    if header[:2] != ["gpu", "peer"]:
        raise InputError("not the text of /proc/driver/nvidia-fs/peer_distance", line=lines[0][0])
    rows = []
    warnings = []
    for number, line in lines[1:]:
        cells = line.split()
        named = dict(zip(header, cells, strict=False))
        gpu, peer = canonical_address(cells[0]), canonical_address(named.get("peer", ""))
        if len(cells) != len(header) or gpu is None or peer is None:
            warnings.append(Warned(line=number, message="cells and header do not match"))
            continue
        numbers = {name: _number(named.get(name, "")) for name in _NUMBERS}
        if numbers["numa"] == _NO_NODE:
            numbers["numa"] = None
        rows.append(PeerDistance(gpu=gpu, peer=peer, class_=named.get("class"), **numbers))
    return PeerDistances(rows=tuple(rows), warnings=tuple(warnings))

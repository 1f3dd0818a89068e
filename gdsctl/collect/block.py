"""Block devices and what they rest on: `/sys/class/block`, `/sys/block`, udev's database."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from gdsctl.collect.reader import Reader
from gdsctl.model.devices import Block, Nvme
from gdsctl.parse.storage_text import parse_udev
from gdsctl.source.base import Missing, got

_SECTOR_BYTES = 512
"""What `size` counts in, whatever the disk's own block size; Linux Documentation/ABI/stable/sysfs-block."""
_NETWORK = re.compile(r"(?:nbd|rbd|drbd|etherd!)")
_EMPTY_MEANS_UNUSED = re.compile(r"(?:loop|nbd|ram)\d+$")
_DM_NAME = re.compile(
    r"dm-\d+$"
)  # the kernel's own names: drivers/md/dm.c, alloc_dev(), and drivers/md/md.c, md_alloc()
_MD_NAME = re.compile(r"md(?:\d+|_\w+)$")
_DM_TYPE = re.compile(r"([A-Za-z]+)\d*-")

Kind = Literal["disk", "part", "md", "dm", "loop", "network"]


def collect(reader: Reader, nvme: tuple[Nvme, ...]) -> tuple[Block, ...]:
    """Every block device that can be opened, except RAM disks and unused loop and network devices.

    `slaves` of a partition is its disk. `level` of a dm device is the owner in its uuid: lvm, crypt, mpath ...
    """
    places = _places(reader)
    below = {name: _below(reader, place, places) for name, place in places.items()}
    controllers: dict[str, list[str]] = {}
    for controller in nvme:
        for namespace in controller.namespaces:
            controllers.setdefault(namespace, []).append(controller.name)
    udev = _Udev(reader)
    integrity = {
        name: reader.source.read(f"{place}/integrity/device_is_integrity_capable") for name, place in places.items()
    }
    blocks = []
    for name, place in places.items():
        sectors = _number(reader.value(f"{place}/size"))
        device = reader.value(f"{place}/dev")
        if (
            reader.value(f"{place}/hidden") == "1"
            or re.match(r"ram\d", name)
            or (not sectors and _EMPTY_MEANS_UNUSED.match(name))
        ):
            continue
        kind = _kind(reader, name, place)
        if kind in ("md", "dm") and not below[name] and not got(reader.source.names(f"{place}/slaves")):
            reader.gap("block", "slaves", "absent", key=_shown(name), settle_with=f"lsblk -s /dev/{_shown(name)}")
        capable = integrity[name]
        if isinstance(capable, Missing) and kind == "part" and below[name]:
            capable = integrity.get(below[name][0], capable)
        if isinstance(capable, Missing) and capable.status != "absent":
            reader.gap(
                "block",
                "integrity",
                capable,
                key=_shown(name),
                settle_with=f"cat {place}/integrity/device_is_integrity_capable",
            )
        blocks.append(
            Block(
                name=_shown(name),
                kind=kind,
                slaves=tuple(map(_shown, below[name])),
                level=_level(reader, place, kind, _shown(name)),
                members=_members(name, below, controllers),
                integrity=None if isinstance(capable, Missing) else capable.strip() == b"1",
                major_minor=device,
                size_bytes=None if sectors is None else sectors * _SECTOR_BYTES,
                logical_block_bytes=_number(
                    reader.value(f"{_disk(name, below, place, places, kind)}/queue/logical_block_size")
                ),
                udev=udev.properties(_shown(name), device),
            )
        )
    return tuple(blocks)


def _places(reader: Reader) -> dict[str, str]:
    """Name in sysfs -> folder. `/sys/block` lists no partitions: they stand below their disks."""
    names = reader.source.names("/sys/class/block")
    if got(names):
        return {name: f"/sys/class/block/{name}" for name in _sorted(names)}
    disks = reader.source.names("/sys/block")
    if isinstance(disks, Missing):
        if (isinstance(names, Missing) and names.status != "absent") or disks.status != "absent":
            reader.gap("block", "", disks, detail="/sys/class/block", settle_with="lsblk -a")
        return {}
    places: dict[str, str] = {}
    for disk in _sorted(disks):
        places[disk] = f"/sys/block/{disk}"
        inside = reader.source.names(places[disk])
        for part in _sorted(inside) if got(inside) else ():
            if part.startswith(disk) and reader.source.exists(f"{places[disk]}/{part}/partition") is True:
                places[part] = f"{places[disk]}/{part}"
    return places


def _below(reader: Reader, place: str, places: Mapping[str, str]) -> tuple[str, ...]:
    """What a device rests on: the disk of a partition, the slaves of a stacked device."""
    slaves = reader.source.names(f"{place}/slaves")
    if got(slaves) and slaves:
        return _sorted(slaves)
    if reader.source.exists(f"{place}/partition") is True:
        real = reader.source.real(place)
        disk = real.split("/")[-2] if got(real) and real.count("/") > 2 else ""
        return (disk,) if disk in places else ()
    return ()


def _members(name: str, below: Mapping[str, tuple[str, ...]], controllers: Mapping[str, list[str]]) -> tuple[str, ...]:
    """The leaves under a device, NVMe namespaces as their controllers."""
    leaves: dict[str, None] = {}
    seen: set[str] = set()
    todo = [name]
    while todo:
        part = todo.pop()
        if part in seen:
            continue
        seen.add(part)
        if below.get(part):
            todo += reversed(below[part])
        else:
            leaves.update(dict.fromkeys(controllers.get(part, [_shown(part)])))
    return tuple(leaves)


def _kind(reader: Reader, name: str, place: str) -> Kind:
    if reader.source.exists(f"{place}/partition") is True:
        return "part"
    if _MD_NAME.match(name) or reader.source.exists(f"{place}/md/level") is True:
        return "md"
    if _DM_NAME.match(name) or reader.source.exists(f"{place}/dm/name") is True:
        return "dm"
    if name.startswith("loop"):
        return "loop"
    return "network" if _NETWORK.match(name) else "disk"


def _level(reader: Reader, place: str, kind: Kind, name: str) -> str | None:
    if kind == "md":
        level = reader.value(f"{place}/md/level")
        if not level:
            reader.gap(
                "block",
                "level",
                "absent" if level is None else "error",
                key=name,
                detail="" if level is None else "an inactive array has no level",
                settle_with="cat /proc/mdstat",
            )
        return level or None
    if kind == "dm":
        match = _DM_TYPE.match(reader.value(f"{place}/dm/uuid") or "")
        return match[1].lower() if match else None
    return None


def _disk(name: str, below: Mapping[str, tuple[str, ...]], place: str, places: Mapping[str, str], kind: Kind) -> str:
    """Where `queue` stands: a partition has none of its own."""
    return places[below[name][0]] if kind == "part" and below[name] else place


class _Udev:
    """udev's properties: of the database if one stands, else what its library said."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._told: dict[str, dict[str, str]] | None = None

    def properties(self, name: str, device: str | None) -> dict[str, str] | None:
        entry = self._reader.parsed(f"/run/udev/data/b{device}", parse_udev) if device else Missing(status="absent")
        if not isinstance(entry, Missing):
            return entry
        if self._told is None:
            self._told = _of_library(self._reader.source.ask("udev"))
        if name in self._told:
            return self._told[name]
        self._reader.gap(
            "block", "udev", entry, key=name, detail="udev's database", settle_with=f"udevadm info /dev/{name}"
        )
        return None


def _of_library(answer: Any) -> dict[str, dict[str, str]]:
    """The library's properties of block devices; none where no udevd runs, since its rules set nothing then."""
    try:
        rows = answer["devices"]["block"] if answer["initialized"] else {}
        return {str(name): {str(key): str(value) for key, value in row.items()} for name, row in rows.items()}
    except (TypeError, KeyError, AttributeError):  # no answer, or a snapshot's of another shape
        return {}


def _shown(name: str) -> str:
    """A `/` in a device's name is a `!` in sysfs."""
    return name.replace("!", "/")


def _sorted(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(
        sorted(names, key=lambda name: [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)])
    )


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 21 else None

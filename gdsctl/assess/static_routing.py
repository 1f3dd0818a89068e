"""The file of `miscellaneous.static_routing_filepath`: which drives and NICs each GPU should take, nearest first.

libcufile 1.17 to 1.20 take it in place of their own look at the PCI tree; one device that they cannot read, and they
look at the tree after all. All that is told here was found by asking those libraries.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from gdsctl.assess.cufile_merge import Layer, Problem, get, read
from gdsctl.model.node import Node
from gdsctl.model.pci import canonical_address
from gdsctl.parse.cufile_json import escape

KEYS = ("miscellaneous.enable_static_routing", "miscellaneous.static_routing_filepath")
FIELDS = ("bdf", "type", "socket", "numa_node", "pcie_group")
NEAREST, NO_AFFINITY = 1, 28672

_ID = "cufile.static-routing"
_TYPES = {"GPU": ("03", "12", "0b"), "NET": ("02",), "NVME": ("0108",)}
_BDF = re.compile(r"[0-9a-fA-F]{1,8}:[0-9a-fA-F]{1,2}:[0-9a-fA-F]{1,2}\.[0-7]")
_IGNORED = "libcufile takes nothing of the file and looks at the PCI tree instead"


def asked_for(values: Mapping[str, Any]) -> str | None:
    """The file that a merged configuration names and switches on."""
    path = get(values, KEYS[1])
    return path if get(values, KEYS[0]) is True and isinstance(path, str) and path != "none" else None


def is_one(text: str) -> bool:
    """Does a text look like such a file, rather than like a cufile.json?"""
    layer = read("", text)
    values = [] if isinstance(layer, Problem) else list(layer.root.values())
    return any(isinstance(value, dict) and "bdf" in value for value in values)


def preferences(text: str) -> dict[str, tuple[tuple[str, ...], ...]] | None:
    """GPU -> its peers' addresses, nearest first, equals together; None where libcufile takes nothing of the file."""
    layer = read("", text)
    if isinstance(layer, Problem) or any(problem.severity != "warning" for problem in _problems(layer, None)):
        return None
    addresses = {name: canonical_address(row["bdf"]) or "" for name, row in layer.root.items()}
    found = {}
    for name, row in layer.root.items():
        groups: dict[int, list[str]] = {}
        for entry in row.get("preferences", ()):
            groups.setdefault(entry["order"], []).extend(addresses[device] for device in entry["devices"])
        if row["type"].upper() == "GPU":
            found[addresses[name]] = tuple(
                tuple(groups[order]) for order in sorted(groups) if NEAREST <= order < NO_AFFINITY
            )
    return found


def lint(path: str, text: str, *, node: Node | None = None) -> tuple[Problem, ...]:
    """What is wrong with the file, in its order. `node`: whose devices it should name, where its PCI functions are known."""
    layer = read(path, text)
    if isinstance(layer, Problem):
        message = layer.message.partition("; no cuFile process")[0]
        return (
            msgspec.structs.replace(layer, message=f"{message}; {_IGNORED}", severity="error", fatal=False, id=_ID),
        )
    return tuple(_problems(layer, node))


def _problems(layer: Layer, node: Node | None) -> Iterator[Problem]:
    if not layer.root:
        yield _refused(layer, "", "no device is named")
    known = (
        {device.address: device for device in node.pci.devices} if node and node.gap("pci/devices", "") is None else {}
    )
    owners: dict[str, str] = {}
    for name, row in layer.root.items():
        pointer = f"/{escape(name)}"
        if not isinstance(row, dict) and row is not None:
            yield _aborts(layer, pointer, f"{name} is not an object")
            continue
        if not name:
            yield _refused(layer, pointer, "a device without a name")
        yield from _device(layer, pointer, name, row or {})
        bdf = (row or {}).get("bdf")
        address = canonical_address(bdf) if isinstance(bdf, str) else None
        if address is None:
            continue
        if address in owners:
            yield _refused(layer, f"{pointer}/bdf", f"{name} and {owners[address]} are both {address}")
        owners.setdefault(address, name)
        if known and address not in known:
            yield _refused(layer, f"{pointer}/bdf", f"{name}: this node has no device {address}")
        elif known:
            class_ = known[address].class_ or ""
            kind = (row or {}).get("type")
            if isinstance(kind, str) and class_ and not class_.startswith(_TYPES.get(kind.upper(), ("",))):
                yield _warned(
                    layer, f"{pointer}/type", f"{name} is taken as {kind}, but {address} is of class {class_}"
                )
    yield from _left_out(layer, node, owners)


def _device(layer: Layer, pointer: str, name: str, row: Mapping[str, Any]) -> Iterator[Problem]:
    missing = [field for field in FIELDS if field not in row]
    if missing:
        yield _refused(layer, pointer, f"{name} lacks {', '.join(missing)}")
    for field in ("bdf", "type"):
        if field in row and not isinstance(row[field], str):
            yield _refused(layer, f"{pointer}/{field}", f"{name}: {field} is not a text")
    for field in ("socket", "numa_node", "pcie_group"):
        if field not in row:
            continue
        if not _is_int(row[field]):
            yield _refused(layer, f"{pointer}/{field}", f"{name}: {field} is not a whole number")
        elif row[field] < 0:
            told = "libcufile's own export leaves it at -1 to be filled in"
            yield _refused(layer, f"{pointer}/{field}", f"{name}: {field} is {row[field]}; {told}")
    bdf, kind = row.get("bdf"), row.get("type")
    if isinstance(bdf, str) and not _BDF.match(bdf.strip()):
        fault = f"{name}: {bdf[:40]!r} is not a PCI address such as 0000:1b:00.0"
        # It looks for the dot first, and stumbles over what else is wrong.
        yield (_aborts if "." in bdf else _refused)(layer, f"{pointer}/bdf", fault)
    if isinstance(kind, str) and kind.upper() not in _TYPES:
        yield _refused(layer, f"{pointer}/type", f"{name}: {kind[:40]!r} is not one of {', '.join(_TYPES)}")
    if isinstance(kind, str) and kind.upper() == "GPU":
        yield from _preferences(layer, pointer, name, row)


def _preferences(layer: Layer, pointer: str, name: str, row: Mapping[str, Any]) -> Iterator[Problem]:
    if "preferences" not in row:
        yield _warned(layer, pointer, f"{name} has no preferences, so every device is equally far from it")
        return
    entries = row["preferences"]
    if not isinstance(entries, list):
        yield _refused(layer, f"{pointer}/preferences", f"{name}: preferences is not a list")
        return
    placed: dict[str, int] = {}
    for at, entry in enumerate(entries):
        here = f"{pointer}/preferences/{at}"
        if entry is not None and not isinstance(entry, dict):
            yield _aborts(layer, here, f"{name}: a preference that is not an object")
        elif entry is None or "order" not in entry or "devices" not in entry:
            yield _refused(layer, here, f"{name}: a preference wants order and devices")
        elif not _is_int(entry["order"]):
            yield _refused(layer, f"{here}/order", f"{name}: order is not a whole number")
        elif not isinstance(entry["devices"], list) or not all(isinstance(d, str) for d in entry["devices"]):
            yield _refused(layer, f"{here}/devices", f"{name}: devices is not a list of names")
        else:
            if not NEAREST <= entry["order"] <= NO_AFFINITY:
                span = f"from {NEAREST} (nearest) to {NO_AFFINITY} (no affinity)"
                yield _warned(
                    layer, f"{here}/order", f"{name}: order {entry['order']} is not {span}, and is taken as the last"
                )
            yield from _named(layer, here, name, entry, placed)


def _named(layer: Layer, here: str, gpu: str, entry: Mapping[str, Any], placed: dict[str, int]) -> Iterator[Problem]:
    for at, device in enumerate(entry["devices"]):
        pointer = f"{here}/devices/{at}"
        if device not in layer.root:
            yield _refused(layer, pointer, f"{gpu} prefers {device[:60]!r}, which the file does not describe")
        elif device in placed:
            yield _warned(layer, pointer, f"{gpu} names {device} at {placed[device]} and at {entry['order']}")
        placed.setdefault(device, entry["order"])


def _left_out(layer: Layer, node: Node | None, owners: Mapping[str, str]) -> Iterator[Problem]:
    """Devices that the file is silent of: to libcufile they are equally far from every GPU, or not there."""
    if node is None or not owners:
        return
    wanted = [(gpu.address, f"GPU {gpu.index}") for gpu in node.gpus if gpu.kind != "other-accelerator"]
    wanted += [(nic.address, nic.rdma_device) for nic in node.nics if nic.rdma_device]
    for address, name in wanted:
        if address and address not in owners:
            yield _warned(layer, "", f"{name} ({address}) is not in the file, so nothing is near to it")


def _is_int(value: Any) -> bool:
    """As the library counts: 1.0 is one, true is not."""
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return whole and not isinstance(value, bool) and -(2**31) <= value < 2**31


def _refused(layer: Layer, pointer: str, fault: str) -> Problem:
    return _problem(layer, pointer, "error", f"{fault}: {_IGNORED}")


def _aborts(layer: Layer, pointer: str, fault: str) -> Problem:
    return msgspec.structs.replace(
        _problem(layer, pointer, "critical", f"{fault}: libcufile aborts the process"), fatal=True
    )


def _warned(layer: Layer, pointer: str, fault: str) -> Problem:
    return _problem(layer, pointer, "warning", fault)


def _problem(layer: Layer, pointer: str, severity: Any, message: str) -> Problem:
    line, column = layer.line_column(pointer) if pointer else (None, None)
    return Problem(
        id=_ID,
        severity=severity,
        path=layer.path,
        line=line,
        column=column,
        pointer=pointer or None,
        message=message,
        remedy="Correct it, or have it written for this node: gdsctl plan --emit static-routing.",
    )

"""NVMe controllers: `/sys/class/nvme`, `/sys/class/nvme-subsystem` and the PCI functions they sit on.

Where sysfs was not captured, the PCI functions of class 0108 stand for their controllers. The kernel's number is not
known then, so that such a record is named `nvme@ADDRESS`, which no controller of Linux can be called.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from gdsctl.collect.reader import Reader
from gdsctl.model.devices import Nvme, NvmeHost
from gdsctl.model.pci import PciDevice, canonical_address
from gdsctl.parse import nvme_address
from gdsctl.source.base import Missing, got

_CONTROLLER = re.compile(r"nvme\d+$")
_NAMESPACE = re.compile(r"nvme\d+n\d+$")
_PATH = re.compile(r"nvme(\d+)c\d+n(\d+)$")  # one path to a namespace; the head is nvmeXnY
_CMB_SIZE = re.compile(r"cmbsz\s*:\s*0x([0-9a-fA-F]{1,8})\b")
_NVME_CLASS = "0108"
_SETTLE = "nvme list -v"


def collect(reader: Reader, pci: tuple[PciDevice, ...]) -> tuple[Nvme, ...]:
    """Every controller, in the order of their numbers; `namespaces` are names of block devices one can open.

    Those known by their PCI functions alone come in the order of their addresses.
    """
    functions = {device.address: device for device in pci}
    names = reader.source.names("/sys/class/nvme")
    places = {name: f"/sys/class/nvme/{name}" for name in names if _CONTROLLER.match(name)} if got(names) else {}
    subsystems = _subsystems(reader)
    known = set(places.values())
    places |= _without_class(reader, functions.values(), {_function(reader, place) for place in known})
    if not places and isinstance(names, Missing) and names.status != "absent":
        found = _unnamed(reader, pci, names)
        if not found:
            reader.gap("nvme", "", names, detail="/sys/class/nvme", settle_with=_SETTLE)
        return found
    return tuple(
        _controller(reader, name, places[name], functions, subsystems.get(name))
        for name in sorted(places, key=lambda name: int(name[4:]))
    )


def _controller(
    reader: Reader,
    name: str,
    place: str,
    functions: dict[str, PciDevice],
    subsystem: tuple[str, tuple[str, ...]] | None,
) -> Nvme:
    address = _function(reader, place)
    transport = reader.value(f"{place}/transport") or ("pcie" if address else None)  # the attribute came with 4.8
    if transport is None:
        reader.gap("nvme", "transport", "absent", key=name, settle_with=f"cat {place}/transport")
    fabrics = nvme_address.parse(reader.value(f"{place}/address") or "")
    own, behind = _own_namespaces(reader, place, address)
    subsystem_name, listed = subsystem or (None, ())
    # A tree that lacks the hidden path devices still has the heads, which belong to every controller of the subsystem.
    heads = behind or (listed if not own else ())
    function = functions.get(address) if address else None
    numa = _number(reader.value(f"{place}/numa_node"))
    if numa is None and address:
        numa = function.numa_node if function else _number(reader.value(f"/sys/bus/pci/devices/{address}/numa_node"))
    return Nvme(
        name=name,
        address=address,
        transport=transport,
        traddr=fabrics.traddr,
        subsystem=subsystem_name,
        namespaces=tuple(sorted({*own, *heads}, key=_digits)),
        driver=_driver(reader, address, function, transport),
        cmb_bytes=_cmb_bytes(reader, place, address),
        multipath=bool(heads) if own or heads else None,
        model=reader.value(f"{place}/model") or None,
        numa_node=numa if numa is not None and numa >= 0 else None,
        host_traddr=fabrics.host_traddr or fabrics.src_addr,
        host_iface=fabrics.host_iface,
        trsvcid=fabrics.trsvcid,
        **_fabrics(reader, name, place) if transport not in (None, "pcie") else {},
    )


def host(reader: Reader) -> NvmeHost:
    """Of /etc/nvme; comments and empty lines are left out as nvme-cli does (fabrics.c, discover_from_conf_file)."""
    text = reader.text("/etc/nvme/discovery.conf")
    if isinstance(text, Missing):
        lines: tuple[str, ...] | None = () if text.status == "absent" else None
    else:
        lines = tuple(line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return NvmeHost(hostnqn=reader.value("/etc/nvme/hostnqn") or None, discovery=lines)


def _fabrics(reader: Reader, name: str, place: str) -> dict[str, str | None]:
    """Older kernels lack the attributes hostnqn and cntrltype, so that their absence is no gap."""
    nqn = reader.value(f"{place}/subsysnqn") or None
    if nqn is None:
        reader.gap("nvme", "nqn", "absent", key=name, settle_with=f"cat {place}/subsysnqn")
    return {
        "nqn": nqn,
        "hostnqn": reader.value(f"{place}/hostnqn") or None,
        "controller_type": reader.value(f"{place}/cntrltype") or None,
    }


def _unnamed(reader: Reader, pci: tuple[PciDevice, ...], why: Missing) -> tuple[Nvme, ...]:
    """A drive that another driver holds (vfio-pci) is no controller of this kernel."""
    functions = [f for f in pci if (f.class_ or "").startswith(_NVME_CLASS) and f.driver in (None, "nvme")]
    found = tuple(
        Nvme(
            name=f"nvme@{function.address}",
            address=function.address,
            transport="pcie",
            driver=function.driver,
            numa_node=function.numa_node,
        )
        for function in functions
    )
    for controller in found:
        for field in ("namespaces", "multipath"):
            reader.gap("nvme", field, why, key=controller.name, settle_with=_SETTLE)
    return found


def _subsystems(reader: Reader) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Controller -> its subsystem and the multipath heads there. Empty before Linux 4.15, which has no such class."""
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    names = reader.source.names("/sys/class/nvme-subsystem")
    for subsystem in names if got(names) else ():
        inside = reader.source.names(f"/sys/class/nvme-subsystem/{subsystem}")
        if not got(inside):
            continue
        heads = tuple(name for name in inside if _NAMESPACE.match(name))
        found |= {name: (subsystem, heads) for name in inside if _CONTROLLER.match(name)}
    return found


def _own_namespaces(reader: Reader, place: str, address: str | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Namespaces right below the controller, and the heads whose hidden path devices stand there."""
    inside = reader.source.names(place)
    names = inside if got(inside) else ()
    if address and not any(map(_NAMESPACE.match, names)):  # in Linux 3.x the disk hung on the PCI function
        below = reader.source.names(f"/sys/bus/pci/devices/{address}/block")
        names += below if got(below) else ()
    own = tuple(name for name in names if _NAMESPACE.match(name))
    return own, tuple(f"nvme{match[1]}n{match[2]}" for match in map(_PATH.match, names) if match)


def _function(reader: Reader, place: str) -> str | None:
    """PCI address of a controller: of the nearest folder above it that is named like one; the attribute otherwise."""
    real = reader.source.real(place)
    for part in reversed(real.split("/")) if got(real) else ():
        address = canonical_address(part)
        if address:  # be it listed or not: the next one above would be the port
            return address
    return canonical_address(reader.value(f"{place}/address") or "")


def _without_class(reader: Reader, functions: Iterable[PciDevice], seen: set[str | None]) -> dict[str, str]:
    """Controllers that only their PCI function knows of: a misc device in Linux 3.x, or a tree without the class."""
    places: dict[str, str] = {}
    for function in functions:
        if not (function.class_ or "").startswith(_NVME_CLASS) or function.address in seen:
            continue
        for folder in ("nvme", "misc"):
            parent = f"/sys/bus/pci/devices/{function.address}/{folder}"
            names = reader.source.names(parent)
            places |= {name: f"{parent}/{name}" for name in names if _CONTROLLER.match(name)} if got(names) else {}
    return places


def _driver(reader: Reader, address: str | None, function: PciDevice | None, transport: str | None) -> str | None:
    if function and function.driver:
        return function.driver
    if address:
        real = reader.source.real(f"/sys/bus/pci/devices/{address}/driver")
        return real.rpartition("/")[2] if got(real) else None
    return {"rdma": "nvme_rdma", "tcp": "nvme_tcp", "fc": "nvme_fc", "loop": "nvme_loop"}.get(transport or "")


def _cmb_bytes(reader: Reader, place: str, address: str | None) -> int | None:
    """Controller memory buffer: CMBSZ as `cmb` prints it (NVMe Base Specification 2.0, 3.1.3.12), or p2pmem/size."""
    match = _CMB_SIZE.search(reader.value(f"{place}/cmb") or "")
    if match:
        register = int(match[1], 16)
        unit = register >> 8 & 0xF
        return (register >> 12) * (4096 << 4 * unit) if unit <= 6 else None
    return _number(reader.value(f"/sys/bus/pci/devices/{address}/p2pmem/size")) if address else None


def _number(text: str | None) -> int | None:
    try:
        return int(text) if text and len(text) < 21 else None
    except ValueError:
        return None


def _digits(name: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", name))

"""PCI functions: `/sys/bus/pci/devices`, and for what it lacks or where there is none, pasted lspci or NCCL topology."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gdsctl.collect.reader import Reader
from gdsctl.data import pci_names
from gdsctl.model.pci import CONVENTIONAL_CONFIG_BYTES, Acs, Link, PciDevice, Sriov, canonical_address
from gdsctl.parse import late
from gdsctl.parse.pci_config import PciConfig, parse_config
from gdsctl.parse.pci_tree import is_bridge, place
from gdsctl.parse.sysfs_pci import parse_link_speed, parse_link_width, parse_numa_node, parse_resource
from gdsctl.source.base import Missing

if TYPE_CHECKING:
    from gdsctl.parse.lspci import LspciText
    from gdsctl.parse.nccl_topo import NcclTopo

_DEVICES = "/sys/bus/pci/devices"
_HEADER_BYTES = 64  # what Linux shows of a configuration space without CAP_SYS_ADMIN
_WITHOUT_LINK = ("0600", "0601", "0602", "0880")  # host, ISA and EISA bridges, system peripherals
_MATTERING = ("0108", "02", "0300", "0302", "0604", "0b40", "12")  # drives, networks, GPUs, bridges, accelerators


class _Place(NamedTuple):
    """From the path below /sys/devices: the bridge above, and the root bus."""

    parent: str | None
    root_bus: str


def collect(reader: Reader) -> tuple[PciDevice, ...]:
    """All PCI functions by address. sysfs counts; pasted text fills in what sysfs could not tell."""
    names = reader.source.names(_DEVICES)
    addresses = () if isinstance(names, Missing) else tuple(filter(None, map(canonical_address, names)))
    if not addresses:
        devices = _pasted(reader)
        if not devices and isinstance(names, Missing):
            reader.gap("pci", "devices", names, detail=_DEVICES, settle_with="lspci -D -vvv -nn")
        return devices
    places: dict[str, _Place] = {}
    groups = reader.source.names("/sys/kernel/iommu_groups")
    grouped = not isinstance(groups, Missing) and bool(groups)
    found = [_function(reader, address, places, grouped=grouped) for address in addresses]
    devices = _with_acs(reader, _without_acs(reader, _in_place(reader, _with_names(reader, found), places)))
    for device in devices:
        _note_gaps(reader, device)
    return devices


def whole(reader: Reader) -> bool:
    """Are the functions that `collect` gives all that there are? What somebody pasted may be a part."""
    return not isinstance(reader.source.names(_DEVICES), Missing)


def _function(reader: Reader, address: str, places: dict[str, _Place], *, grouped: bool) -> PciDevice:
    home = f"{_DEVICES}/{address}"
    real = reader.source.real(home)
    if not isinstance(real, Missing) and real != home:
        places[address] = _place(real, address)
        home = real  # spares the source a walk along the link for every attribute
    raw = reader.source.read(f"{home}/config")
    config = PciConfig(size_bytes=0) if isinstance(raw, Missing) else parse_config(raw)
    class_ = _hex(reader.value(f"{home}/class"), 6) or config.class_
    vendor_id = _hex(reader.value(f"{home}/vendor"), 4) or config.vendor_id
    device_id = _hex(reader.value(f"{home}/device"), 4) or config.device_id
    subsystem_vendor, subsystem_device = config.subsystem_vendor_id, config.subsystem_device_id
    if subsystem_vendor is None:
        subsystem_vendor = _hex(reader.value(f"{home}/subsystem_vendor"), 4)
        subsystem_device = _hex(reader.value(f"{home}/subsystem_device"), 4)
    if subsystem_vendor == "0000":  # what Linux shows where there is none
        subsystem_vendor = subsystem_device = None
    bridge = (class_ or "").startswith("06")
    physfn = None if bridge else _target(reader, f"{home}/physfn")
    return PciDevice(
        address=address,
        kind=config.kind,
        vendor_id=vendor_id,
        device_id=device_id,
        subsystem_vendor_id=subsystem_vendor,
        subsystem_device_id=subsystem_device,
        class_=class_,
        driver=_target(reader, f"{home}/driver"),
        numa_node=parse_numa_node(reader.value(f"{home}/numa_node") or ""),
        link=_link(reader, home, class_, config.link),
        acs=config.acs,
        iommu_group=_target(reader, f"{home}/iommu_group") if grouped else None,
        bars=() if bridge else parse_resource(reader.value(f"{home}/resource") or ""),
        sriov=Sriov(is_vf=physfn is not None, physfn=canonical_address(physfn or "")),
        secondary_bus=config.secondary_bus,
        subordinate_bus=config.subordinate_bus,
        config_bytes=None if isinstance(raw, Missing) else len(raw),
    )


def _place(real: str, address: str) -> _Place:
    """A root bus made by a driver (VMD's pci10000:00) ends the climb just as the firmware's own."""
    parent = None
    root_bus = address.rpartition(":")[0]
    for component in reversed(real.split("/")[:-1]):
        above = canonical_address(component)
        if above is None:
            if component.startswith("pci") and canonical_address(f"{component[3:]}:00.0"):
                root_bus = component[3:]
            break
        parent = parent or above
        root_bus = above.rpartition(":")[0]
    return _Place(parent, root_bus)


def _link(reader: Reader, home: str, class_: str | None, config: Link) -> Link:
    """From sysfs where it tells, from the configuration space where sysfs says "Unknown"."""
    if (class_ or "").startswith(_WITHOUT_LINK):
        return config
    speed = reader.value(f"{home}/current_link_speed")
    if speed is None:
        return config
    return Link(
        speed_gts=parse_link_speed(speed) or config.speed_gts,
        width=parse_link_width(reader.value(f"{home}/current_link_width") or "") or config.width,
        max_speed_gts=parse_link_speed(reader.value(f"{home}/max_link_speed") or "") or config.max_speed_gts,
        max_width=parse_link_width(reader.value(f"{home}/max_link_width") or "") or config.max_width,
    )


def _target(reader: Reader, path: str) -> str | None:
    """The last component of what a link points to; None where there is no link."""
    real = reader.source.real(path)
    return None if isinstance(real, Missing) or real == path else real.rpartition("/")[2]


def _hex(text: str | None, digits: int) -> str | None:
    try:
        number = int(text or "", 16)
    except ValueError:
        return None
    return f"{number:0{digits}x}" if 0 <= number < 16**digits else None


def _with_names(reader: Reader, devices: list[PciDevice]) -> list[PciDevice]:
    """Names from udev's hardware database, else from our own short table."""
    answer: Any = reader.source.ask("udev")
    try:
        rows = {address: row.get("ID_MODEL_FROM_DATABASE") for address, row in answer["devices"]["pci"].items()}
    except (TypeError, KeyError, AttributeError):  # no answer, or a snapshot's of another shape
        rows = {}
    told = {address: name for address, name in rows.items() if isinstance(name, str)}
    return [
        msgspec.structs.replace(
            device, name=told.get(device.address) or pci_names.name(device.vendor_id, device.device_id)
        )
        for device in devices
    ]


def _in_place(reader: Reader, devices: list[PciDevice], places: dict[str, _Place]) -> tuple[PciDevice, ...]:
    """Parents from the paths, or from bus numbers where the entries are plain folders; kinds from shape where unread."""
    buses: dict[str, list[int]] = {}
    for address, above in places.items():
        if above.parent is not None:
            buses.setdefault(above.parent, []).append(int(address.rsplit(":", 2)[1], 16))
    placed, _ = place(_with_buses(device, buses.get(device.address)) for device in devices)
    return tuple(_settled(reader, device, places) for device in placed)


def _with_buses(device: PciDevice, buses: list[int] | None) -> PciDevice:
    """A bridge whose bus numbers are unreadable, with those of what hangs below it."""
    if buses is None or device.secondary_bus is not None:
        return device
    return msgspec.structs.replace(device, secondary_bus=min(buses), subordinate_bus=max(buses))


def _settled(reader: Reader, device: PciDevice, places: dict[str, _Place]) -> PciDevice:
    above = places.get(device.address)
    if above is not None:
        return msgspec.structs.replace(device, parent=above.parent, root_bus=above.root_bus)
    if device.root_bus is None:
        reader.gap(
            "pci/devices",
            "parent",
            "absent",
            key=device.address,
            detail="neither a link into /sys/devices nor bus numbers of the bridges",
            settle_with="lspci -D -tv",
        )
    return device


def _pasted(reader: Reader) -> tuple[PciDevice, ...]:
    """What somebody handed in. On a live node both would only read sysfs again."""
    if reader.source.info.kind == "live":
        return ()
    text: LspciText | Missing = reader.printed("lspci", late("lspci"))
    if not isinstance(text, Missing) and text.devices:
        return tuple(map(_with_ids, text.devices))
    topology: NcclTopo | Missing = reader.printed("nccl-topo", late("nccl-topo"))
    return () if isinstance(topology, Missing) else topology.devices


def _with_ids(device: PciDevice) -> PciDevice:
    """Without -n, lspci prints names only; those of a few vendors and devices lead back to their ids.

    A name that is no more than a number gives way to that of our own table.
    """
    if device.name is None:
        return device
    vendor_id, device_id = device.vendor_id, device.device_id
    if vendor_id is None:
        vendor_id, told = pci_names.ids(device.name)
        device_id = device_id or told
    name = pci_names.name(vendor_id, device_id) if pci_names.nameless(device.name) else None
    return msgspec.structs.replace(device, vendor_id=vendor_id, device_id=device_id, name=name or device.name)


def _without_acs(reader: Reader, devices: tuple[PciDevice, ...]) -> tuple[PciDevice, ...]:
    """Linux looks for no extended capability, ACS among them, in a configuration space that ends at 256 bytes.

    drivers/pci/probe.c, pci_cfg_space_size(). The file is as long as the space; but a tree may have been copied by a tool
    that stops there, as hwloc's does, so that in one some other function's has to be longer.
    """
    sizes = {device.config_bytes or 0 for device in devices}
    if reader.source.info.kind not in ("live", "snapshot") and max(sizes, default=0) <= CONVENTIONAL_CONFIG_BYTES:
        return devices
    return tuple(
        msgspec.structs.replace(device, acs=Acs(state="absent"))
        if device.config_bytes == CONVENTIONAL_CONFIG_BYTES and device.acs == Acs()
        else device
        for device in devices
    )


def _with_acs(reader: Reader, devices: tuple[PciDevice, ...]) -> tuple[PciDevice, ...]:
    """ACS from lspci run as root beside a capture made without. On a live node lspci has the same rights as we."""
    if reader.source.info.kind == "live" or all(device.acs.state != "unreadable" for device in devices):
        return devices
    text: LspciText | Missing = reader.printed("lspci", late("lspci"))
    if isinstance(text, Missing):
        return devices
    told = {device.address: device for device in text.devices}
    return tuple(_filled(device, told.get(device.address)) for device in devices)


def _filled(device: PciDevice, told: PciDevice | None) -> PciDevice:
    if told is None or device.acs.state != "unreadable" or told.acs.state == "unreadable":
        return device
    kind = told if device.kind_inferred and told.kind != "unknown" else device
    return msgspec.structs.replace(device, acs=told.acs, kind=kind.kind, kind_inferred=kind.kind_inferred)


def _note_gaps(reader: Reader, device: PciDevice) -> None:
    """Gaps of the functions that GPUDirect Storage has to do with; a virtual function shares its physical one's."""
    address = device.address
    for field, value in (("class", device.class_), ("vendor_id", device.vendor_id), ("device_id", device.device_id)):
        if value is None:
            reader.gap("pci/devices", field, "absent", key=address, settle_with=f"lspci -D -nn -s {address}")
    if device.sriov.is_vf:
        return
    settle = f"sudo lspci -D -s {address} -vvv"
    if device.acs == Acs():
        short = device.config_bytes is not None and device.config_bytes <= 2 * _HEADER_BYTES
        reader.gap(
            "pci/devices",
            "acs/redirects",
            "denied" if short else "absent" if device.config_bytes is None else "unsupported",
            key=address,
            detail=_config_words(device.config_bytes),
            settle_with=settle,
        )
    if not (device.class_ or "").startswith(_MATTERING) or (is_bridge(device) and device.kind == "pci_bridge"):
        return
    if device.numa_node is None:
        told = reader.text(f"{_DEVICES}/{address}/numa_node")
        reader.gap(
            "pci/devices",
            "numa_node",
            told if isinstance(told, Missing) else "unsupported",
            key=address,
            detail="" if isinstance(told, Missing) else "firmware names no node (-1)",
            settle_with=f"cat {_DEVICES}/{address}/numa_node",
        )
    if (
        device.parent is not None
        and not is_bridge(device)
        and None in (device.link.max_speed_gts, device.link.max_width)
    ):
        for field in ("max_speed_gts", "max_width", "speed_gts", "width"):
            if getattr(device.link, field) is None:
                reader.gap("pci/devices", f"link/{field}", "unsupported", key=address, settle_with=settle)


def _config_words(size: int | None) -> str:
    if size is None:
        return "no config file"
    return f"config gave {size} bytes; ACS lies beyond the first 256"

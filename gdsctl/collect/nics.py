"""Network adapters: `/sys/class/net`, `/sys/class/infiniband` and the PCI functions they sit on."""

from __future__ import annotations

import msgspec

from gdsctl.collect import addresses
from gdsctl.collect.reader import Reader
from gdsctl.data import nic_vendors
from gdsctl.model.devices import Nic
from gdsctl.model.pci import PciDevice, address_key, canonical_address
from gdsctl.parse import infiniband
from gdsctl.record import Record
from gdsctl.source.base import Missing, got

_NETWORK_CLASS = "02"
_ARPHRD = {"1": "Ethernet", "32": "InfiniBand"}  # Linux include/uapi/linux/if_arp.h


class _Port(Record, frozen=True, kw_only=True):
    """One port. `rate_gbps` None where it is down or virtual: what stands there then is no measure of anything."""

    state: str | None = None
    rate_gbps: float | None = None
    link_layer: str | None = None


class _Network(Record, frozen=True, kw_only=True):
    """`rdma`: device -> folder; `netdevs`: name -> folder; `masters`: netdev -> its bond; `uppers`: netdev -> above."""

    rdma: dict[str, str]
    netdevs: dict[str, str]
    masters: dict[str, str]
    uppers: dict[str, tuple[str, ...]]


def collect(reader: Reader, pci: tuple[PciDevice, ...]) -> tuple[Nic, ...]:
    """PCI functions of class 02 and others with a netdev or RDMA device, then those that hang on no PCI function.

    `state` as printed: ACTIVE, DOWN ... of the RDMA port, else up, down ... of the netdev. `ipv4` holds the addresses
    of bonds and VLANs on the netdevs too. The best port speaks for a function with several.
    """
    functions = {device.address: device for device in pci}
    network = _network(reader)
    own = addresses.collect(reader)
    rdma: dict[str | None, list[str]] = {}
    netdevs: dict[str | None, list[str]] = {}
    for found, places in ((rdma, network.rdma), (netdevs, network.netdevs)):
        for name, place in places.items():
            found.setdefault(_function(place), []).append(name)
    listed = {a for a, device in functions.items() if (device.class_ or "").startswith(_NETWORK_CLASS)}
    on_pci = {address for address in (*rdma, *netdevs) if address}
    nics = [
        _nic(
            reader,
            network,
            own,
            address=address,
            rdma=rdma.get(address, []),
            netdevs=netdevs.get(address, []),
            function=functions.get(address),
        )
        for address in sorted(listed | on_pci, key=address_key)
    ]
    for name in rdma.get(None, []):
        parent = reader.value(f"/sys/class/infiniband/{name}/parent")
        nics.append(_nic(reader, network, own, rdma=[name], netdevs=[parent] if parent else []))
    nics += [
        _nic(reader, network, own, rdma=[], netdevs=[name])
        for name in netdevs.get(None, [])
        if not network.netdevs[name].startswith("/sys/devices/virtual/")
    ]
    found_nics = _bonded(_with_the_tools_pairs(reader, tuple(nics)))
    _note_unread(reader, found_nics)
    return found_nics


def _with_the_tools_pairs(reader: Reader, nics: tuple[Nic, ...]) -> tuple[Nic, ...]:
    """RDMA devices that sysfs shows no netdev for, completed by `ibdev2netdev`; its devices alone where sysfs has none."""
    if nics and all(nic.netdevs or not nic.rdma_device for nic in nics):
        return nics
    told = reader.printed("ibdev2netdev", infiniband.parse_ibdev2netdev)
    if isinstance(told, Missing):
        return nics
    netdevs: dict[str, tuple[str, ...]] = {}
    states: dict[str, str] = {}
    for port in told.ports:
        netdevs[port.rdma_device] = (*netdevs.get(port.rdma_device, ()), port.netdev)
        if port.state:
            states.setdefault(port.rdma_device, port.state)
    if not nics:
        return tuple(
            Nic(address=None, rdma_device=name, netdevs=names, state=states.get(name))
            for name, names in netdevs.items()
        )
    return tuple(
        nic if nic.netdevs else msgspec.structs.replace(nic, netdevs=netdevs.get(nic.rdma_device or "", ()))
        for nic in nics
    )


def _nic(
    reader: Reader,
    network: _Network,
    own: addresses.Addresses,
    *,
    address: str | None = None,
    rdma: list[str],
    netdevs: list[str],
    function: PciDevice | None = None,
) -> Nic:
    key = address or (rdma or netdevs)[0]
    ports = [port for device in rdma for port in _rdma_ports(reader, network, device)]
    lines = [_line(reader, netdev) for netdev in netdevs]
    best = max(ports or lines, key=_rank, default=_Port())
    if best.rate_gbps is None and lines:
        best_line = max(lines, key=_rank)
        best = _Port(
            state=best.state, rate_gbps=best_line.rate_gbps, link_layer=best.link_layer or best_line.link_layer
        )
    if best.rate_gbps is None:
        why = "the link is down" if best.state in ("DOWN", "down") else "no rate of a link that is up"
        reader.gap(
            "nics",
            "rate_gbps",
            "unsupported",
            key=key,
            detail=why,
            settle_with=f"ethtool {netdevs[0]}" if netdevs else "ibstat",
        )
    interfaces = [upper for netdev in netdevs for upper in _stack(network, netdev)]
    if own.by_interface is None:
        reader.gap("nics", "ipv4", own.why or "absent", key=key, settle_with="ip -4 addr")
    elif own.unplaced and netdevs and not any(own.by_interface.get(name) for name in interfaces):
        detail = f"{', '.join(own.unplaced)} may be on this or on another interface of the same network"
        reader.gap("nics", "ipv4", "unsupported", key=key, detail=detail, settle_with="ip -4 addr")
    return Nic(
        address=address,
        netdevs=tuple(netdevs),
        rdma_device=rdma[0] if rdma else None,
        link_layer=best.link_layer,
        rate_gbps=best.rate_gbps,
        state=best.state,
        ipv4=tuple(dict.fromkeys(ip for name in interfaces for ip in (own.by_interface or {}).get(name, ()))),
        bond=next((network.masters[netdev] for netdev in netdevs if netdev in network.masters), None),
        vendor=nic_vendors.vendor(function.vendor_id if function else _vendor_id(reader, address)),
    )


def _network(reader: Reader) -> _Network:
    rdma, netdevs = (_class(reader, name) for name in ("infiniband", "net"))
    masters: dict[str, str] = {}
    uppers: dict[str, list[str]] = {}
    for name in netdevs:
        for slave in (reader.value(f"/sys/class/net/{name}/bonding/slaves") or "").split():
            masters[slave] = name
            uppers.setdefault(slave, []).append(name)
        inside = (
            reader.source.names(f"/sys/class/net/{name}") if netdevs[name].startswith("/sys/devices/virtual/") else ()
        )
        for entry in inside if got(inside) else ():
            if entry.startswith("lower_"):
                uppers.setdefault(entry.removeprefix("lower_"), []).append(name)
    return _Network(
        rdma=rdma, netdevs=netdevs, masters=masters, uppers={name: tuple(above) for name, above in uppers.items()}
    )


def _class(reader: Reader, name: str) -> dict[str, str]:
    """Devices of a class with their real folders. A class that no driver registered is not there at all."""
    names = reader.source.names(f"/sys/class/{name}")
    if isinstance(names, Missing):
        return {}
    places = {}
    for device in names:
        real = reader.source.real(f"/sys/class/{name}/{device}")
        if got(real) and device != "bonding_masters":  # a file among the folders
            places[device] = real
    return places


def _note_unread(reader: Reader, nics: tuple[Nic, ...]) -> None:
    """Classes that could not be read leave open what the functions are called, or whether there are adapters at all."""
    for name, field in (("infiniband", "rdma_device"), ("net", "netdevs")):
        names = reader.source.names(f"/sys/class/{name}")
        if not isinstance(names, Missing) or names.status == "absent":
            continue
        words = {"detail": f"/sys/class/{name}", "settle_with": "ip link; rdma link"}
        if not nics:
            reader.gap("nics", "", names, **words)
        for nic in nics:
            key = nic.address or nic.rdma_device or next(iter(nic.netdevs), None)
            if key and not getattr(nic, field):
                reader.gap("nics", field, names, key=key, **words)


def _function(place: str) -> str | None:
    return next((address for part in reversed(place.split("/")) if (address := canonical_address(part))), None)


def _rdma_ports(reader: Reader, network: _Network, device: str) -> list[_Port]:
    base = f"/sys/class/infiniband/{device}/ports"
    names = reader.source.names(base)
    virtual = network.rdma[device].startswith("/sys/devices/virtual/")  # rxe and siw print the rate of no link
    ports = []
    for number in names if got(names) else ():
        state = infiniband.parse_state(reader.value(f"{base}/{number}/state") or "")
        rate = infiniband.parse_rate(reader.value(f"{base}/{number}/rate") or "")
        layer = reader.value(f"{base}/{number}/link_layer")
        measured = state == "ACTIVE" and not virtual
        ports.append(_Port(state=state, rate_gbps=rate if measured else None, link_layer=layer))
    return ports


def _line(reader: Reader, netdev: str) -> _Port:
    """`speed` is in Mbit/s, and -1 or EINVAL while the link is down."""
    base = f"/sys/class/net/{netdev}"
    speed = reader.value(f"{base}/speed") or ""
    return _Port(
        state=reader.value(f"{base}/operstate"),
        rate_gbps=int(speed) / 1000
        if speed.isascii() and speed.isdigit() and 0 < int(speed[:10]) < 0xFFFFFFFF
        else None,
        link_layer=_ARPHRD.get(reader.value(f"{base}/type") or ""),
    )


def _rank(port: _Port) -> tuple[bool, float]:
    return port.state in ("ACTIVE", "up"), port.rate_gbps or 0.0


def _stack(network: _Network, netdev: str) -> list[str]:
    """The netdev and all that is built on it: bonds, VLANs, bridges."""
    found = [netdev]
    for name in found:
        found += [upper for upper in network.uppers.get(name, ()) if upper not in found]
    return found


def _bonded(nics: tuple[Nic, ...]) -> tuple[Nic, ...]:
    """RoCE LAG: one RDMA device stands for the bonded functions of one adapter, but only the first one shows it."""
    devices = {(_slot(nic), nic.bond): nic.rdma_device for nic in nics if nic.address and nic.bond and nic.rdma_device}
    return tuple(
        nic
        if nic.rdma_device or not nic.address or not nic.bond
        else msgspec.structs.replace(nic, rdma_device=devices.get((_slot(nic), nic.bond)))
        for nic in nics
    )


def _slot(nic: Nic) -> str:
    return (nic.address or "").rpartition(".")[0]


def _vendor_id(reader: Reader, address: str | None) -> str | None:
    text = reader.value(f"/sys/bus/pci/devices/{address}/vendor") if address else None
    return text.removeprefix("0x").lower() if text else None

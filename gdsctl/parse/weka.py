"""Which network devices a WEKA client uses: its mount options, and `weka local resources -C NAME --json`."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from gdsctl.errors import InputError
from gdsctl.record import Record

_NET = re.compile(r"net(?::[\w+-]{1,32})?")  # `net:s1=`, of one process; `net:ha=`, of both ports


class WekaNet(Record, frozen=True, kw_only=True):
    """`devices`: netdevs, PCI or MAC addresses; `addresses`: this node's own. `udp`: no device is dedicated to it."""

    devices: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    udp: bool = False


class _Device(msgspec.Struct):
    device: str = ""
    ips: tuple[str, ...] = ()


class _Resources(msgspec.Struct):
    net_devices: tuple[_Device, ...]


def of_options(options: Iterable[str]) -> WekaNet:
    """`net=DEVICE[/ADDRESS[+ADDRESS]/BITS[/GATEWAY]]`, several of them, and `mgmt_ip=` with net=udp (docs.weka.io, mount options)."""
    devices: dict[str, None] = {}
    addresses: dict[str, None] = {}
    management: list[str] = []
    udp = False
    for option in options:
        name, _, value = option.partition("=")
        if name == "mgmt_ip":
            management = re.split(r"[+:]", value)
        if not _NET.fullmatch(name) or not value:
            continue
        device, *rest = value.split("/")
        if device == "udp":
            udp = True
            continue
        devices[device] = None
        if len(rest) > 1:  # an address alone has its bits behind it
            addresses.update(dict.fromkeys(rest[0].split("+")))
    if udp:
        addresses.update(dict.fromkeys(management))
    return WekaNet(devices=tuple(devices), addresses=tuple(a for a in addresses if a), udp=udp)


def parse_resources(text: str) -> WekaNet:
    """The JSON of one container; InputError where it has no `net_devices`."""
    try:
        found = msgspec.json.decode(text.encode("utf-8", "replace"), type=_Resources)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"not the output of weka local resources --json: {error}", line=1) from error
    real = [device for device in found.net_devices if device.device and device.device != "udp"]
    return WekaNet(
        devices=tuple(dict.fromkeys(device.device for device in real)),
        addresses=tuple(dict.fromkeys(ip for device in found.net_devices for ip in device.ips)),
        udp=not real and bool(found.net_devices),
    )

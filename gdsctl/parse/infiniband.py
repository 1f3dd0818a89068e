"""Attributes of /sys/class/infiniband/*/ports/* and the output of `ibdev2netdev`."""

from __future__ import annotations

import re

from gdsctl.errors import InputError
from gdsctl.record import Record, Warned


class PortNetdev(Record, frozen=True, kw_only=True):
    """One line: RDMA device, port, network device, and its state as printed (Up, Down)."""

    rdma_device: str
    port: int
    netdev: str
    state: str | None = None


class PortNetdevs(Record, frozen=True, kw_only=True):
    ports: tuple[PortNetdev, ...]
    warnings: tuple[Warned, ...] = ()


_RATE = re.compile(r"\s*([0-9]{1,5}(?:\.[0-9]{1,3})?) Gb/sec(?: \(.{0,40}\))?\s*")
_STATE = re.compile(r"\s*[0-9]{1,2}: ([A-Za-z_]{1,40})\s*")
_PORT = re.compile(r"\bport (\d{1,3})(?: \([A-Z]{1,20}\))? ==> (\S{1,64})(?: \((\w{1,20})\))?\s*$", re.ASCII)
_DEVICE = re.compile(r"\s*(?:[0-9a-f]{4}:[0-9a-f:.]{7} )?([\w.-]{1,64})\s", re.ASCII)


def parse_rate(text: str) -> float | None:
    """`rate`: "200 Gb/sec (4X HDR)" -> 200.0 gigabit/s."""
    match = _RATE.fullmatch(text)
    return float(match[1]) if match else None


def parse_state(text: str) -> str | None:
    """`state` and `phys_state`: "4: ACTIVE" -> "ACTIVE"."""
    match = _STATE.fullmatch(text)
    return match[1] if match else None


def parse_ibdev2netdev(text: str) -> PortNetdevs:
    """`ibdev2netdev` with or without -v. Raises InputError where no line is a port."""
    ports, warnings = [], []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        device = _DEVICE.match(line)
        port = _PORT.search(line[-300:])
        if device and port:
            ports.append(PortNetdev(rdma_device=device[1], port=int(port[1]), netdev=port[2], state=port[3]))
        else:
            warnings.append(Warned(line=number, message="not `device port N ==> netdev (state)`"))
    if warnings and not ports:
        raise InputError("not the output of ibdev2netdev", line=warnings[0].line)
    return PortNetdevs(ports=tuple(ports), warnings=tuple(warnings))

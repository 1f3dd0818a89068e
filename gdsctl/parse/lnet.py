"""LNet's own network interfaces: /sys/kernel/debug/lnet/nis (/proc/sys/lnet/nis), `lnetctl net show`, `lnetctl peer show`."""

from __future__ import annotations

import re

from gdsctl.errors import InputError
from gdsctl.model.devices import LnetNi
from gdsctl.parse import pasted

_NID = re.compile(r"([0-9A-Za-z.:-]{1,64})@(o2ib|[a-z]{1,12})(\d{0,5})")
_NETS = re.compile(r"@(o2ib|[a-z]{1,12})(\d{0,5})(?=[:,]|$)")
# Of LNet's drivers: ko2iblnd, ksocklnd, kkfilnd (Lustre Operations Manual, LNet).
_TRANSPORTS = {"o2ib": "rdma", "tcp": "tcp", "kfi": "rdma"}
_ROW = re.compile(r"\s*(\S{1,80}@\S{1,24})\s+(up|down|~rtr)\s.*")  # a router's status is not asked: `~rtr`
_FIELD = re.compile(r"[\s-]*([a-z][a-zA-Z ()]{0,30}|\d{1,4}): *(\S*)\s*")
_MOST = 4096  # NIs and peers; a node has a handful, a cluster some thousand peers


def net_of(nid: str) -> str | None:
    """`o2ib1` of `10.0.0.1@o2ib1`; net 0 without its number, as LNet prints it; None for what is no NID."""
    match = _NID.fullmatch(nid)
    return None if match is None else _net(match[2], match[3])


def address_of(nid: str) -> str:
    return nid.partition("@")[0]


def nets(source: str) -> tuple[str, ...]:
    """The networks that a mount's source names (`NID[,NID][:NID]:/FSNAME`), in order."""
    found = (_net(*pair) for pair in _NETS.findall(source))
    return tuple(dict.fromkeys(found))


def transport(source: str) -> str | None:
    """`rdma` or `tcp`, where all networks of a mount's source agree."""
    found = {_TRANSPORTS.get(kind) for kind, _ in _NETS.findall(source)}
    return found.pop() if len(found) == 1 else None


def nids(source: str) -> tuple[str, ...]:
    """The NIDs and host names with a network of a mount's source."""
    found = re.findall(r"([^@,]{1,64}@(?:o2ib|[a-z]{1,12})\d{0,5})(?=[:,]|$)", source)
    return tuple(dict.fromkeys(nid.lstrip(":") for nid in found))


def _net(kind: str, number: str) -> str:
    return kind + (str(int(number)) if number and int(number) else "")


def parse_nis(text: str) -> tuple[LnetNi, ...]:
    """The table of /proc/sys/lnet/nis, which has a row for each CPU partition; InputError without its header."""
    lines = pasted.lines(text)
    if lines[0].split()[:2] != ["nid", "status"]:
        raise InputError("not the text of lnet/nis", line=1)
    found: dict[str, LnetNi] = {}
    for line in lines[1:]:
        match = _ROW.fullmatch(line)
        net = net_of(match[1]) if match else None
        if match and net and net != "lo" and match[1] not in found and len(found) < _MOST:
            found[match[1]] = LnetNi(nid=match[1], net=net, up={"up": True, "down": False}.get(match[2]))
    return tuple(found.values())


def parse_net_show(text: str) -> tuple[LnetNi, ...]:
    """`lnetctl net show`: the NIs under `net:`, loopback left out; InputError where there is no such list.

    Read line by line, since what is pasted has lost its indentation more often than its lines.
    """
    rows: list[dict[str, str]] = []
    interfaces: list[list[str]] = []
    inside = False
    for line in pasted.lines(text):
        if line.strip() == "net:":
            inside = True
        match = _FIELD.fullmatch(line) if inside and len(line) < 200 else None
        if match is None:
            continue
        name, value = match.groups()
        if name == "nid" and net_of(value) and len(rows) < _MOST:
            rows.append({"nid": value})
            interfaces.append([])
        elif rows and name == "status":
            rows[-1].setdefault("status", value)
        elif rows and name.isdigit() and value:
            interfaces[-1].append(value.partition("[")[0])  # `ib0[0]`: the CPU partitions that it serves
        elif name not in ("nid", "net", "net type", "local NI(s)", "interfaces") and line[:1].isalpha():
            inside = False  # `route:`, `peer:` and others of `lnetctl export`
    if not inside and not rows:
        raise InputError("not the output of lnetctl net show", line=1)
    return tuple(
        LnetNi(
            nid=row["nid"],
            net=net,
            up={"up": True, "down": False}.get(row.get("status", "")),
            interfaces=tuple(names),
        )
        for row, names in zip(rows, interfaces, strict=True)
        if (net := net_of(row["nid"])) is not None and net != "lo"
    )


def parse_peer_show(text: str) -> tuple[tuple[str, ...], ...]:
    """`lnetctl peer show`: the NIDs of each peer, its primary one first; InputError where there is no such list."""
    lines = pasted.lines(text)
    if not any(line.strip() == "peer:" for line in lines):
        raise InputError("not the output of lnetctl peer show", line=1)
    peers: list[dict[str, None]] = []
    for line in lines:
        match = re.fullmatch(r"[\s-]*(primary nid|nid): *(\S{1,80})\s*", line[:200])
        if match is None or net_of(match[2]) is None:
            continue
        if match[1] == "primary nid" and len(peers) < _MOST:
            peers.append({})
        if peers:
            peers[-1][match[2]] = None
    return tuple(tuple(peer) for peer in peers)

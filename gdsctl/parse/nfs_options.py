"""The options of an NFS mount, those of the VAST client included.

    rw,vers=3,proto=rdma,port=20049,nconnect=8,localports=10.0.0.1~10.0.1.1,remoteports=10.0.0.16-10.0.0.31

Sources: nfs(5); VAST NFS client documentation (vastnfs 4.0), mount parameters.
"""

from __future__ import annotations

import ipaddress

from gdsctl.record import Record, Warned

_RANGE_LIMIT = 4096
_VAST_ONLY = frozenset(
    {"localports", "remoteports", "spread_reads", "spread_writes", "mdconnect", "pconnect", "noextend"}
)
_FLAG_PROTO = {"tcp": "tcp", "udp": "udp", "rdma": "rdma"}


class NfsOptions(Record, frozen=True, kw_only=True):
    """`localports`, `remoteports`: ranges A-B written out, names and words (`dns`) as they stand; None: not given.

    `vast`: an option stands there that the kernel's own client does not know.
    """

    proto: str | None = None
    port: int | None = None
    vers: str | None = None
    nconnect: int | None = None
    localports: tuple[str, ...] | None = None
    remoteports: tuple[str, ...] | None = None
    spread_reads: bool = False
    spread_writes: bool = False
    mountaddr: str | None = None
    addr: str | None = None
    clientaddr: str | None = None
    rsize_bytes: int | None = None
    wsize_bytes: int | None = None
    vast: bool = False
    warnings: tuple[Warned, ...] = ()


def parse(text: str) -> NfsOptions:
    """Options separated by commas; the last of several wins, as it does in mount(8). Never raises."""
    pairs: dict[str, str] = {}
    for option in text.strip().split(","):
        name, _, value = option.partition("=")
        pairs[name.strip()] = value.strip()
    warnings: list[Warned] = []

    def number(name: str) -> int | None:
        value = pairs.get(name)
        if value is None:
            return None
        if value.isascii() and value.isdigit() and len(value) < 12:
            return int(value)
        warnings.append(Warned(line=1, message=f"{name}={value} is not a number"))
        return None

    def addresses(name: str) -> tuple[str, ...] | None:
        value = pairs.get(name)
        return None if value is None else _addresses(name, value, warnings)

    proto = pairs.get("proto") or next((_FLAG_PROTO[name] for name in reversed(pairs) if name in _FLAG_PROTO), None)
    vers = (
        pairs.get("vers")
        or pairs.get("nfsvers")
        or next((f for f in ("3", "4", "4.0", "4.1", "4.2") if f"v{f}" in pairs), None)
    )
    return NfsOptions(
        proto=proto,
        port=number("port"),
        vers=vers,
        nconnect=number("nconnect"),
        localports=addresses("localports"),
        remoteports=addresses("remoteports"),
        spread_reads="spread_reads" in pairs,
        spread_writes="spread_writes" in pairs,
        mountaddr=pairs.get("mountaddr") or None,
        addr=pairs.get("addr") or None,
        clientaddr=pairs.get("clientaddr") or None,
        rsize_bytes=number("rsize"),
        wsize_bytes=number("wsize"),
        vast=not _VAST_ONLY.isdisjoint(pairs),
        warnings=tuple(warnings),
    )


def _addresses(name: str, value: str, warnings: list[Warned]) -> tuple[str, ...]:
    """`A-B~C`: ranges and single addresses, in the order written."""
    found: list[str] = []
    for item in value.split("~"):
        first, dash, last = item.partition("-")
        low, high = _ipv4(first), _ipv4(last)
        if low is not None and high is not None and 0 <= high - low < _RANGE_LIMIT - len(found):
            found += [str(ipaddress.IPv4Address(number)) for number in range(low, high + 1)]
        elif item:
            found.append(item)
            if dash and low is not None:
                warnings.append(Warned(line=1, message=f"{name}: {item} is not a range of addresses"))
    return tuple(found)


def _ipv4(text: str) -> int | None:
    try:
        return int(ipaddress.IPv4Address(text))
    except ValueError:
        return None

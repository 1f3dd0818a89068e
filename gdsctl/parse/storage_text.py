"""What the kernel and udev say of storage: /proc/self/mountstats, /proc/mdstat, /run/udev/data/*."""

from __future__ import annotations

import re

from gdsctl.parse.mounts import split_options, unescape
from gdsctl.record import Record


class NfsMount(Record, frozen=True, kw_only=True):
    """`xprts`: protocol (tcp, rdma, udp, local) of each connection, in order; the server's address is in the options."""

    device: str
    target: str
    fstype: str
    options: tuple[str, ...] = ()
    xprts: tuple[str, ...] = ()


class MdMember(Record, frozen=True, kw_only=True):
    """`flags`: F faulty, S spare, W write-mostly, J journal, R replacement."""

    name: str
    slot: int
    flags: str = ""


class MdArray(Record, frozen=True, kw_only=True):
    """`level`: raid0, raid1 ...; None for an inactive array."""

    name: str
    active: bool
    level: str | None = None
    read_only: bool = False
    members: tuple[MdMember, ...] = ()


_DEVICE = re.compile(r"device (\S*) mounted on (/\S*) with fstype (\S{1,64})(?: statvers=\S{1,20})?\s*", re.ASCII)
_XPRT = re.compile(r"\s*xprt:\s*([a-z][a-z0-9_-]{0,15})(?:\s|$)", re.ASCII)
_ARRAY = re.compile(r"(md\S{0,64}) : (active|inactive)((?: \([a-z-]{1,20}\))?)((?: \S+)*)\s*", re.ASCII)
_MEMBER = re.compile(r"(\S{1,64}?)\[(\d{1,6})\]((?:\([A-Z]\))*)", re.ASCII)


def parse_mountstats(text: str) -> tuple[NfsMount, ...]:
    """The mounts that have statistics (NFS), in order; no such mount gives ()."""
    mounts: list[tuple[re.Match[str], list[str], list[str]]] = []
    for line in text.split("\n"):
        if line.startswith(("device ", "no device ")):
            if match := _DEVICE.fullmatch(line):
                mounts.append((match, [], []))
        elif mounts and (match := _XPRT.match(line)):
            mounts[-1][2].append(match[1])
        elif mounts and line.lstrip().startswith("opts:"):
            mounts[-1][1].append(line.partition("opts:")[2].strip())
    return tuple(
        NfsMount(
            device=unescape(match[1]),
            target=unescape(match[2]),
            fstype=match[3],
            options=split_options(",".join(options)),
            xprts=tuple(xprts),
        )
        for match, options, xprts in mounts
        if options or xprts
    )


def parse_mdstat(text: str) -> tuple[MdArray, ...]:
    """The arrays, in order; none gives ()."""
    arrays = []
    for line in text.split("\n"):
        match = _ARRAY.fullmatch(line)
        if match is None:
            continue
        words = match[4].split()
        level = words[0] if words and _MEMBER.fullmatch(words[0]) is None else None
        members = [found for word in words if (found := _MEMBER.fullmatch(word))]
        arrays.append(
            MdArray(
                name=match[1],
                active=match[2] == "active",
                level=level,
                read_only="read-only" in match[3],
                members=tuple(
                    MdMember(name=m[1], slot=int(m[2]), flags=m[3].replace("(", "").replace(")", "")) for m in members
                ),
            )
        )
    return tuple(arrays)


def parse_udev(text: str) -> dict[str, str]:
    """Properties of one device: `E:KEY=value` of the database, `E: KEY=value` of `udevadm info`."""
    properties = {}
    for line in text.split("\n"):
        key, equals, value = line[2:].partition("=")
        if line.startswith("E:") and equals and key.strip():
            properties[key.strip()] = value
    return properties

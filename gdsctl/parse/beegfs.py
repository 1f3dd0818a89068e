"""Whom a BeeGFS client is connected to, and how: /proc/fs/beegfs/CLIENT/storage_nodes, `beegfs-net`."""

from __future__ import annotations

import re

from gdsctl.record import Record

# `RDMA: 2 (10.0.0.5:8003 [fallback route]);`, or `(n/a)` where no connection is free to be asked.
_CONNECTION = re.compile(r"(TCP|RDMA|SDP): \d{1,6}(?: \((\S{1,64}?)(?::\d{1,5})?(?: \[[^\]]{0,40}\])?\))?")


class Connection(Record, frozen=True, kw_only=True):
    """`protocol`: tcp | rdma | sdp; `server`: its address, None where the client had none at hand."""

    protocol: str
    server: str | None = None


def parse_nodes(text: str) -> tuple[Connection, ...]:
    """Connections that stand, each once, in order; a node without one (`<none>`) has none. Any text is such a list."""
    found = (
        Connection(protocol=match[1].lower(), server=match[2] if match[2] != "n/a" else None)
        for line in text.split("\n")
        if line.lstrip().startswith("Connections:")
        for match in _CONNECTION.finditer(line[:4096])
    )
    return tuple(dict.fromkeys(found))

"""An entry of udev's database, `/run/udev/data/b259:0`.

    S:disk/by-id/nvme-ACME_1
    E:ID_FS_USAGE=filesystem

Source: systemd src/libsystemd/sd-device/sd-device.c, device_read_db_internal().
"""

from __future__ import annotations

from gdsctl.record import Record


class UdevEntry(Record, frozen=True, kw_only=True):
    """`properties`: the E lines; `links`: names below /dev; `tags`: the G lines."""

    properties: dict[str, str] = {}
    links: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


def parse(text: str) -> UdevEntry:
    """Lines of other kinds are passed over; the last of several values counts. Never raises."""
    properties: dict[str, str] = {}
    links: list[str] = []
    tags: list[str] = []
    for line in text.split("\n"):
        kind, value = line[:2], line[2:].rstrip("\r")
        if kind == "E:":
            name, equals, content = value.partition("=")
            if equals and name:
                properties[name] = content
        elif kind == "S:":
            links.append(value)
        elif kind == "G:":
            tags.append(value)
    return UdevEntry(properties=properties, links=tuple(links), tags=tuple(tags))

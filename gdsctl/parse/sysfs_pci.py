"""Attributes of /sys/bus/pci/devices/*: Linux, Documentation/ABI/testing/sysfs-bus-pci and include/linux/ioport.h."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

from gdsctl.model.pci import Bar

_MEMORY, _PREFETCHABLE = 0x200, 0x2000  # IORESOURCE_MEM, IORESOURCE_PREFETCH
_ROW = re.compile(r"\s*0x([0-9a-f]{1,16})\s+0x([0-9a-f]{1,16})\s+0x([0-9a-f]{1,16})\s*", re.ASCII | re.IGNORECASE)
_SPEED = re.compile(r"\s*([0-9]{1,3}(?:\.[0-9]{1,2})?)\s?GT/s(?: PCIe)?\s*")
_WIDTHS = frozenset({1, 2, 4, 8, 12, 16, 32})


@functools.lru_cache(maxsize=1024)
def parse_resource(text: str) -> tuple[Bar, ...]:
    """`resource`: the memory BARs (rows 0 to 5); I/O ports, ROM and bridge windows are no BARs."""
    bars = []
    for index, line in enumerate(text.split("\n", 7)[:6]):
        match = _ROW.fullmatch(line)
        if match is None:
            continue
        start, end, flags = (int(cell, 16) for cell in match.groups())
        if flags & _MEMORY and end > start:
            bars.append(Bar(index=index, size_bytes=end - start + 1, prefetchable=bool(flags & _PREFETCHABLE)))
    return tuple(bars)


def framebuffer_bar(bars: Iterable[Bar]) -> Bar | None:
    """What NVIDIA calls BAR1: the largest prefetchable one (with a 64-bit BAR0 it is BAR 2)."""
    return max((bar for bar in bars if bar.prefetchable), key=lambda bar: bar.size_bytes, default=None)


def parse_link_speed(text: str) -> float | None:
    """`current_link_speed`: "8.0 GT/s PCIe", "8 GT/s" -> 8.0 GT/s; "Unknown" -> None."""
    match = _SPEED.fullmatch(text)
    return float(match[1]) if match else None


def parse_link_width(text: str) -> int | None:
    """`current_link_width` in lanes; 0, 63 and 255 stand for no link or not known."""
    cell = text.strip()
    return int(cell) if re.fullmatch(r"[0-9]{1,3}", cell) and int(cell) in _WIDTHS else None


def parse_numa_node(text: str) -> int | None:
    """`numa_node`; -1 is None."""
    cell = text.strip()
    return int(cell) if re.fullmatch(r"[0-9]{1,6}", cell) else None

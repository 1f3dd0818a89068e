"""PCI endpoints that exist only as a configuration space, for QEMU guests.

QEMU's x-pci-proxy-dev forwards each access to a device's configuration space
over a socket. FakeDevice answers it, so that the guest's kernel enumerates an
endpoint with any vendor, device and class id, BAR sizes and link speed: a GPU
or an RDMA NIC that no emulator has. There is nothing behind the BARs, so keep
real drivers off these devices. Limits: conventional configuration space only
(256 bytes, so no AER and no ACS), endpoints only (no bridges), no interrupts.
"""

from __future__ import annotations

import socket
import struct
import threading
from typing import Any

RET, CFG_WRITE, CFG_READ, BAR_WRITE, BAR_READ, SET_IRQFD, RESET = 1, 2, 3, 4, 5, 6, 7  # 0: SYNC_SYSMEM
SPEED = {2.5: 1, 5: 2, 8: 3, 16: 4, 32: 5, 64: 6}  # GT/s -> link speed code


class FakeDevice:
    """bars: {index: bytes}. link and link_max: (GT/s, lanes), as negotiated and as capable."""

    def __init__(
        self,
        vendor: int,
        device: int,
        pci_class: int,
        subsystem: tuple[int, int] = (0, 0),
        *,
        revision: int = 0xA1,
        bars: dict[int, int] | None = None,
        link: tuple[float, int] = (16, 16),
        link_max: tuple[float, int] | None = None,
    ) -> None:
        self.cfg, self.mask = bytearray(256), bytearray(256)  # mask: bits that the guest may write
        self.probing = True  # QEMU sizes the BARs itself first: show it none, so that it maps none

        def put(layout: str, at: int, *values: int) -> None:
            struct.pack_into("<" + layout, self.cfg, at, *values)

        put("HH", 0x00, vendor, device)
        put("HH", 0x04, 0, 0x0010)  # status: capability list
        put("I", 0x08, pci_class << 8 | revision)
        put("HH", 0x2C, *subsystem)
        put("B", 0x34, 0x60)
        struct.pack_into("<H", self.mask, 0x04, 0x0547)
        self.mask[0x0C] = self.mask[0x3C] = 0xFF
        for i, size in (bars or {}).items():
            self._bar(i, size)
        put("BBHI", 0x60, 0x01, 0x78, 0x0003, 0x0008)  # power management
        struct.pack_into("<H", self.mask, 0x64, 0x0003)
        speed, lanes = link
        max_speed, max_lanes = link_max or link
        put("BBH", 0x78, 0x10, 0x00, 0x0002)  # PCI Express endpoint, version 2
        put("IHH", 0x7C, 0x10008FE1, 0x2930, 0)  # device: FLR, 256-byte payload
        put("IHH", 0x84, SPEED[max_speed] | max_lanes << 4, 0x0040, SPEED[speed] | lanes << 4)
        put("IHH", 0x9C, 0x0000001F, 0, 0)  # device 2
        put("IHH", 0xA4, ((1 << SPEED[max_speed]) - 1) << 1, SPEED[max_speed], 0)  # link 2: speeds supported, target
        for at, bits in ((0x80, 0xFFFF), (0x88, 0x0FFF), (0xA0, 0xFFFF), (0xA8, 0xFFFF)):
            struct.pack_into("<H", self.mask, at, bits)
        self.ours, self.qemus = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        threading.Thread(target=self._serve, daemon=True).start()

    def _bar(self, i: int, size: int) -> None:
        wide = size > 32 << 20  # small ones 32 bits, large ones 64 bits and prefetchable
        bits = ~(size - 1) & (2**64 - 1)
        struct.pack_into("<I", self.cfg, 0x10 + 4 * i, 0xC if wide else 0)
        struct.pack_into("<I", self.mask, 0x10 + 4 * i, bits & 0xFFFFFFF0)
        if wide:
            struct.pack_into("<I", self.mask, 0x14 + 4 * i, bits >> 32)

    def close(self) -> None:
        self.ours.close()

    def _recv(self, n: int) -> bytes:
        data = b""
        while len(data) < n:
            part = self.ours.recv(n - len(data))  # a plain recv drops the memory fds that QEMU sends along
            if not part:
                raise EOFError
            data += part
        return data

    def _serve(self) -> None:
        try:
            while True:
                cmd, size = struct.unpack("<ixxxxQ", self._recv(16))
                value = self._answer(cmd, self._recv(size))
                if value is not None:
                    self.ours.sendall(struct.pack("<ixxxxQQ", RET, 8, value))
        except (EOFError, OSError):
            pass

    def _answer(self, cmd: int, data: bytes) -> int | None:
        if cmd in (CFG_READ, CFG_WRITE):
            at, value, n = struct.unpack_from("<IIi", data)
            if self.probing and 0x10 <= at < 0x2C:
                return 0
            if cmd == CFG_WRITE:
                for k, byte in enumerate(value.to_bytes(4, "little")[:n]):
                    m = self.mask[at + k]
                    self.cfg[at + k] = self.cfg[at + k] & ~m | byte & m
                return 0
            return int.from_bytes(self.cfg[at : at + n], "little")
        if cmd == RESET:
            self.probing = False
            return 0
        if cmd == BAR_READ:
            return 0xFFFFFFFF
        return 0 if cmd == BAR_WRITE else None


MIB, GIB = 1 << 20, 1 << 30


def gpu_a100(**kw: Any) -> FakeDevice:
    return FakeDevice(
        0x10DE,
        0x20B2,
        0x030200,
        (0x10DE, 0x1463),
        bars={0: 16 * MIB, 1: 128 * GIB, 3: 32 * MIB},
        **{"link": (16, 16), **kw},
    )


def gpu_h100(**kw: Any) -> FakeDevice:
    return FakeDevice(
        0x10DE,
        0x2330,
        0x030200,
        (0x10DE, 0x16C1),
        bars={0: 16 * MIB, 2: 128 * GIB, 4: 64 * MIB},
        **{"link": (32, 16), **kw},
    )


def nic_cx7(**kw: Any) -> FakeDevice:
    return FakeDevice(
        0x15B3, 0x1021, 0x020700, (0x15B3, 0x0041), revision=0, bars={0: 64 * MIB}, **{"link": (32, 16), **kw}
    )

"""Contents that tell where and when they were written.

Each sector of 512 bytes starts with its offset in the file and the stamp of its run, which says how often the block was
written before, and ends with the two mixed; the rest is noise drawn from the seed. So a block that lies elsewhere, of an
earlier run or an earlier write, half written or zeroed is told apart.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import random
from array import array
from typing import Literal

from gdsctl.record import Record

SECTOR = 512
_WORDS = SECTOR // 8
_MASK = (1 << 64) - 1
_PERIOD = 1 << 20  # of the noise: longer than the windows of compressors

_memcmp = ctypes.CDLL(None).memcmp  # releases the interpreter while it runs; comparing memoryviews does neither
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)

_GENERATIONS = 256
_FLIPPED_BYTES = 8
"""Up to so many wrong bytes in a sector are damage, not a write that got half way."""

Kind = Literal["misplaced", "stale", "stale-misplaced", "torn", "zeroed", "corrupt"]


class Mismatch(Record, frozen=True, kw_only=True):
    """`offset`: of the first wrong sector in the file; `found`: what stands there, in words."""

    offset: int
    kind: Kind
    found: str


@functools.lru_cache(maxsize=4)
def _noise(seed: int) -> bytes:
    return random.Random(seed).randbytes(_PERIOD)  # noqa: S311 -- must repeat, need not be secret


class Generations:
    """How often each block of a file was written since it was laid out, modulo 256; shared with processes forked later.

    Each block has one writer at a time.
    """

    def __init__(self, size_bytes: int, block_bytes: int) -> None:
        self._block = block_bytes
        self._counts = mmap.mmap(-1, max(1, -(-size_bytes // block_bytes)))

    def at(self, offset: int) -> int:
        return self._counts[offset // self._block]

    def next(self, offset: int) -> int:
        """Count one more write; returns its number."""
        at = offset // self._block
        self._counts[at] = count = (self._counts[at] + 1) % _GENERATIONS
        return count


class Pattern:
    """The contents of a file for one seed, in blocks. Not shared between threads: it keeps one block to compare with."""

    def __init__(self, seed: int, block_bytes: int, generations: Generations | None = None) -> None:
        """`block_bytes`: a multiple of 512; `generations`: None where each block is written once."""
        self._run = seed << 8 & _MASK
        self._generations = generations
        self._size = block_bytes
        self._noise = memoryview(_noise(seed & _MASK) * (block_bytes // _PERIOD + 2))
        self._shifts = block_bytes % _PERIOD != 0
        self._want = bytearray(self._noise[:block_bytes])
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._want))
        self._words = memoryview(self._want).cast("Q")
        self._stamp(0)

    def _stamp(self, generation: int) -> None:
        self._stamped = self._run | generation
        self._stamps = array("Q", [self._stamped]) * (self._size // SECTOR)

    def next(self, offset: int) -> bytearray:
        """The block to be written at `offset` now; valid until the next call."""
        return self._filled(offset, self._generations.next(offset) if self._generations is not None else 0)

    def block(self, offset: int) -> bytearray:
        """The block that belongs at `offset`; valid until the next call."""
        return self._filled(offset, self._generations.at(offset) if self._generations is not None else 0)

    def _filled(self, offset: int, generation: int) -> bytearray:
        if self._stamped != self._run | generation:
            self._stamp(generation)
        start = offset % _PERIOD
        if start or self._shifts:
            self._want[:] = self._noise[start : start + self._size]
        offsets = range(offset, offset + self._size, SECTOR)
        self._words[1::_WORDS] = self._stamps
        self._words[0::_WORDS] = array("Q", offsets)
        self._words[_WORDS - 1 :: _WORDS] = array("Q", [at ^ self._stamped ^ _MASK for at in offsets])
        return self._want

    def check(self, address: int, offset: int) -> Mismatch | None:
        """Compare a block in memory at `address` with what belongs at `offset` of the file."""
        self.block(offset)
        if _memcmp(address, self._address, self._size) == 0:
            return None
        found = ctypes.string_at(address, self._size)
        bad = [at for at in range(0, self._size, SECTOR) if found[at : at + SECTOR] != self._want[at : at + SECTOR]]
        return self._judge(found, bad, offset)

    def _judge(self, found: bytes, bad: list[int], offset: int) -> Mismatch:
        """By the first bad sector, and by how many of the block there are."""
        first, sectors = bad[0], self._size // SECTOR
        kind, said = self._sector(found[first : first + SECTOR], first, offset + first)
        if len(bad) < sectors:
            if kind in ("stale", "stale-misplaced", "zeroed"):
                kind = "torn"
            said = f"{said} in {len(bad)} of the block's {sectors} sectors"
        elif kind == "corrupt":
            said += " in every sector of the block"
        return Mismatch(offset=offset + first, kind=kind, found=said)

    def _sector(self, sector: bytes, at: int, offset: int) -> tuple[Kind, str]:
        """`at`: in the block; `offset`: in the file."""
        if not any(sector):
            return "zeroed", "zeros"
        words = memoryview(sector).cast("Q")
        where, stamp, mixed = words[0], words[1], words[_WORDS - 1]
        if mixed == where ^ stamp ^ _MASK:
            if stamp != self._stamped:
                said = self._earlier(stamp)
                return ("stale", said) if where == offset else ("stale-misplaced", f"{said} at offset {where}")
            if where != offset:
                return "misplaced", f"what belongs at offset {where}"
        ended_by = mixed ^ offset ^ _MASK  # the stamp of the write that put the last bytes there
        if where == offset and ended_by != self._stamped and ended_by & ~0xFF == self._run:
            return "torn", "a sector that begins and ends with different writes of this run"
        wrong = sum(one != other for one, other in zip(sector, self._want[at : at + SECTOR], strict=True))
        if wrong <= _FLIPPED_BYTES:
            return "corrupt", f"{wrong} wrong byte{'s' * (wrong > 1)}"
        if where == offset or ended_by == self._stamped:
            return "torn", "a sector of which only a part is this run's"
        return "corrupt", "unknown bytes"

    def _earlier(self, stamp: int) -> str:
        if stamp & ~0xFF != self._run:
            return "what an earlier run wrote"
        rounds = (self._stamped - stamp) % _GENERATIONS
        return f"what was written {rounds} write{'s' * (rounds > 1)} before"

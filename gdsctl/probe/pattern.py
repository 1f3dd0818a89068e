"""Contents that tell where and when they were written.

Each sector of 512 bytes starts with its offset in the file and the seed of its run and ends with the two mixed; the rest
is noise drawn from the seed. So a block that lies elsewhere, of an earlier run, half written or zeroed is told apart.
"""

from __future__ import annotations

import ctypes
import functools
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

Kind = Literal["misplaced", "stale", "torn", "zeroed", "corrupt"]


class Mismatch(Record, frozen=True, kw_only=True):
    """`offset`: of the first wrong sector in the file; `found`: what stands there, in words."""

    offset: int
    kind: Kind
    found: str


@functools.lru_cache(maxsize=4)
def _noise(seed: int) -> bytes:
    return random.Random(seed).randbytes(_PERIOD)  # noqa: S311 -- must repeat, need not be secret


class Pattern:
    """The contents of a file for one seed, in blocks. Not shared between threads: it keeps one block to compare with."""

    def __init__(self, seed: int, block_bytes: int) -> None:
        """`block_bytes`: a multiple of 512."""
        self.seed = seed & _MASK
        self._size = block_bytes
        self._noise = memoryview(_noise(self.seed) * (block_bytes // _PERIOD + 2))
        self._shifts = block_bytes % _PERIOD != 0
        self._want = bytearray(self._noise[:block_bytes])
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._want))
        self._words = memoryview(self._want).cast("Q")
        self._seeds = array("Q", [self.seed]) * (block_bytes // SECTOR)

    def block(self, offset: int) -> bytearray:
        """The block that belongs at `offset`; valid until the next call."""
        start = offset % _PERIOD
        if start or self._shifts:
            self._want[:] = self._noise[start : start + self._size]
        offsets = range(offset, offset + self._size, SECTOR)
        self._words[1::_WORDS] = self._seeds
        self._words[0::_WORDS] = array("Q", offsets)
        self._words[_WORDS - 1 :: _WORDS] = array("Q", [at ^ self.seed ^ _MASK for at in offsets])
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
        first = bad[0]
        sector = found[first : first + SECTOR]
        words = memoryview(sector).cast("Q")
        where, seed, mixed = words[0], words[1], words[_WORDS - 1]
        whole = mixed == where ^ seed ^ _MASK
        kind: Kind
        if not any(sector):
            kind, said = "zeroed", "zeros"
        elif whole and seed == self.seed and where != offset + first:
            kind, said = "misplaced", f"what belongs at offset {where}"
        elif whole and seed != self.seed and where == offset + first:
            kind, said = "stale", "what an earlier run wrote"
        elif len(bad) == self._size // SECTOR:
            kind, said = "corrupt", "unknown bytes in every sector of the block"
        else:
            kind, said = "corrupt", "unknown bytes"
        if kind == "corrupt" and not whole and (where == offset + first or self._ends(mixed, offset + first)):
            kind, said = "torn", "a sector of which only a part is this run's"
        elif kind in ("stale", "zeroed") and len(bad) < self._size // SECTOR:
            kind, said = "torn", f"{said} in {len(bad)} of the block's {self._size // SECTOR} sectors"
        return Mismatch(offset=offset + first, kind=kind, found=said)

    def _ends(self, mixed: int, offset: int) -> bool:
        return mixed == offset ^ self.seed ^ _MASK

"""Each way in which a block may be wrong is told apart, and the first bad offset is named."""

from __future__ import annotations

import ctypes

import pytest

from gdsctl.probe.pattern import Mismatch, Pattern

BLOCK = 64 * 1024
SEED = 0x1234_5678


def look(content: bytearray, offset: int, block: int = BLOCK) -> Mismatch | None:
    address = ctypes.addressof(ctypes.c_char.from_buffer(content))
    return Pattern(SEED, block).check(address, offset)


def block(offset: int, seed: int = SEED, size: int = BLOCK) -> bytearray:
    return bytearray(Pattern(seed, size).block(offset))


@pytest.mark.parametrize("size", [512, 4096, BLOCK, 1 << 20])
def test_what_was_written_is_found_right(size: int) -> None:
    assert look(block(3 * size, size=size), 3 * size, size) is None


def test_blocks_of_another_size_hold_the_same_stamps() -> None:
    """A file laid out in large blocks can be verified in small ones."""
    large = block(4 << 20, size=4 << 20)
    for small in (512, 4096, 96 * 1024, 1 << 20):
        at = 3 * small
        assert look(large[at : at + small], (4 << 20) + at, small) is None


def test_a_block_from_elsewhere() -> None:
    found = look(block(7 * BLOCK), 2 * BLOCK)
    assert found is not None
    assert (found.kind, found.offset, found.found) == ("misplaced", 2 * BLOCK, f"what belongs at offset {7 * BLOCK}")


def test_a_block_of_an_earlier_run() -> None:
    found = look(block(2 * BLOCK, seed=99), 2 * BLOCK)
    assert found is not None
    assert (found.kind, found.offset) == ("stale", 2 * BLOCK)


def test_zeros() -> None:
    found = look(bytearray(BLOCK), BLOCK)
    assert found is not None
    assert (found.kind, found.offset) == ("zeroed", BLOCK)


@pytest.mark.parametrize("old", [block(BLOCK, seed=99), bytearray(BLOCK)], ids=["old", "zeros"])
def test_a_write_that_got_half_way(old: bytearray) -> None:
    """The first 4 KiB are new, what follows is what stood there before."""
    torn = block(BLOCK)
    torn[4096:] = old[4096:]
    found = look(torn, BLOCK)
    assert found is not None
    assert (found.kind, found.offset) == ("torn", BLOCK + 4096)


def test_a_sector_torn_in_its_middle() -> None:
    torn = block(BLOCK)
    torn[512 + 256 : 1024] = block(BLOCK, seed=99)[512 + 256 : 1024]
    found = look(torn, BLOCK)
    assert found is not None
    assert (found.kind, found.offset) == ("torn", BLOCK + 512)


@pytest.mark.parametrize("at", [0, 8, 100, 511, 512 * 77 + 300, BLOCK - 1])
def test_a_single_bit_is_enough(at: int) -> None:
    flipped = block(BLOCK)
    flipped[at] ^= 1
    found = look(flipped, BLOCK)
    assert found is not None
    assert found.offset == BLOCK + at // 512 * 512


def test_foreign_bytes() -> None:
    found = look(bytearray(b"\xaa" * BLOCK), 0)
    assert found is not None
    assert (found.kind, found.offset) == ("corrupt", 0)

"""Each way in which a block may be wrong is told apart, and the first bad offset is named."""

from __future__ import annotations

import ctypes

import pytest

from gdsctl.probe.pattern import Generations, Mismatch, Pattern

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


def test_a_block_of_an_earlier_run_that_belongs_elsewhere() -> None:
    found = look(block(7 * BLOCK, seed=99), 2 * BLOCK)
    assert found is not None
    assert (found.kind, found.offset) == ("stale-misplaced", 2 * BLOCK)
    assert found.found == f"what an earlier run wrote at offset {7 * BLOCK}"


@pytest.mark.parametrize("at", [100, 505, 511])
def test_a_flipped_bit_is_no_torn_write(at: int) -> None:
    flipped = block(BLOCK)
    flipped[at] ^= 0x80
    found = look(flipped, BLOCK)
    assert found is not None
    assert (found.kind, found.found) == ("corrupt", f"1 wrong byte in 1 of the block's {BLOCK // 512} sectors")


def written(times: int, offset: int) -> tuple[Pattern, bytearray]:
    """A pattern whose block at `offset` was written so often, and what the last write put there."""
    made, content = Pattern(SEED, BLOCK, Generations(8 * BLOCK, BLOCK)), bytearray()
    for _ in range(times):
        content = bytearray(made.next(offset))
    return made, content


@pytest.mark.parametrize("times", [1, 2, 256, 257, 1000])
def test_a_write_that_was_lost_leaves_the_one_before(times: int) -> None:
    made, content = written(times, 3 * BLOCK)
    address = ctypes.addressof(ctypes.c_char.from_buffer(content))
    assert made.check(address, 3 * BLOCK) is None
    made.next(3 * BLOCK)
    found = made.check(address, 3 * BLOCK)
    assert found is not None
    assert (found.kind, found.offset, found.found) == ("stale", 3 * BLOCK, "what was written 1 write before")


def test_a_block_that_is_half_of_the_last_write_and_half_of_the_one_before() -> None:
    made, content = written(2, BLOCK)
    content[4096:] = written(1, BLOCK)[1][4096:]
    found = made.check(ctypes.addressof(ctypes.c_char.from_buffer(content)), BLOCK)
    assert found is not None
    assert (found.kind, found.offset) == ("torn", BLOCK + 4096)


def test_a_sector_that_is_half_of_the_last_write_and_half_of_the_one_before() -> None:
    made, content = written(2, BLOCK)
    content[256:512] = written(1, BLOCK)[1][256:512]
    found = made.check(ctypes.addressof(ctypes.c_char.from_buffer(content)), BLOCK)
    assert found is not None
    assert (found.kind, found.offset) == ("torn", BLOCK)

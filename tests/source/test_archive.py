"""Archives: what tarfile writes is what the tree holds; what is hostile is refused or stays inside."""

# mypy: disable-error-code="union-attr,no-untyped-call,index"
# An answer of another kind than the expected one fails the test by itself.

from __future__ import annotations

import bz2
import contextlib
import errno
import gzip
import io
import lzma
import os
import tarfile
import tracemalloc
import zipfile
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gdsctl.errors import InputError, RefusedError
from gdsctl.source import archive
from gdsctl.source.archive import open_archive
from gdsctl.source.base import FILE_LIMIT


def tar_of(*members, format_=tarfile.PAX_FORMAT):
    """(name, bytes) for a file, (name, TarInfo type, link name) for anything else."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=format_) as tar:
        for name, *rest in members:
            info = tarfile.TarInfo(name)
            if isinstance(rest[0], bytes) and len(rest) == 1:
                info.size = len(rest[0])
                tar.addfile(info, io.BytesIO(rest[0]))
            else:
                info.type, info.linkname = rest
                tar.addfile(info)
    return raw.getvalue()


def opened(tmp_path, raw, name="a.bin"):
    path = tmp_path / name
    path.write_bytes(raw)
    return open_archive(str(path))


def opened_or_refused(tmp_path, raw):
    """None where it is refused with its name; any other exception fails the test."""
    with contextlib.suppress(InputError):
        return opened(tmp_path, raw)
    with pytest.raises(InputError) as caught:
        opened(tmp_path, raw)
    assert caught.value.path == str(tmp_path / "a.bin")
    return None


PLAIN = tar_of(("sys/a/one", b"1\n"), ("sys/a/two", tarfile.SYMTYPE, "../b"), ("sys/b", b"x" * 5000))


@pytest.mark.parametrize(
    "pack",
    [bytes, gzip.compress, bz2.compress, lzma.compress, zstandard.ZstdCompressor().compress],
    ids=["tar", "gz", "bz2", "xz", "zst"],
)
def test_packings_are_told_by_content(tmp_path, pack):
    files = opened(tmp_path, pack(PLAIN))
    assert files.content("sys/a/one") == b"1\n"
    assert files.content("sys/b") == b"x" * 5000
    assert files.kind("sys/a/two") == "link"
    assert files.target("sys/a/two") == "../b"
    assert sorted(files.listing("sys")) == ["a", "b"]
    assert files.listing("") == ["sys"]


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, zstandard.ZstdCompressor().compress])
def test_streams_one_after_the_other_are_one_archive(tmp_path, pack):
    half = len(PLAIN) // 2
    assert opened(tmp_path, pack(PLAIN[:half]) + pack(PLAIN[half:])).content("sys/b") == b"x" * 5000


def test_answers_as_the_kernel(tmp_path):
    files = opened(tmp_path, PLAIN)
    for call, number in (
        (lambda: files.kind("sys/none"), errno.ENOENT),
        (lambda: files.content("sys/a"), errno.EISDIR),
        (lambda: files.listing("sys/b"), errno.ENOTDIR),
        (lambda: files.target("sys/b"), errno.EINVAL),
        (lambda: files.content("sys/b/below"), errno.ENOENT),
    ):
        with pytest.raises(OSError) as caught:  # noqa: PT011 - the number is what counts
            call()
        assert caught.value.errno == number


def test_the_last_of_one_name_counts_and_kinds_give_way(tmp_path):
    files = opened(
        tmp_path,
        tar_of(
            ("etc/a", b"first"),
            ("etc/a", b"last"),
            ("etc/link", tarfile.SYMTYPE, "/etc"),
            ("etc/link/inside", b"i"),
            ("etc/dir/file", b"f"),
            ("etc/dir", b"now a file"),
        ),
    )
    assert files.content("etc/a") == b"last"
    assert files.kind("etc/link") == "dir"  # unpacked by tar it would have gone to /etc/inside
    assert files.content("etc/link/inside") == b"i"
    assert files.content("etc/dir") == b"now a file"
    assert sorted(files.listing("etc")) == ["a", "dir", "link"]


def test_absolute_names_lie_below_the_root(tmp_path):
    files = opened(tmp_path, tar_of(("/etc/x", b"1"), ("./etc/./y", b"2"), ("//proc//z", b"3")))
    assert (files.content("etc/x"), files.content("etc/y"), files.content("proc/z")) == (b"1", b"2", b"3")


@pytest.mark.parametrize("name", ["../x", "a/../../x", "..", "/../x", "a/.."])
def test_dots_that_climb_are_refused(tmp_path, name):
    with pytest.raises(InputError, match="leaves it"):
        opened(tmp_path, tar_of(("a/b", b""), (name, b"x")))


def test_hard_links_are_the_same_bytes(tmp_path):
    files = opened(
        tmp_path,
        tar_of(
            ("etc/early", tarfile.LNKTYPE, "etc/file"),
            ("etc/file", b"content"),
            ("etc/late", tarfile.LNKTYPE, "etc/file"),
            ("etc/gone", tarfile.LNKTYPE, "etc/nothing"),
            ("etc/self", tarfile.LNKTYPE, "etc/self"),
        ),
    )
    assert files.content("etc/late") == b"content"
    assert files.content("etc/early") == b"content"
    for name in ("etc/gone", "etc/self"):
        with pytest.raises(OSError, match="hard link"):
            files.content(name)
    with pytest.raises(InputError, match="leaves it"):
        opened(tmp_path, tar_of(("etc/out", tarfile.LNKTYPE, "../../etc/passwd")))


@pytest.mark.parametrize("type_", [tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE])
def test_devices_and_fifos_are_other(tmp_path, type_):
    files = opened(tmp_path, tar_of(("dev/x", type_, "")))
    assert files.kind("dev/x") == "other"
    with pytest.raises(OSError, match="not a regular file"):
        files.content("dev/x")


@pytest.mark.parametrize("format_", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_long_names(tmp_path, format_):
    name = "/".join(["sys/devices", *[f"0000:{bus:02x}:00.0" for bus in range(12)], "numa_node"])
    target = "../" * 20 + "x" * 60
    files = opened(tmp_path, tar_of((name, b"1\n"), ("sys/link", tarfile.SYMTYPE, target[:99]), format_=format_))
    assert files.content(name) == b"1\n"
    assert files.target("sys/link") == target[:99]


def test_gnu_sparse_is_passed_over(tmp_path):
    """Members as `man 5 tar` has them: an old sparse map with one extension block, then an ordinary file."""
    info = tarfile.TarInfo("sys/sparse")
    info.type, info.size = b"S", 512
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[482] = 1
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    raw = bytes(header) + bytes(512) + b"d" * 512 + tar_of(("sys/next", b"n"))
    files = opened(tmp_path, raw)
    assert files.content("sys/next") == b"n"
    with pytest.raises(OSError, match="sparse"):
        files.content("sys/sparse")


def test_a_big_file_is_unreadable_but_the_rest_holds(tmp_path):
    files = opened(tmp_path, gzip.compress(tar_of(("proc/big", bytes(FILE_LIMIT + 1)), ("proc/small", b"s")), 1))
    with pytest.raises(OSError, match="more than") as caught:
        files.content("proc/big")
    assert caught.value.errno == errno.EFBIG
    assert files.content("proc/small") == b"s"


@pytest.mark.parametrize(
    "pack", [gzip.compress, bz2.compress, lzma.compress, zstandard.ZstdCompressor().compress, bytes]
)
def test_every_cut_is_an_input_error_or_a_shorter_archive(tmp_path, pack):
    raw = pack(PLAIN)
    for length in [*range(0, len(raw), max(1, len(raw) // 40)), len(raw) - 1]:
        files = opened_or_refused(tmp_path, raw[:length])
        assert files is None or files.content("sys/a/one") == b"1\n"


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pack=st.sampled_from([bytes, gzip.compress, bz2.compress, lzma.compress]), at=st.floats(0, 1), bit=st.integers(0, 7)
)
def test_a_flipped_bit_never_escapes_as_another_error(tmp_path, pack, at, bit):
    raw = bytearray(pack(PLAIN))
    raw[min(int(at * len(raw)), len(raw) - 1)] ^= 1 << bit
    files = opened_or_refused(tmp_path, bytes(raw))
    assert files is None or isinstance(files.listing(""), list)


def test_what_is_no_tar_archive(tmp_path):
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as file:
        file.writestr("manifest.json", "{}")
    for raw, words in (
        (b"", "empty"),
        (b"hello\n", "neither a tar archive"),
        (os.urandom(4096), "neither a tar archive"),
        (gzip.compress(b"hello\n"), "neither a tar archive"),
        (zipped.getvalue(), "zip"),
        (b"\x1f\x8b" + b"no gzip at all", "damaged"),
    ):
        with pytest.raises(InputError, match=words) as caught:
            opened(tmp_path, raw)
        assert str(caught.value).startswith(str(tmp_path))


def test_bounds(tmp_path, monkeypatch):
    many = tar_of(*((f"sys/{number}", b"x") for number in range(50)))
    for name, value, words in (
        ("MAX_MEMBERS", 49, "49 members"),
        ("MAX_HELD_BYTES", 1000, "holds more"),
        ("MAX_STREAM_BYTES", 20000, "unpacks to more than"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(archive, name, value)
            with pytest.raises(InputError, match=words):
                opened(tmp_path, many)
    assert len(opened(tmp_path, many).listing("sys")) == 50
    bomb = gzip.compress(tar_of(("proc/a", bytes(15 << 20)), ("proc/b", bytes(15 << 20))), 9)
    monkeypatch.setattr(archive, "RATIO_FREE_BYTES", 1 << 20)
    monkeypatch.setattr(archive, "MAX_RATIO", 500)
    with pytest.raises(InputError, match="500 times"):
        opened(tmp_path, bomb)


def test_a_deep_name_costs_nothing(tmp_path):
    with pytest.raises(InputError, match="too long a name"):
        opened(tmp_path, tar_of(("a/" * 1000 + "x", b"")))


def test_a_fifo_or_a_missing_file_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises((InputError, RefusedError)):
        open_archive(str(tmp_path / "fifo"))
    with pytest.raises(RefusedError, match="No such file"):
        open_archive(str(tmp_path / "none"))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.text("abcé.:-", min_size=1, max_size=60).filter(lambda part: part.strip(".")),
            st.binary(max_size=1500),
        ),
        max_size=12,
        unique_by=lambda member: member[0],
    ),
    st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]),
)
def test_reads_what_tarfile_wrote(tmp_path, members, format_):
    raw = tar_of(("sys/anchor", b""), *((f"sys/{name}", data) for name, data in members), format_=format_)
    files = opened(tmp_path, raw)
    assert {name: files.content(f"sys/{name}") for name in files.listing("sys")} == {"anchor": b"", **dict(members)}


@pytest.mark.shared
def test_field_trees_read_as_tarfile_reads_them(shared):
    for path in sorted((shared / "field" / "trees").glob("hwloc-*.tar.bz2"))[:2]:
        files = open_archive(str(path))
        with tarfile.open(path) as tar:
            for member in tar:
                name = member.name.strip("/")
                if member.isreg():
                    expected = tar.extractfile(member)
                    assert expected is not None
                    assert files.content(name) == expected.read(), name
                elif member.issym():
                    assert files.target(name) == member.linkname


def test_memory_stays_near_what_is_kept(tmp_path):
    """500 functions: 2 MB of configuration spaces are kept, 12 MB of stream pass by, 12,000 small attributes repeat."""
    path = Path(tmp_path) / "big.tar.gz"
    with (
        gzip.open(path, "wb", 1) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.USTAR_FORMAT) as tar,
    ):
        config = bytes(range(256)) * 16
        for function in range(500):
            folder = f"sys/devices/pci0000:00/0000:00:01.0/{function >> 8:04x}:{function & 255:02x}:00.0"
            for number in range(24):
                info = tarfile.TarInfo(f"{folder}/attribute_{number}")
                info.size = 2
                tar.addfile(info, io.BytesIO(b"%d\n" % (number % 10)))
            info = tarfile.TarInfo(f"{folder}/config")
            info.size = 4096
            tar.addfile(info, io.BytesIO(b"%08d" % function + config[8:]))
    tracemalloc.start()
    files = open_archive(str(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert files.content("sys/devices/pci0000:00/0000:00:01.0/0001:f3:00.0/attribute_7") == b"7\n"
    assert peak < 9_000_000


def test_a_pipe_is_told(tmp_path):
    reader, writer = os.pipe()
    try:
        os.write(writer, tar_of(("sys/x", b"1"))[:4096])
        with pytest.raises(InputError, match="pipe"):
            open_archive(f"/dev/fd/{reader}")
    finally:
        os.close(reader)
        os.close(writer)

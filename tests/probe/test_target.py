"""What the probe may touch, and what it leaves behind: nothing."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gdsctl.errors import RefusedError, UsageError
from gdsctl.probe import target

BLOCK = 4096


def several(path: Path, size: int = 1 << 20, **more: Any):
    asked = {"writes": False, "allow_existing": False, "block_bytes": BLOCK} | more
    return target.opened(str(path), size, **asked)


@contextlib.contextmanager
def opened(path: Path, size: int = 1 << 20, **more: Any) -> Iterator[target.Target]:
    with several(path, size, **more) as (found,):
        yield found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder on a file system that does direct I/O."""
    try:
        descriptor, _ = target.create(str(tmp_path))
    except RefusedError:
        pytest.skip("the temporary folder's file system has no O_DIRECT")
    os.close(descriptor)
    return tmp_path


def test_a_directory_gets_a_file_without_a_name(folder: Path) -> None:
    with opened(folder, writes=True) as found:
        assert os.listdir(folder) == []
        facts = os.fstat(found.descriptor)
        assert stat.S_ISREG(facts.st_mode)
        assert (facts.st_size, facts.st_nlink) == (1 << 20, 0)
        assert stat.S_IMODE(facts.st_mode) == 0o600
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(found.descriptor)


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT])
def test_where_there_is_no_tmpfile_the_name_goes_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """NFS and others; the kernel keeps an unlinked file until it is closed, by whatever end of the process."""
    real = os.open
    created: list[str] = []

    def no_tmpfile(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(code, os.strerror(code))
        if flags & os.O_DIRECTORY:  # is it append-only?
            return real(path, flags)
        assert flags & os.O_EXCL
        assert flags & os.O_CREAT
        created.append(path)
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", no_tmpfile)
    descriptor, how = target.create(str(folder))
    os.close(descriptor)
    assert "unlinked" in how
    assert len(created) == 1
    assert os.listdir(folder) == []


def test_a_file_that_was_made_but_not_opened_goes_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """open(2) may create the file and then say EINVAL for O_DIRECT."""
    real = os.open

    def refusing(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT:
            os.close(real(path, flags & ~os.O_DIRECT, mode))
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "open", refusing)
    with pytest.raises(RefusedError, match="does not do direct I/O"):
        target.create(str(folder))
    assert os.listdir(folder) == []


def test_a_name_that_is_taken_is_left_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guessed names are of no use to anyone: O_EXCL, and the file that stood there stays."""
    taken = folder / ".gdsctl-probe-00"
    taken.write_text("precious")
    real = os.open

    def no_tmpfile(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "")
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", no_tmpfile)
    monkeypatch.setattr("secrets.token_hex", lambda _: "00")
    with pytest.raises(FileExistsError):
        target.create(str(folder))
    assert taken.read_text() == "precious"


@pytest.mark.parametrize("moment", ["before open", "after open"])
def test_killed_while_the_file_has_a_name(tmp_path: Path, moment: str) -> None:
    """Where there is no O_TMPFILE (NFS, overlayfs) the name lives for a moment, in which SIGKILL may come."""
    process = os.fork()
    if not process:
        real = os.open

        def killed(path: str, flags: int, mode: int = 0o777) -> int:
            if path == str(tmp_path):
                raise OSError(errno.EOPNOTSUPP, "")
            if "gdsctl-probe" in path:
                if moment == "after open":
                    real(path, flags, mode)
                os.kill(os.getpid(), signal.SIGKILL)
            return real(path, flags, mode)

        os.open = killed  # type: ignore[assignment] # in this child only
        target.create(str(tmp_path))
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL
    until = time.monotonic() + 30
    while os.listdir(tmp_path) and time.monotonic() < until:
        time.sleep(0.01)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("writes", [True, False])
def test_an_existing_file_is_not_touched_unasked(folder: Path, writes: bool) -> None:
    file = folder / "data"
    file.write_bytes(b"x" * BLOCK)
    with (
        pytest.raises(UsageError, match="never written" if writes else "--allow-existing"),
        opened(file, writes=writes),
    ):
        pass
    with pytest.raises(UsageError, match="never written"), opened(file, writes=True, allow_existing=True):
        pass
    assert file.read_bytes() == b"x" * BLOCK


def test_an_existing_file_is_opened_for_reading_only(folder: Path) -> None:
    file = folder / "data"
    with file.open("wb") as stream:
        stream.write(b"x" * (3 * BLOCK + 100))
        os.fsync(stream.fileno())  # a delayed allocation may look like a hole
    with opened(file, allow_existing=True) as found:
        assert found.size_bytes == 3 * BLOCK  # whole blocks
        assert not found.own
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.write(found.descriptor, b"y")
    assert file.read_bytes() == b"x" * (3 * BLOCK + 100)


def test_a_file_with_holes_measures_nothing(folder: Path) -> None:
    file = folder / "sparse"
    with file.open("wb") as stream:
        stream.write(b"x" * (1 << 16))
        stream.truncate(1 << 20)
        os.fsync(stream.fileno())
    with pytest.raises(UsageError, match="hole at offset 65536"), opened(file, allow_existing=True):
        pass
    with opened(file, 1 << 16, allow_existing=True) as found:  # the part before the hole is fine
        assert found.size_bytes == 1 << 16


def test_a_file_that_was_reserved_and_never_written(folder: Path) -> None:
    """Read once, its zeros stand in the page cache, and SEEK_HOLE calls them data; direct reads would move nothing."""
    file = folder / "reserved"
    with file.open("wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, 1 << 20)
    assert file.read_bytes() == bytes(1 << 20)
    descriptor = os.open(file, os.O_RDONLY)
    before = os.lseek(descriptor, 0, os.SEEK_HOLE)
    os.close(descriptor)
    if before == 0:
        pytest.skip("this file system tells the hole all the same")
    with pytest.raises(UsageError, match="hole at offset 0"), opened(file, allow_existing=True):
        pass


def test_a_file_shorter_than_a_block(folder: Path) -> None:
    file = folder / "short"
    file.write_bytes(b"x" * 100)
    with pytest.raises(UsageError, match="shorter than one block"), opened(file, allow_existing=True):
        pass


def test_other_kinds_are_refused(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    for path in (folder / "pipe", Path("/dev/null")):
        with pytest.raises(UsageError, match="neither a directory"), opened(path, writes=True):
            pass


def test_a_block_device_is_never_written(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    device = os.stat_result((stat.S_IFBLK | 0o660, 1, 1, 1, 0, 0, 0, 0, 0, 0))
    monkeypatch.setattr(os, "stat", lambda _: device)
    refused = pytest.raises(UsageError, match="existing block device is never written")
    with refused, opened(folder, writes=True, allow_existing=True):
        pass


def test_a_block_device_given_up_by_another_name(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    device = os.stat_result((stat.S_IFBLK | 0o660, 1, 1, 1, 0, 0, 0, 0, 0, 0))
    monkeypatch.setattr(os, "stat", lambda _: device)
    refused = pytest.raises(UsageError, match="not the path that --i-know-this-destroys-data names")
    with refused, opened(folder, writes=True, destroys=f"{folder}/"):
        pass


def test_a_block_device_given_up_is_opened_for_itself_alone(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Linux, block/bdev.c: O_EXCL without O_CREAT claims the device, and fails where a mount or another device has."""
    file = folder / "device"
    with file.open("wb") as stream:
        stream.write(b"x" * (4 * BLOCK))
        os.fsync(stream.fileno())
    device = os.stat_result((stat.S_IFBLK | 0o660, 1, 1, 1, 0, 0, 0, 0, 0, 0))
    real, flags_seen = os.open, []

    def opens(path: str, flags: int, mode: int = 0o777) -> int:
        flags_seen.append(flags)
        return real(path, flags & ~os.O_EXCL, mode)

    monkeypatch.setattr(os, "open", opens)
    with monkeypatch.context() as during:
        during.setattr(os, "stat", lambda _: device)
        with opened(file, writes=True, destroys=str(file)) as found:
            assert flags_seen[0] & os.O_EXCL
            assert not flags_seen[0] & (os.O_CREAT | os.O_TRUNC)
            assert (found.own, found.blank) == (False, True)

    def busy(path: str, flags: int, mode: int = 0o777) -> int:
        del path, flags, mode
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    monkeypatch.setattr(os, "open", busy)
    monkeypatch.setattr(os, "stat", lambda _: device)
    with (
        pytest.raises(RefusedError, match=r"in use.*nothing was written"),
        opened(file, writes=True, destroys=str(file)),
    ):
        pass


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_nothing_but_a_block_device_can_be_given_up(folder: Path, kind: str) -> None:
    path = folder / "data"
    if kind == "file":
        path.write_bytes(b"x" * BLOCK)
    else:
        path.mkdir()
    with pytest.raises(UsageError, match="i-know-this-destroys-data"), opened(path, writes=True, destroys=str(path)):
        pass
    assert kind == "folder" or path.read_bytes() == b"x" * BLOCK


def test_several_files_of_a_directory(folder: Path) -> None:
    with several(folder, 16 * BLOCK, writes=True, files=3) as found:
        assert [one.size_bytes for one in found] == [5 * BLOCK] * 3
        assert len({os.fstat(one.descriptor).st_ino for one in found}) == 3
        assert os.listdir(folder) == []
    for one in found:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(one.descriptor)


def test_several_of_one_file(folder: Path) -> None:
    file = folder / "data"
    file.write_bytes(b"x" * BLOCK)
    with pytest.raises(UsageError, match="needs a directory"), several(file, allow_existing=True, files=2):
        pass


def test_what_is_not_there(folder: Path) -> None:
    with pytest.raises(RefusedError, match=r"No such file or directory \(ENOENT\)"), opened(folder / "none"):
        pass


def test_more_than_is_free_is_refused_before_anything_is_made(folder: Path) -> None:
    facts = os.statvfs(folder)
    with pytest.raises(RefusedError, match="must stay free"), opened(folder, facts.f_bavail * facts.f_frsize):
        pass
    assert os.listdir(folder) == []


@pytest.mark.parametrize(
    ("free", "fits"),
    # 100 GiB in all: 5 % would be 5 GiB, so 1 GiB has to stay.
    [((1 << 30) + (1 << 20), True), ((1 << 30) + (1 << 20) - 4096, False)],
)
def test_the_margin(monkeypatch: pytest.MonkeyPatch, free: int, fits: bool) -> None:
    total = 100 << 30
    facts = os.statvfs_result((4096, 4096, total // 4096, free // 4096, free // 4096, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: facts)
    if fits:
        target.require_space("/x", 1 << 20)
    else:
        with pytest.raises(RefusedError, match="ENOSPC ahead"):
            target.require_space("/x", 1 << 20)


def test_a_mount_whose_server_is_gone(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    import threading

    from gdsctl.probe import deadline

    never = threading.Event()
    monkeypatch.setattr(os, "stat", lambda _: never.wait(5))
    with pytest.raises(RefusedError, match=r"no answer within 0\.1 s"):
        deadline.within(str(folder), lambda: os.stat(folder), 0.1)
    never.set()


def test_a_folder_that_only_grows(tmp_path: Path) -> None:
    """An append-only folder (chattr +a): one of ours could not be taken away again; a file without a name is never seen in it."""
    grows = tmp_path / "grows"
    grows.mkdir()
    if subprocess.run(["chattr", "+a", grows], check=False, capture_output=True).returncode:
        pytest.skip("chattr +a does not work here")
    try:
        with pytest.raises(RefusedError, match="append-only"), target.own_folder(str(grows)):
            pytest.fail("it was made")
        with pytest.raises(RefusedError, match="append-only"):
            target.create(str(grows), introduce=lambda _: None)
        assert os.listdir(grows) == []
    finally:
        subprocess.run(["chattr", "-a", grows], check=True)


def test_the_folder_is_removed_from_where_it_was_made(folder: Path) -> None:
    """Somebody moves the folder around it, and puts another in its place, with one of the same name in it."""
    place, moved = folder / "place", folder / "moved"
    place.mkdir()
    with target.own_folder(str(place)) as own:
        (Path(own) / "chunk").write_bytes(b"x")
        (Path(own) / "deeper" / "still").mkdir(parents=True)
        (Path(own) / "link").symlink_to(folder)
        place.rename(moved)
        other = place / os.path.basename(own)
        other.mkdir(parents=True)
        (other / "not ours").write_text("mine")
    assert os.listdir(moved) == []
    assert os.listdir(other) == ["not ours"]


def test_what_an_interruption_leaves_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "_remove", lambda *_: None)
    interrupted = r"^interrupted; .*/\.gdsctl-probe-[0-9a-f]{16}: could not be removed; please remove it$"
    with pytest.raises(RefusedError, match=interrupted), target.own_folder(str(folder)):
        raise KeyboardInterrupt
    with pytest.raises(RefusedError, match=r"^no space; .*could not be removed"), target.own_folder(str(folder)):
        raise RefusedError("no space")
    assert len(os.listdir(folder)) == 2


def test_an_interrupted_open_leaves_no_file_open(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal comes while a slow server is asked, and its handler raises before anybody has the descriptor."""
    real = os.open

    def slow(*arguments: Any) -> int:
        made = real(*arguments)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.3)
        return made

    monkeypatch.setattr(os, "open", slow)
    with pytest.raises(KeyboardInterrupt), target.held(str(folder / "chunk"), os.O_RDWR | os.O_CREAT):
        pytest.fail("it went on")
    assert (folder / "chunk").exists()
    assert not any(
        os.path.exists(link) and os.path.samefile(link, folder / "chunk") for link in Path("/proc/self/fd").iterdir()
    )

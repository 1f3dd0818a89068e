"""The file a probe works on, and the promise that nothing else is ever touched.

In a directory the file has no name (O_TMPFILE), or loses it as soon as it is open and, for cuFile, registered: however
the process ends after that, SIGKILL and power loss included, the kernel frees it. An existing file is opened read-only.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import secrets
import stat
import struct
import time
from collections.abc import Callable, Iterator

from gdsctl.errors import GdsctlError, RefusedError, UsageError
from gdsctl.probe.deadline import PATIENCE_S, within
from gdsctl.probe.processes import keeper
from gdsctl.probe.sizes import words
from gdsctl.record import Record

# What open(2) says where a file system, or a kernel before 3.11, has no O_TMPFILE.
NO_TMPFILE = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL})
_NO_FALLOCATE = frozenset({errno.EOPNOTSUPP, errno.ENOSYS})

# Linux, include/linux/errno.h: never meant for programs, but NFS lets them out.
_KERNEL_ONLY = {
    512: "cut off by the kernel, as by umount -f (ERESTARTSYS)",
    521: "illegal NFS file handle (EBADHANDLE)",
    524: "operation is not supported (ENOTSUPP)",
    527: "an untyped server fault (ESERVERFAULT)",
    528: "the server is busy (EJUKEBOX)",
}

Introduce = Callable[[int], None]
"""What an engine does with an open file while it still has a name."""

_FS_IOC_GETFLAGS, _FS_APPEND_FL = 0x80086601, 0x20  # Linux, include/uapi/linux/fs.h; the kernel gives 4 bytes

_LEFT_FREE_SHARE = 0.05
_LEFT_FREE_BYTES = 1 << 30


class Target(Record, frozen=True, kw_only=True):
    """An open file. `path`: what the user named; `descriptor`: with O_DIRECT; `own`: made by this probe; `named`: how.

    `blank`: what stands in it is nobody's; `device`: (major, minor) that the file system says the file is on.
    """

    path: str
    descriptor: int
    size_bytes: int
    own: bool
    blank: bool
    named: str
    device: tuple[int, int]


def refused(what: str, error: OSError) -> RefusedError:
    """The system's own words, with the symbol that a search engine finds."""
    number = error.errno or 0
    if number in _KERNEL_ONLY:
        return RefusedError(f"{what}: {_KERNEL_ONLY[number]}")
    symbol = errno.errorcode.get(number, "")
    return RefusedError(f"{what}: {error.strerror or error}" + (f" ({symbol})" if symbol else ""))


@contextlib.contextmanager
def opened(
    path: str,
    size_bytes: int,
    *,
    writes: bool,
    allow_existing: bool,
    block_bytes: int,
    files: int = 1,
    destroys: str | None = None,
    introduce: Introduce | None = None,
) -> Iterator[tuple[Target, ...]]:
    """The files for one probe, of `size_bytes` together; gone, those that are its own, when the block ends.

    `destroys`: the block device that the user gave up. Raises UsageError for what the probe will not touch, RefusedError
    where the system refuses.
    """
    try:
        facts = within(path, lambda: os.stat(path))
    except OSError as error:
        raise refused(path, error) from error
    if stat.S_ISDIR(facts.st_mode):
        if destroys is not None:
            raise UsageError(f"{path}: a directory; --i-know-this-destroys-data is for a block device")
        within(path, lambda: require_space(path, size_bytes))
        each = size_bytes // files // block_bytes * block_bytes
        with contextlib.ExitStack() as stack:
            yield tuple([stack.enter_context(_own(path, each, introduce)) for _ in range(files)])
        return
    if files > 1:
        raise UsageError(f"{path}: --files {files} needs a directory")
    given_up = _admit(path, facts, writes=writes, allow_existing=allow_existing, destroys=destroys)
    with _existing(path, size_bytes, block_bytes, given_up=given_up) as target:
        yield (target,)


def _admit(path: str, facts: os.stat_result, *, writes: bool, allow_existing: bool, destroys: str | None) -> bool:
    """May its contents be destroyed?"""
    block_device = stat.S_ISBLK(facts.st_mode)
    kind = "block device" if block_device else "file"
    if not block_device and not stat.S_ISREG(facts.st_mode):
        raise UsageError(f"{path}: neither a directory, a file nor a block device")
    if destroys is not None and not block_device:
        raise UsageError(
            f"{path}: --i-know-this-destroys-data is for block devices; an existing file is never written to"
        )
    if destroys is not None and destroys != path:
        raise UsageError(f"{path}: not the path that --i-know-this-destroys-data names: {destroys}")
    if writes and destroys is None:
        more = ", or give the device up: --i-know-this-destroys-data and its path again" if block_device else ""
        raise UsageError(
            f"{path}: an existing {kind} is never written to; name a directory, which gets a file of its own{more}"
        )
    if not writes and not allow_existing:
        raise UsageError(f"{path}: an existing {kind} is read only with --allow-existing")
    return writes


@contextlib.contextmanager
def _own(folder: str, size_bytes: int, introduce: Introduce | None) -> Iterator[Target]:
    try:
        descriptor, named = within(folder, lambda: create(folder, introduce), 2 * PATIENCE_S)
    except OSError as error:
        raise refused(folder, error) from error
    try:
        try:
            within(folder, lambda: _allocate(folder, descriptor, size_bytes))
            facts = os.fstat(descriptor)
        except FileNotFoundError as error:  # 9p, for one
            raise RefusedError(f"{folder}: the file system forgets an open file that has no name (ENOENT)") from error
        except OSError as error:
            raise refused(folder, error) from error
        yield Target(
            path=folder,
            descriptor=descriptor,
            size_bytes=size_bytes,
            own=True,
            blank=True,
            named=named,
            device=(os.major(facts.st_dev), os.minor(facts.st_dev)),
        )
    finally:
        _close(descriptor)


@contextlib.contextmanager
def _existing(path: str, wanted_bytes: int, block_bytes: int, *, given_up: bool) -> Iterator[Target]:
    # O_EXCL without O_CREAT: the kernel refuses a block device that is mounted, swap, or part of another (EBUSY).
    access = os.O_RDWR | os.O_EXCL if given_up else os.O_RDONLY
    try:
        descriptor = within(path, lambda: os.open(path, access | os.O_DIRECT | os.O_CLOEXEC))
    except OSError as error:
        if given_up and error.errno == errno.EBUSY:
            raise RefusedError(
                f"{path}: in use, mounted or part of another device (EBUSY); nothing was written"
            ) from error
        raise no_direct(path, error) from error
    try:
        facts = os.fstat(descriptor)
        size = min(os.lseek(descriptor, 0, os.SEEK_END), wanted_bytes) // block_bytes * block_bytes
        if not size:
            raise UsageError(f"{path}: shorter than one block of {words(block_bytes)}")
        with contextlib.suppress(OSError):  # what is cached hides extents that were never written, and answers reads
            os.posix_fadvise(descriptor, 0, size, os.POSIX_FADV_DONTNEED)
        hole = None if stat.S_ISBLK(facts.st_mode) else first_hole(descriptor, size)
        if hole is not None:
            raise UsageError(f"{path}: a hole at offset {hole}: reading it moves no data; name a file without holes")
        device = facts.st_rdev if stat.S_ISBLK(facts.st_mode) else facts.st_dev
        yield Target(
            path=path,
            descriptor=descriptor,
            size_bytes=size,
            own=False,
            blank=given_up,
            named="block device, its contents given up" if given_up else "existing file, read only",
            device=(os.major(device), os.minor(device)),
        )
    finally:
        _close(descriptor)


def require_removable(folder: str) -> None:
    """Raises RefusedError for a folder that is append-only (chattr +a): what is made in it cannot be taken away again."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        (flags,) = struct.unpack("i", fcntl.ioctl(descriptor, _FS_IOC_GETFLAGS, bytes(4)))
    except OSError:  # a file system without such flags
        return
    finally:
        os.close(descriptor)
    if flags & _FS_APPEND_FL:
        raise RefusedError(f"{folder}: append-only (lsattr): what a probe makes there could not be removed")


@contextlib.contextmanager
def own_folder(path: str) -> Iterator[str]:
    """A folder of our own inside `path`, gone with all that is in it however the block or this process ends.

    It is removed from where it was made, though `path` may lead elsewhere by then (umount -l, a renamed folder).
    """
    within(path, lambda: require_removable(path))
    name = f".gdsctl-probe-{secrets.token_hex(8)}"
    try:
        parent = within(path, lambda: os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
    except OSError as error:
        raise refused(path, error) from error
    try:
        with keeper(lambda: _remove(parent, name), keeps=parent):
            try:
                within(path, lambda: os.mkdir(name, 0o700, dir_fd=parent))
            except OSError as error:
                raise refused(path, error) from error
            yield os.path.join(path, name)
    except (KeyboardInterrupt, GdsctlError) as error:
        if within(path, lambda: _is_there(parent, name)):
            what = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
            raise RefusedError(f"{what}; {_not_removed(path, name)}") from error
        raise
    else:
        if within(path, lambda: _is_there(parent, name)):
            raise RefusedError(_not_removed(path, name))
    finally:
        os.close(parent)


def _not_removed(path: str, name: str) -> str:
    return f"{path}/{name}: could not be removed; please remove it"


@contextlib.contextmanager
def held(path: str, flags: int, mode: int = 0o600) -> Iterator[int]:
    """A file of an own folder, open in the block, and closed however it ends: an open file keeps NFS from removing a folder.

    Raises what os.open raises, and RefusedError where it does not come back. (A signal that comes while a server is asked
    would else be answered between os.open and whatever takes its result.)
    """
    found: list[int] = []
    try:
        within(path, lambda: found.append(os.open(path, flags | os.O_CLOEXEC, mode)))
        yield found[0]
    finally:
        for descriptor in found:
            os.close(descriptor)


def _is_there(parent: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except OSError:
        return False
    return True


def _remove(parent: int, name: str) -> None:
    """Again and again for a while: NFS keeps what a dying process has not yet closed as .nfs... in the folder."""
    until = time.monotonic() + PATIENCE_S
    _remove_once(parent, name)
    while _is_there(parent, name) and time.monotonic() < until:
        time.sleep(0.1)
        _remove_once(parent, name)


def _remove_once(parent: int, name: str) -> None:
    """With all that is in it, as far as it goes; no link is followed."""
    with contextlib.suppress(OSError):
        folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            for inside in os.listdir(folder):
                try:
                    os.unlink(inside, dir_fd=folder)
                except OSError:
                    _remove_once(folder, inside)
        finally:
            os.close(folder)
        os.rmdir(name, dir_fd=parent)


def create(folder: str, introduce: Introduce | None = None) -> tuple[int, str]:
    """A new file in a folder, open for direct reading and writing, without a name; and how it came to have none."""
    flags = os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC
    if introduce is None:
        try:
            return os.open(folder, flags | os.O_TMPFILE | os.O_EXCL, 0o600), "own file without a name (O_TMPFILE)"
        except OSError as error:
            if error.errno not in NO_TMPFILE:
                raise
    require_removable(folder)
    path = os.path.join(folder, f".gdsctl-probe-{secrets.token_hex(8)}")
    with keeper(lambda: _forget(path, again=True)) as nothing_to_clean:
        try:
            # A server may make the file and yet refuse O_DIRECT, so the name goes whatever open says; but not one that
            # was there before: O_EXCL, which follows no link either. (O_NOFOLLOW would stay set on the open file, and
            # cuFileHandleRegister refuses such flags, 5019.)
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            nothing_to_clean()
            raise
        except OSError as error:
            _forget(path)
            nothing_to_clean()
            raise no_direct(folder, error) from error
        try:
            if introduce is not None:
                introduce(descriptor)
            _forget(path)
            nothing_to_clean()
        except BaseException:
            os.close(descriptor)
            raise
    return descriptor, "own file, unlinked as soon as it was open"


def _forget(path: str, *, again: bool = False) -> None:
    """`again`: look a second time, for a server may make the file after the process that asked for it was killed."""
    for pause in (0.0, 0.2, 1.0) if again else (0.0,):
        time.sleep(pause)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
            return


def no_direct(path: str, error: OSError) -> GdsctlError:
    """open(2) with O_DIRECT gives EINVAL where the file system has no direct I/O."""
    if error.errno == errno.EINVAL:
        return RefusedError(f"{path}: the file system does not do direct I/O (O_DIRECT: EINVAL)")
    return refused(path, error)


def require_space(folder: str, size_bytes: int) -> None:
    """Raises RefusedError unless, the file written, 5 % of the file system or 1 GiB stays free, whichever is less."""
    try:
        facts = os.statvfs(folder)
    except OSError as error:
        raise refused(folder, error) from error
    free = facts.f_bavail * facts.f_frsize
    keep = min(int(facts.f_blocks * facts.f_frsize * _LEFT_FREE_SHARE), _LEFT_FREE_BYTES)
    if size_bytes + keep > free:
        raise RefusedError(
            f"{folder}: {words(size_bytes)} wanted, {words(free)} free, of which {words(keep)} must stay free (ENOSPC ahead)"
        )


def _allocate(folder: str, descriptor: int, size_bytes: int) -> None:
    """Reserve the file's blocks, so that a full disk or a quota shows before the first write; where it can be done."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    if libc.fallocate(descriptor, 0, 0, size_bytes) == 0:
        return
    code = ctypes.get_errno()
    if code not in _NO_FALLOCATE:
        raise refused(f"{folder}: reserving {words(size_bytes)}", OSError(code, os.strerror(code)))
    os.ftruncate(descriptor, size_bytes)


def first_hole(descriptor: int, size_bytes: int) -> int | None:
    """Offset of the first hole (or unwritten extent) before `size_bytes`; None where there is none or nobody can tell."""
    try:
        hole = os.lseek(descriptor, 0, os.SEEK_HOLE)
    except OSError:
        return None
    return hole if hole < size_bytes else None


def _close(descriptor: int) -> None:
    """Closing flushes on NFS and may wait for ever; the kernel closes what is left when the process ends."""
    with contextlib.suppress(OSError, RefusedError):
        within("close", lambda: os.close(descriptor), 10.0)

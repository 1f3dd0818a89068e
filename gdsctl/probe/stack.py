"""What lies below a file system, layer by layer, down to where its bytes end up.

A loop device is a file of another file system, which may lie on a loop device again, keep its files in memory, or take
O_DIRECT and use its page cache all the same: what is true of the top of a stack says nothing of its bottom.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from gdsctl.model.devices import Block, Mount
from gdsctl.record import Record
from gdsctl.source.base import Missing, Source, decode, got

_IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs", "rootfs"})
_RAM_DISK = re.compile(r"(?:zram|ram)\d+\Z")
_LOOP_GET_STATUS64 = 0x4C05  # Linux, include/uapi/linux/loop.h: lo_device, lo_inode come first
_INFO_BYTES, _FLAGS_AT, _DIRECT_IO = 232, 52, 16  # sizeof struct loop_info64, its lo_flags, LO_FLAGS_DIRECT_IO
_LOOP = re.compile(r"(loop\d+)(?:p\d+)?\Z")
_TRIES = 3


class Stack(Record, frozen=True, kw_only=True):
    """Below one file system. `drives`: kernel names of the block devices at the bottom, none where it is one itself; `written_to`: folders in sysfs of what this file system and those below it write their pages to;
    `loops`: loop devices on the way, `buffered`: those that use the page cache of their own file; `memory`: what keeps its bytes in the machine's
    memory; `unseen`: where nobody here can look further, and why; `files`: that loop devices stand for and that
    can be told for certain; `likely_on`: what overlayfs seems to keep its files on, told by nothing but size and free space.
    """

    drives: tuple[str, ...] = ()
    written_to: tuple[str, ...] = ()
    loops: tuple[str, ...] = ()
    buffered: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    likely_on: Mount | None = None


class LoopFile(NamedTuple):
    """What a loop device stands for, by the kernel's numbers. `device`: st_dev; `direct`: does it ask for direct I/O?"""

    device: int
    inode: int
    direct: bool = False


class Space(NamedTuple):
    """Of a file system, in blocks of `block_bytes`; overlayfs hands on what the one below it says (Linux, ovl_statfs)."""

    block_bytes: int
    blocks: int
    free: int
    inodes: int
    free_inodes: int


def space(path: str) -> Space | None:
    """None where it cannot be told."""
    try:
        facts = os.statvfs(path)
    except (OSError, ValueError):
        return None
    return Space(facts.f_frsize, facts.f_blocks, facts.f_bfree, facts.f_files, facts.f_ffree)


def loop_file(name: str) -> LoopFile | None:
    """Asked of /dev/NAME itself, since its file's name in sysfs may be one of another mount namespace; None: not told."""
    try:
        descriptor = os.open(f"/dev/{name}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        said = fcntl.ioctl(descriptor, _LOOP_GET_STATUS64, bytes(_INFO_BYTES))
    except OSError:
        return None
    finally:
        os.close(descriptor)
    encoded, inode = struct.unpack_from("QQ", said)
    (flags,) = struct.unpack_from("I", said, _FLAGS_AT)
    return LoopFile(encoded, inode, bool(flags & _DIRECT_IO))  # huge_encode_dev, which is also what stat(2) gives


def below(
    source: Source,
    device: tuple[int, int],
    mount: Mount | None,
    *,
    blocks: Sequence[Block] = (),
    mounts: Sequence[Mount] = (),
    identify: Callable[[str], LoopFile | None] = loop_file,
    measure: Callable[[str], Space | None] = space,
) -> Stack:
    """`device`: major and minor that the file system says its files are on; `mount`: it, or the block device itself."""
    walk = _Walk(source, blocks, mounts, identify)
    if mount is not None and mount.fstype == "overlay":
        mount = walk.overlay(mount, device, measure)
        device = _number(mount)
    top = walk.named(device) or (_device(mount) if mount is not None and device[0] else None)
    if top is not None:
        walk.disk(top)
    elif device[0]:
        walk.unseen.append(f"the block device {device[0]}:{device[1]}, which is not known here")
    elif mount is not None:
        walk.file_system(mount, top=True)
    return Stack(
        drives=tuple(sorted(walk.drives - {top})),
        written_to=tuple(walk.written_to),
        loops=tuple(walk.loops),
        buffered=tuple(walk.buffered),
        memory=tuple(walk.memory),
        unseen=tuple(walk.unseen),
        files=tuple(walk.files),
        likely_on=walk.likely_on,
    )


class _Walk:
    def __init__(
        self,
        source: Source,
        blocks: Sequence[Block],
        mounts: Sequence[Mount],
        identify: Callable[[str], LoopFile | None],
    ) -> None:
        self._source = source
        self._parts = {block.name for block in blocks if block.kind == "part"}
        self._slaves = {block.name: block.slaves for block in blocks}
        self._numbered = {block.major_minor: block.name for block in blocks if block.major_minor}
        self._mounts = mounts
        self._identify = identify
        self._seen: set[str] = set()
        self.drives: set[str] = set()
        self.written_to: list[str] = []
        self.loops: list[str] = []
        self.buffered: list[str] = []
        self.memory: list[str] = []
        self.unseen: list[str] = []
        self.files: list[str] = []
        self.likely_on: Mount | None = None

    def named(self, device: tuple[int, int]) -> str | None:
        """The block device of a number; None for the numbers without one (major 0) and for those nobody knows."""
        number = f"{device[0]}:{device[1]}"
        real = self._source.real(f"/sys/dev/block/{number}") if device[0] else None
        if isinstance(real, str) and not real.endswith(f"/{number}"):  # a tree of copied files has folders for links
            return os.path.basename(real)
        return self._numbered.get(number)

    def disk(self, name: str) -> None:
        """A block device with a file system on it; a partition's pages are written to its whole disk's."""
        whole = self._slaves[name][0] if name in self._parts and self._slaves[name] else name
        self.written_to.append(f"/sys/class/block/{whole}")
        self.device(name)

    def device(self, name: str) -> None:
        """A block device by itself."""
        if name in self._seen:
            return
        self._seen.add(name)
        loop = self._source.names(f"/sys/class/block/{name}/loop")
        if _RAM_DISK.match(name):
            self.memory.append(name)
            self.drives.add(name)
        elif got(loop):
            self._loop(name)
        elif (
            isinstance(loop, Missing) and loop.status != "absent"
        ):  # no sysfs here: loop devices tell of themselves, others nothing
            self.drives.add(name)
            if as_loop := _LOOP.match(name):
                self._loop(as_loop[1])
            else:
                self.unseen.append(f"what {name} is made of, since sysfs cannot be read")
        elif slaves := self._slaves.get(name):
            for slave in slaves:
                self.device(slave)
        else:
            self.drives.add(name)

    def file_system(self, mount: Mount, *, top: bool = False) -> None:
        """Of one that is on no block device's number. `top`: it has the probe's own file, whose evidence is elsewhere."""
        if mount.fstype in _IN_MEMORY:
            self.memory.append(f"{mount.fstype} at {mount.target}")
        elif mount.fstype == "btrfs" and (devices := self._btrfs(mount)):
            for name in devices:
                self.device(name)
        elif not top:
            self.unseen.append(f"{mount.fstype} at {mount.target}, of which nothing here counts")

    def overlay(self, mount: Mount, device: tuple[int, int], measure: Callable[[str], Space | None]) -> Mount | None:
        """Its upper layer may lie anywhere, and the names in its options are of another namespace as often as not.

        The file system that has the same size and as much free as overlayfs, which asks the one below, is likely that
        one. Files of layers elsewhere have a device number of their own, or one shared under `xino`.
        """
        what = f"the file system that keeps the files of {mount.target} (overlay)"
        mixed = any(option.startswith("xino=") and option != "xino=off" for option in mount.options)
        if f"{device[0]}:{device[1]}" != mount.major_minor or mixed:
            self.unseen.append(f"{what}: its layers are on several")
            return None
        for _ in range(_TRIES):  # others may write between two looks
            wanted = measure(mount.target)
            alike = {
                other.major_minor: other
                for other in self._mounts
                if _local(other) and wanted is not None and wanted.blocks and measure(other.target) == wanted
            }
            if alike and measure(mount.target) == wanted:
                break
        if len(alike) != 1:
            self.unseen.append(what)
            return None
        (self.likely_on,) = alike.values()
        return self.likely_on

    def _btrfs(self, mount: Mount) -> tuple[str, ...]:
        """Its files are on a device number of no block device (Linux, fs/btrfs/sysfs.c: devices)."""
        for uuid in _names(self._source, "/sys/fs/btrfs"):
            devices = _names(self._source, f"/sys/fs/btrfs/{uuid}/devices")
            if mount.device in devices:
                self.written_to.append(f"/sys/fs/btrfs/{uuid}")
                return devices
        return ()

    def _loop(self, name: str) -> None:
        told = self._identify(name)
        direct = self._text(f"/sys/class/block/{name}/loop/dio")
        if direct is None and told is None:
            self.unseen.append(f"the file of {name}, and how it is read and written, which only root may be told")
            return
        self.loops.append(name)
        if direct.strip() != "1" if direct is not None else told is not None and not told.direct:
            self.buffered.append(name)
        path = (self._text(f"/sys/class/block/{name}/loop/backing_file") or "").removesuffix("\n")
        if told is None:
            self.unseen.append(f"the file of {name}, which only root may be told")
            return
        facts = _facts(path, told)
        if facts is not None and stat.S_ISBLK(facts.st_mode):
            self._on(name, facts.st_rdev, None)
            return
        self._on(name, told.device, path if facts is not None else None)
        if facts is not None:
            self.files.append(path)
        else:
            self.unseen.append(f"the file of {name}, which has no name here")

    def _on(self, name: str, number: int, path: str | None) -> None:
        """The device or file system under a loop device."""
        device = os.major(number), os.minor(number)
        disk = self.named(device)
        mount = self._mount_of(path, device) if not device[0] else None
        if disk is not None:
            self.disk(disk)
        elif mount is not None:
            self.file_system(mount)
        else:
            self.unseen.append(f"the file of {name}, on {device[0]}:{device[1]}, which is not known here")

    def _mount_of(self, path: str | None, device: tuple[int, int]) -> Mount | None:
        number = f"{device[0]}:{device[1]}"
        for mount in self._mounts:
            if mount.major_minor == number:
                return mount
        if path is None:  # of btrfs, files of a subvolume have a number of their own
            return None
        over = [mount for mount in self._mounts if path.startswith(mount.target.rstrip("/") + "/")]
        return max(enumerate(over), key=lambda found: (len(found[1].target), found[0]))[1] if over else None

    def _text(self, path: str) -> str | None:
        reading = self._source.read(path)
        return decode(reading) if got(reading) else None


def _number(mount: Mount | None) -> tuple[int, int]:
    major, _, minor = (mount.major_minor if mount is not None and mount.major_minor else "0:0").partition(":")
    return int(major), int(minor)


def _device(mount: Mount) -> str | None:
    """Without sysfs its name is all that /proc tells."""
    path = mount.source or ""
    folder, _, name = path.rpartition("/")
    return mount.device or (name if folder == "/dev" else None)


def _local(mount: Mount) -> bool:
    """On a block device, or in memory: whoever asks it never waits for a server."""
    number = mount.major_minor or "0:0"
    return not number.startswith("0:") or mount.fstype == "btrfs" or mount.fstype in _IN_MEMORY


def _names(source: Source, folder: str) -> tuple[str, ...]:
    names = source.names(folder)
    return names if got(names) else ()


def _facts(path: str, told: LoopFile) -> os.stat_result | None:
    """Of the file that the kernel means; None where something else, or nothing, has its name here."""
    try:
        facts = os.stat(path)
    except (OSError, ValueError):
        return None
    return facts if (facts.st_dev, facts.st_ino) == (told.device, told.inode) else None


@contextlib.contextmanager
def opened(files: Sequence[str]) -> Iterator[tuple[tuple[int, int], ...]]:
    """Descriptor and size of each that can be opened for reading, for a look at what is cached of it."""
    with contextlib.ExitStack() as stack:
        found = []
        for path in files:
            with contextlib.suppress(OSError):
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
                stack.callback(os.close, descriptor)
                found.append((descriptor, os.fstat(descriptor).st_size))
        yield tuple(found)

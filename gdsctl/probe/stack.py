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
from gdsctl.source.base import Source, decode, got

_IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs", "rootfs"})
_RAM_DISK = re.compile(r"(?:zram|ram)\d+\Z")
_LOOP_GET_STATUS64 = 0x4C05  # Linux, include/uapi/linux/loop.h: lo_device, lo_inode come first
_INFO_BYTES = 232


class Stack(Record, frozen=True, kw_only=True):
    """Below one file system. `drives`: kernel names of the block devices at the bottom, none where it is one itself; `written_to`: folders in sysfs of what this file system and those below it write their pages to;
    `loops`: loop devices on the way, `buffered`: those that use the page cache of their own file; `memory`: what keeps its bytes in the machine's
    memory; `unseen`: where nobody here can look further, and why; `files`: that loop devices stand for and that
    can be told for certain.
    """

    drives: tuple[str, ...] = ()
    written_to: tuple[str, ...] = ()
    loops: tuple[str, ...] = ()
    buffered: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


class LoopFile(NamedTuple):
    """What a loop device stands for, by the kernel's numbers. `device`: st_dev."""

    device: int
    inode: int


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
    return LoopFile(encoded, inode)  # huge_encode_dev, which is also what stat(2) gives


def below(
    source: Source,
    device: tuple[int, int],
    mount: Mount | None,
    *,
    blocks: Sequence[Block] = (),
    mounts: Sequence[Mount] = (),
    identify: Callable[[str], LoopFile | None] = loop_file,
) -> Stack:
    """`device`: major and minor that the file system says its files are on; `mount`: it, or the block device itself."""
    walk = _Walk(source, blocks, mounts, identify)
    top = walk.named(device) or (mount.device if mount is not None and device[0] else None)
    if top is not None:
        walk.disk(top)
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
        if _RAM_DISK.match(name):
            self.memory.append(name)
            self.drives.add(name)
        elif got(self._source.names(f"/sys/class/block/{name}/loop")):
            self._loop(name)
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

    def _btrfs(self, mount: Mount) -> tuple[str, ...]:
        """Its files are on a device number of no block device (Linux, fs/btrfs/sysfs.c: devices)."""
        for uuid in _names(self._source, "/sys/fs/btrfs"):
            devices = _names(self._source, f"/sys/fs/btrfs/{uuid}/devices")
            if mount.device in devices:
                self.written_to.append(f"/sys/fs/btrfs/{uuid}")
                return devices
        return ()

    def _loop(self, name: str) -> None:
        self.loops.append(name)
        if (self._text(f"/sys/class/block/{name}/loop/dio") or "").strip() != "1":
            self.buffered.append(name)  # so does a kernel that cannot do otherwise: before Linux 4.4
        path = (self._text(f"/sys/class/block/{name}/loop/backing_file") or "").removesuffix("\n")
        told = self._identify(name)
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

"""Layers below a file system, over trees laid out as sysfs is, and over real loop devices where root may make them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from gdsctl import pipeline
from gdsctl.model.devices import Block, Mount
from gdsctl.probe.probe import probe
from gdsctl.probe.request import Request
from gdsctl.probe.stack import LoopFile, Space, Stack, below
from gdsctl.source.live import LiveSource
from gdsctl.source.opening import open_source

NVME, PARTITION = os.makedev(259, 0), os.makedev(259, 7)
TMPFS, NFS, BTRFS = os.makedev(0, 30), os.makedev(0, 40), os.makedev(0, 50)
BLOCKS = (
    Block(name="nvme0n1", major_minor="259:0"),
    Block(name="loop0", kind="loop", major_minor="7:0"),
    Block(name="loop0p1", kind="part", slaves=("loop0",), major_minor="259:7"),
    Block(name="loop1", kind="loop", major_minor="7:1"),
    Block(name="md0", kind="md", slaves=("loop0p1", "loop1"), major_minor="9:0"),
    Block(name="zram0", major_minor="251:0"),
)
MOUNTS = (
    Mount(target="/t", fstype="tmpfs", major_minor="0:30"),
    Mount(target="/n", fstype="nfs4", major_minor="0:40"),
    Mount(target="/b", fstype="btrfs", major_minor="0:50", device="nvme0n1"),
)

Walk = Callable[..., Stack]


@pytest.fixture
def walk(tmp_path: Path) -> Walk:
    """`loops`: of each loop device whether it is direct, and st_dev of its file, None where the kernel does not tell."""

    def found(number: str, mount: Mount | None = None, **loops: tuple[int, int | None]) -> Stack:
        files = {"sys/fs/btrfs/8c5e/devices/nvme0n1": ""}
        for name, (direct, _) in loops.items():
            files |= {f"sys/class/block/{name}/loop/dio": f"{direct}\n"}
            files |= {f"sys/class/block/{name}/loop/backing_file": f"/images/{name} of another namespace\n"}
        for path, text in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)

        def identify(name: str) -> LoopFile | None:
            device = loops[name][1]
            return None if device is None else LoopFile(device, 1)

        major, minor = map(int, number.split(":"))
        source = open_source(str(tmp_path))
        return below(source, (major, minor), mount, blocks=BLOCKS, mounts=MOUNTS, identify=identify)

    return found


def test_a_drive_is_its_own_bottom(walk: Walk) -> None:
    assert walk("259:0") == Stack(written_to=("/sys/class/block/nvme0n1",))


def test_loop_devices_at_every_depth(walk: Walk) -> None:
    """loop1 is a file on a partition of loop0, and only loop0 is buffered."""
    found = walk("7:1", loop0=(0, NVME), loop1=(1, PARTITION))
    assert (found.loops, found.buffered, found.drives) == (("loop1", "loop0"), ("loop0",), ("nvme0n1",))
    # A partition's pages are written to its whole disk's.
    assert found.written_to == tuple(f"/sys/class/block/{name}" for name in ("loop1", "loop0", "nvme0n1"))


def test_an_array_of_a_partition_and_a_file_in_memory(walk: Walk) -> None:
    found = walk("9:0", loop0=(1, NVME), loop1=(1, TMPFS))
    assert (found.loops, found.buffered) == (("loop0", "loop1"), ())
    assert (found.drives, found.memory) == (("nvme0n1",), ("tmpfs at /t",))


@pytest.mark.parametrize(("number", "mount"), [("251:0", None), ("0:30", MOUNTS[0])], ids=["zram", "tmpfs"])
def test_what_is_memory_itself(walk: Walk, number: str, mount: Mount | None) -> None:
    assert walk(number, mount).memory


def test_a_file_on_btrfs(walk: Walk) -> None:
    found = walk("7:0", loop0=(1, BTRFS))
    assert (found.drives, found.written_to) == (("nvme0n1",), ("/sys/class/block/loop0", "/sys/fs/btrfs/8c5e"))


@pytest.mark.parametrize("device", [None, NFS, os.makedev(0, 99), os.makedev(8, 99)])
def test_where_nobody_can_look_is_said(walk: Walk, device: int | None) -> None:
    """Not root; a file system without counters here; one of another mount namespace; an unknown drive."""
    assert any("nfs4" in why or "loop0" in why for why in walk("7:0", loop0=(1, device)).unseen)


def test_a_name_of_another_namespace_is_not_opened(walk: Walk) -> None:
    found = walk("7:0", loop0=(1, NVME))
    assert found.files == ()
    assert found.unseen == ("the file of loop0, which has no name here",)


OVERLAY = Mount(target="/o", fstype="overlay", major_minor="0:60")
BELOW = (
    *MOUNTS,
    Mount(target="/l", fstype="ext4", major_minor="7:0", device="loop0"),
    Mount(target="/again", fstype="ext4", major_minor="7:0", device="loop0"),
    Mount(target="/d", fstype="xfs", major_minor="259:0", device="nvme0n1"),
)


@pytest.mark.parametrize(
    ("alike", "mount", "minor", "likely"),
    [
        (("/l", "/again"), OVERLAY, 60, "/again"),
        (("/t",), OVERLAY, 60, "/t"),
        (("/l", "/d"), OVERLAY, 60, None),  # either could be it
        ((), OVERLAY, 60, None),  # its file system is not mounted here
        (("/n",), OVERLAY, 60, None),  # a server is not asked
        (("/l",), OVERLAY, 61, None),  # a file of a layer that is elsewhere
        (("/l",), msgspec.structs.replace(OVERLAY, options=("xino=on",)), 60, None),
    ],
)
def test_what_overlayfs_keeps_its_files_on(
    tmp_path: Path, alike: tuple[str, ...], mount: Mount, minor: int, likely: str | None
) -> None:
    """The one local file system that has as much free; a guess, however good."""
    folder = tmp_path / "sys/class/block/loop0/loop"
    folder.mkdir(parents=True)
    (folder / "dio").write_text("0\n")

    def measure(target: str) -> Space:
        return Space(4096, 1000, 900 if target in (*alike, "/o") else 800, 10, 10)

    found = below(
        *(open_source(str(tmp_path)), (0, minor), mount),
        blocks=BLOCKS, mounts=(OVERLAY, *BELOW), identify=lambda _: LoopFile(NVME, 1), measure=measure,
    )  # fmt: skip
    assert found.buffered == (("loop0",) if likely == "/again" else ())
    assert (found.likely_on.target if found.likely_on else None) == likely
    assert any("overlay" in why for why in found.unseen) == (likely is None)
    assert bool(found.memory) == (likely == "/t")


@pytest.mark.parametrize(
    ("named", "told", "buffered", "unseen"),
    [
        ("/dev/loop0", LoopFile(NVME, 1, False), ("loop0",), "which has no name here"),
        ("/dev/loop0", LoopFile(NVME, 1, True), (), "which has no name here"),
        ("/dev/loop0p1", LoopFile(NVME, 1, False), ("loop0",), "which has no name here"),
        ("/dev/loop0", None, (), "which only root may be told"),
        ("/dev/sda", None, (), "what sda is made of"),
        ("/dev/mapper/x", None, (), "the block device 7:0"),
        (None, None, (), "the block device 7:0"),
    ],
)
def test_without_sysfs(
    tmp_path: Path, named: str | None, told: LoopFile | None, buffered: tuple[str, ...], unseen: str
) -> None:
    """A loop device tells of itself; of others it is said that nothing is known."""
    (tmp_path / "proc").mkdir()
    mount = Mount(target="/l", source=named, fstype="ext4", major_minor="7:0")
    found = below(open_source(str(tmp_path)), (7, 0), mount, identify=lambda _: told)
    assert found.buffered == buffered
    assert any(unseen in why for why in found.unseen)


class Images:
    """Loop devices and mounts in a folder, gone at the end."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack

    def mounted(self, on: Path | None = None, *, direct: bool) -> Path:
        """An ext4 on a loop device over a new file in the folder `on`."""
        place = self._folder / f"mount{len(list(self._folder.iterdir()))}"
        place.mkdir()
        image = (on or self._folder) / "image"
        with image.open("wb") as stream:
            stream.truncate(64 << 20 if on is None else 24 << 20)
        flag = f"--direct-io={'on' if direct else 'off'}"
        device = run("losetup", flag, "--show", "-f", str(image)).strip()
        self._stack.callback(run, "losetup", "-d", device)
        run("mkfs.ext4", "-q", device)
        self._mount(device, place)
        return place

    def tmpfs(self) -> Path:
        place = self._folder / "tmpfs"
        place.mkdir()
        self._mount("-t", "tmpfs", "none", place)
        return place

    def overlay(self, on: Path) -> Path:
        for name in ("lower", "upper", "work", "merged"):
            (on / name).mkdir()
        self._mount(
            "-t", "overlay", "none", "-o", f"lowerdir={on}/lower,upperdir={on}/upper,workdir={on}/work", on / "merged"
        )
        return on / "merged"

    def _mount(self, *what: str | Path) -> None:
        run("mount", *map(str, what))
        self._stack.callback(run, "umount", str(what[-1]))


def run(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"{command[0]}: {error}")


@pytest.fixture
def images(tmp_path: Path) -> Iterator[Images]:
    if os.geteuid():
        pytest.skip("only root makes loop devices")
    with ExitStack() as stack:
        yield Images(tmp_path, stack)


@pytest.mark.parametrize("rw", ["read", "write"])
def test_a_loop_device_over_a_file_in_memory_is_no_storage(images: Images, rw: str) -> None:
    taken = probed(images.mounted(images.tmpfs(), direct=True), rw)
    assert (taken.verdict, taken.confidence) == ("mixed", "certain")
    assert "memory" in taken.because


@pytest.mark.parametrize("rw", ["read", "write"])
def test_a_buffered_loop_device_below_a_direct_one(images: Images, rw: str) -> None:
    taken = probed(images.mounted(images.mounted(direct=False), direct=True), rw)
    assert (taken.verdict, taken.confidence) == ("mixed", "certain")
    assert "loop" in taken.because


@pytest.mark.parametrize("rw", ["read", "write"])
@pytest.mark.parametrize(("direct", "verdict"), [(False, "mixed"), (True, "host-direct")])
def test_overlayfs_over_a_loop_device(images: Images, rw: str, direct: bool, verdict: str) -> None:
    """What is below is told by a guess, so that nothing is certain."""
    taken = probed(images.overlay(images.mounted(direct=direct)), rw)
    if taken.verdict == "unknown":
        pytest.skip("the machine writes too much else")
    assert (taken.verdict, taken.confidence) == (verdict, "likely")
    assert any(piece.fact == "file system below" for piece in taken.evidence)


def probed(folder: Path, rw: str):
    source = LiveSource()
    request = Request(path=str(folder), engine="posix", rw=rw, size_bytes=4 << 20)  # type: ignore[arg-type]
    return probe(request, source, pipeline.inspect(source)).path_taken

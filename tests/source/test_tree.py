"""A bare tree: what is absent, what was never captured, and links that never lead out (contract, section 1)."""

# mypy: disable-error-code="union-attr,no-untyped-call,index,operator"
# An answer of another kind than the expected one fails the test by itself.

from __future__ import annotations

import os
import tarfile

import pytest

from gdsctl.errors import InputError
from gdsctl.source.base import Missing
from gdsctl.source.opening import open_source


@pytest.fixture
def machine(tmp_path):
    """sys, proc and dev; no etc, run, boot."""
    root = tmp_path / "machine"
    device = root / "sys/devices/pci0000:00/0000:00:01.0"
    device.mkdir(parents=True)
    (device / "numa_node").write_text("0\n")
    (root / "sys/bus/pci/devices").mkdir(parents=True)
    (root / "sys/bus/pci/devices/0000:00:01.0").symlink_to("../../../devices/pci0000:00/0000:00:01.0")
    (device / "driver").symlink_to("../../../bus/pci/drivers/nvme")  # its target was not gathered
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mounts").write_text("none /proc proc rw 0 0\n")
    (root / "proc/mounts").symlink_to("self/mounts")
    (root / "dev").mkdir()
    return root


def packed(root, tmp_path, *, inside=""):
    path = tmp_path / "machine.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.add(root, arcname=inside or ".")
    return path


@pytest.fixture(params=["folder", "archive", "wrapped folder", "wrapped archive"])
def source(request, machine, tmp_path):
    if request.param == "folder":
        return open_source(str(machine))
    if request.param == "archive":
        return open_source(str(packed(machine, tmp_path)))
    if request.param == "wrapped archive":
        return open_source(str(packed(machine, tmp_path, inside="node17")))
    return open_source(str(machine.parent))


def status(reading):
    assert isinstance(reading, Missing), reading
    return reading.status


def test_reads_through_links(source):
    assert source.info.kind == "tree"
    assert source.read("/sys/bus/pci/devices/0000:00:01.0/numa_node") == b"0\n"
    assert source.read("/proc/mounts") == b"none /proc proc rw 0 0\n"
    assert source.names("/sys/bus/pci/devices") == ("0000:00:01.0",)
    assert source.names("/sys/bus/pci/devices/0000:00:01.0") == ("driver", "numa_node")
    assert source.real("/sys/bus/pci/devices/0000:00:01.0") == "/sys/devices/pci0000:00/0000:00:01.0"


def test_a_link_tells_its_target_though_nobody_gathered_it(source):
    assert source.real("/sys/bus/pci/devices/0000:00:01.0/driver") == "/sys/bus/pci/drivers/nvme"
    assert source.exists("/sys/bus/pci/devices/0000:00:01.0/driver") is True
    assert status(source.read("/sys/bus/pci/devices/0000:00:01.0/driver/module")) == "absent"


def test_absent_and_not_captured(source):
    assert status(source.read("/sys/devices/pci0000:00/0000:00:01.0/no_such")) == "absent"
    assert status(source.read("/sys/kernel/debug/none/at/all")) == "absent"
    assert status(source.names("/dev/disk/by-id")) == "absent"
    assert source.exists("/proc/driver/nvidia-fs") is False
    for path in ("/etc/cufile.json", "/run/udev/data", "/etc", "/boot"):
        assert status(source.read(path)) == "not_captured"
        assert status(source.exists(path)) == "not_captured"
        assert status(source.names(path)) == "not_captured"
        assert status(source.real(path)) == "not_captured"
    assert source.names("/dev") == ()


def test_commands_and_answers_were_not_captured(source):
    assert status(source.run("lspci")) == "not_captured"
    assert status(source.ask("nvml")) == "not_captured"


@pytest.mark.parametrize("archive", [False, True])
def test_no_path_leaves_the_tree(machine, tmp_path, archive):
    (tmp_path / "secret").write_text("outside")
    (machine / "etc").mkdir()
    (machine / "etc/absolute").symlink_to("/proc/self/mounts")
    (machine / "etc/outside").symlink_to("../../secret")
    (machine / "etc/far").symlink_to("../" * 30 + "proc/self/mounts")
    (machine / "etc/loop").symlink_to("loop")
    (machine / "etc/ping").symlink_to("pong")
    (machine / "etc/pong").symlink_to("/etc/ping")
    (machine / "etc/dir").symlink_to(str(tmp_path))
    source = open_source(str(packed(machine, tmp_path) if archive else machine))
    mounts = b"none /proc proc rw 0 0\n"
    assert source.read("/etc/absolute") == mounts
    assert source.read("/etc/far") == mounts  # `..` at the root stays at the root, as in a chroot
    assert status(source.read("/etc/outside")) == "not_captured"
    assert status(source.read("/etc/dir/secret")) == "not_captured"
    for path in ("/etc/loop", "/etc/ping"):
        assert status(source.read(path)) == "error"
        assert source.exists(path) is True
    for path in ("/../secret", "/sys/../../secret", "/..", "/sys/..", "/etc/../../secret"):
        assert source.read(path) != b"outside"
        assert "secret" not in (source.names(path) if isinstance(source.names(path), tuple) else ())


def test_a_chain_of_forty_links_holds_and_one_more_does_not(machine):
    """path_resolution(7): at most 40 links."""
    previous = "numa_node"
    device = machine / "sys/devices/pci0000:00/0000:00:01.0"
    for number in range(41):
        (device / f"link{number:02}").symlink_to(previous)
        previous = f"link{number:02}"
    source = open_source(str(machine))
    assert source.read("/sys/devices/pci0000:00/0000:00:01.0/link39") == b"0\n"
    assert status(source.read("/sys/devices/pci0000:00/0000:00:01.0/link40")) == "error"


def test_names_no_file_can_have(machine):
    source = open_source(str(machine))
    for path in ("/sys/a\0b", "/sys/\udc00\ud800/x", "/sys/" + "n" * 5000):
        assert isinstance(source.read(path), Missing)
        assert source.exists(path) is not True


def test_fifos_do_not_hang(machine):
    os.mkfifo(machine / "proc/fifo")
    source = open_source(str(machine))
    assert status(source.read("/proc/fifo")) == "error"
    assert source.exists("/proc/fifo") is True


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_denied(machine):
    (machine / "proc/secret").write_text("x")
    (machine / "proc/secret").chmod(0)
    assert status(open_source(str(machine)).read("/proc/secret")) == "denied"


def test_names_that_are_not_utf8_can_be_printed(machine):
    with open(os.fsencode(machine / "proc") + b"/caf\xe9", "wb"):
        pass
    assert r"caf\xe9" in open_source(str(machine)).names("/proc")


def test_what_is_neither_snapshot_nor_tree(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/a.jpg").write_text("x")
    (tmp_path / "note.txt").write_text("hello\n")
    for name, words in (
        ("empty", "neither"),
        ("photos", "neither"),
        ("note.txt", "neither"),
        ("none", "no such file"),
    ):
        with pytest.raises(InputError, match=words) as caught:
            open_source(str(tmp_path / name))
        assert str(caught.value).startswith(str(tmp_path / name))
        assert caught.value.exit_code == 4

"""fs.ext4-data-ordered: a command that mounts with and without a line in fstab, by a name that lasts where one is known."""

from __future__ import annotations

import msgspec
import pytest

from gdsctl.assess.assessment import assess
from gdsctl.model.devices import FstabEntry
from gdsctl.model.judgement import Remedy
from gdsctl.model.node import Node
from tests.planned_nodes import changed, local

UUID = "0a3407de-014b-458b-b5c1-848e92a327a3"
LINE = FstabEntry(line=7, source=f"UUID={UUID}", target="/mnt/nvme", fstype="ext4", options=("defaults",))


def remedy(node: Node) -> Remedy:
    (found,) = [f for f in assess(node).findings if f.id == "fs.ext4-data-ordered"]
    return found.remedy


def with_uuid(node: Node, uuid: str) -> Node:
    block = tuple(msgspec.structs.replace(b, udev={"ID_FS_UUID": uuid}) for b in node.block)
    return changed(node, block=block)


@pytest.mark.parametrize(
    ("fstab", "said"),
    [
        (None, "where it is mounted from: its line of /etc/fstab, a unit, an automounter"),
        ((), "It has no line in /etc/fstab"),
        ((LINE,), "into line 7 of /etc/fstab"),
    ],
)
def test_the_command_works_with_and_without_a_line(fstab: tuple[FstabEntry, ...] | None, said: str) -> None:
    """mount(8) looks into fstab only where source or target is left out."""
    node = changed(with_uuid(local(fstype="ext4", options=("rw", "seclabel", "noatime")), UUID), fstab=fstab)
    found = remedy(node)
    assert found.commands == (
        "umount -- /mnt/nvme",
        f"mount -t ext4 -o rw,noatime,data=ordered -- UUID={UUID} /mnt/nvme",
    )
    assert said in found.text
    assert "blkid" not in found.text


def test_a_device_by_its_number_is_told() -> None:
    found = remedy(local(fstype="ext4", options=("rw", "data=journal")))
    assert found.commands[1] == "mount -t ext4 -o rw,data=ordered -- /dev/nvme0n1 /mnt/nvme"
    assert (
        "/dev/nvme0n1 may be another device after a boot, and no UUID or link by-id of it is known: look with blkid."
        in (found.text)
    )
    links = {"DEVLINKS": "/dev/disk/by-path/pci-0 /dev/disk/by-id/nvme-eui.01 /dev/disk/by-id/nvme-Drive_S1"}
    node = local(fstype="ext4")
    by_id = changed(node, block=tuple(msgspec.structs.replace(b, udev=links) for b in node.block))
    assert remedy(by_id).commands[1].endswith(" -- /dev/disk/by-id/nvme-Drive_S1 /mnt/nvme")
    hostile = remedy(with_uuid(local(fstype="ext4"), "$(touch x)"))
    assert "$(" not in hostile.commands[1]

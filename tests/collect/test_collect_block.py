"""Block devices against lsblk's lists, and stacks written down here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gdsctl.collect import block, nvme
from gdsctl.collect.reader import Reader
from gdsctl.model.devices import Block, Nvme
from gdsctl.source.opening import open_source

Machine = Callable[..., Reader]
DISKS = (
    Nvme(name="nvme0", namespaces=("nvme0n1",)),
    Nvme(name="nvme1", namespaces=("nvme7n1",)),
    Nvme(name="nvme2", namespaces=("nvme8n1",), multipath=True),
    Nvme(name="nvme3", namespaces=("nvme8n1",), multipath=True),
)


def collected(path: Path) -> dict[str, Block]:
    reader = Reader(open_source(str(path)))
    return {b.name: b for b in block.collect(reader, nvme.collect(reader, ()))}


def listed(path: Path) -> dict[str, Any]:
    """Rows of lsblk by kernel name, children included."""
    rows: dict[str, Any] = {}
    todo = json.loads(path.read_text())["blockdevices"]
    while todo:
        row = todo.pop()
        rows[row["kname"]] = row
        todo += row.get("children", [])
    return rows


@pytest.mark.shared
@pytest.mark.parametrize("name", ["rdma-on", "switches-on", "switches-off", "multipath", "p2pmem"])
def test_devices_as_lsblk_lists_them(shared: Path, name: str) -> None:
    folder = shared / "field/vm" / name
    found = collected(folder / "root.tar.gz")
    rows = listed(folder / "oracle/lsblk.json")
    assert set(found) == set(rows)
    units = {"K": 10, "M": 20, "G": 30}
    for kname, row in rows.items():
        ours = found[kname]
        assert (ours.major_minor, ours.logical_block_bytes) == (row["maj:min"], row["log-sec"])
        assert ours.kind == ("md" if row["type"].startswith("raid") else row["type"])
        assert ours.size_bytes is not None
        assert abs(ours.size_bytes / (1 << units[row["size"][-1]]) - float(row["size"][:-1])) <= 0.05


@pytest.mark.shared
def test_md_raid0_of_two_disks(shared: Path) -> None:
    found = collected(shared / "field/vm/switches-on/root.tar.gz")["md0"]
    assert (found.level, found.slaves, found.members) == ("raid0", ("nvme0n1", "nvme5n1"), ("nvme0", "nvme5"))


@pytest.mark.shared
def test_head_rests_on_both_controllers(shared: Path) -> None:
    found = collected(shared / "field/vm/multipath/root.tar.gz")
    assert found["nvme1n1"].members == ("nvme0", "nvme1")
    assert "nvme1c0n1" not in found


@pytest.mark.shared
def test_lvm_of_loops_and_partitions_without_the_class_folder(shared: Path) -> None:
    """lsblk-simple-lvm-basic, read by eye; the logical volume is drawn under each of four loop devices."""
    found = collected(shared / "field/trees/lsblk-simple-lvm.tar.xz")
    assert {b.name: b.kind for b in found.values() if b.kind != "part"} == {
        "dm-0": "dm",
        "loop0": "loop",
        "loop1": "loop",
        "loop2": "loop",
        "loop3": "loop",
        "nvme0n1": "disk",
        "sda": "disk",
        "sdb": "disk",
    }
    assert sorted(b.name for b in found.values() if b.kind == "part") == [
        "nvme0n1p1",
        "nvme0n1p2",
        "nvme0n1p3",
        "sda1",
        "sda2",
        "sda3",
        "sda4",
        "sda5",
        "sda6",
        "sdb1",
    ]
    volume = found["dm-0"]
    assert (volume.level, volume.major_minor, volume.size_bytes) == ("lvm", "253:0", 32 * 1024 * 1024)
    assert volume.slaves == volume.members == ("loop0", "loop1", "loop2", "loop3")
    assert found["sda4"].slaves == found["sda4"].members == ("sda",)


def device(name: str, number: str, sectors: int = 8, **more: Any) -> dict[str, Any]:
    base = f"/sys/class/block/{name}"
    return {f"{base}/dev": f"{number}\n", f"{base}/size": f"{sectors}\n"} | {
        f"{base}/{path.replace('__', '/')}": text for path, text in more.items()
    }


def test_crypt_on_lvm_on_md_on_partitions(machine: Machine, link: Any) -> None:
    disk = "/sys/devices/pci0000:00/0000:00:01.0/nvme/nvme0/nvme0n1"
    files: dict[str, Any] = {
        "/sys/class/block/nvme0n1": link(f"../../..{disk}"),
        "/sys/class/block/nvme0n1p1": link(f"../../..{disk}/nvme0n1p1"),
        f"{disk}/dev": "259:0\n",
        f"{disk}/size": "4096\n",
        f"{disk}/queue/logical_block_size": "4096\n",
        f"{disk}/integrity/device_is_integrity_capable": "1\n",
        f"{disk}/nvme0n1p1/dev": "259:1\n",
        f"{disk}/nvme0n1p1/size": "2048\n",
        f"{disk}/nvme0n1p1/partition": "1\n",
    }
    files |= device("nvme7n1", "259:2")
    files |= device("md127", "9:127", slaves__nvme0n1p1=link("x"), slaves__nvme7n1=link("x"), md__level="raid1\n")
    files |= device("dm-0", "253:0", slaves__md127=link("x"), dm__name="vg-lv\n", dm__uuid="LVM-abc\n")
    files |= device("dm-1", "253:1", slaves__dm_0=link("x"), dm__name="secret\n", dm__uuid="CRYPT-LUKS2-abc\n")
    files = {path.replace("slaves/dm_0", "slaves/dm-0"): value for path, value in files.items()}
    found = {b.name: b for b in block.collect(machine(files), DISKS)}
    assert found["nvme0n1p1"].kind == "part"
    assert (found["nvme0n1p1"].integrity, found["nvme0n1p1"].logical_block_bytes) == (True, 4096)
    assert (found["nvme0n1p1"].size_bytes, found["nvme0n1"].size_bytes) == (1024 * 1024, 2 * 1024 * 1024)
    assert (found["md127"].level, found["md127"].members) == ("raid1", ("nvme0", "nvme1"))
    assert (found["dm-1"].level, found["dm-1"].slaves, found["dm-1"].members) == (
        "crypt",
        ("dm-0",),
        ("nvme0", "nvme1"),
    )
    assert found["dm-0"].level == "lvm"


def test_dm_multipath_and_slaves_in_a_circle(machine: Machine) -> None:
    files = device("dm-0", "253:0", slaves__sda="", slaves__sdb="", dm__name="mpatha", dm__uuid="mpath-36001")
    files |= device("sda", "8:0") | device("sdb", "8:16")
    files |= device("md1", "9:1", slaves__md2="", md__level="raid0") | device(
        "md2", "9:2", slaves__md1="", md__level=""
    )
    reader = machine(files)
    found = {b.name: b for b in block.collect(reader, ())}
    assert (found["dm-0"].level, found["dm-0"].members) == ("mpath", ("sda", "sdb"))
    assert found["md1"].members == ()
    assert found["md2"].level is None
    assert any(gap.field == "level" and gap.key == "md2" for gap in reader.gaps)


def test_unused_and_hidden_ones_are_left_out(machine: Machine) -> None:
    files = device("loop0", "7:0", 0) | device("loop1", "7:1", 8, loop__backing_file="/x") | device("ram0", "1:0")
    files |= device("nvme8c2n1", "259:9", hidden="1\n") | device("nvme8n1", "259:8", hidden="0\n")
    files |= device("nbd0", "43:0") | device("nbd1", "43:1", 0) | device("cciss!c0d0", "104:0")
    found = {b.name: b for b in block.collect(machine(files), DISKS)}
    assert {name: b.kind for name, b in found.items()} == {
        "loop1": "loop",
        "nvme8n1": "disk",
        "nbd0": "network",
        "cciss/c0d0": "disk",
    }
    assert found["nvme8n1"].members == ("nvme2", "nvme3")


def test_udev_database_library_or_gap(machine: Machine) -> None:
    files = device("sda", "8:0") | device("sdb", "8:16") | device("sdc", "8:32")
    files["/run/udev/data/b8:0"] = "E:ID_FS_USAGE=filesystem\nE:MD_LEVEL=raid0\n"
    reader = machine(
        files, answers={"udev": {"devices": {"block": {"sdb": {"ID_FS_TYPE": "xfs"}}}, "initialized": True}}
    )
    found = {b.name: b.udev for b in block.collect(reader, ())}
    assert found == {
        "sda": {"ID_FS_USAGE": "filesystem", "MD_LEVEL": "raid0"},
        "sdb": {"ID_FS_TYPE": "xfs"},
        "sdc": None,
    }
    assert [gap.key for gap in reader.gaps if gap.field == "udev"] == ["sdc"]


def test_no_class_folder_known_or_not(machine: Machine, denied: OSError) -> None:
    reader = machine({"/sys/class/net": dict, "/sys/bus/pci": dict})
    assert block.collect(reader, ()) == ()
    assert reader.gaps == []
    reader = machine({"/sys/class/block": denied})
    assert block.collect(reader, ()) == ()
    assert reader.gaps[0].section == "block"

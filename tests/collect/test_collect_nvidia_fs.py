"""nvidia-fs running, half running, absent, or not known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gdsctl.collect import nvidia_fs
from gdsctl.collect.reader import Reader
from gdsctl.source.opening import open_source

Machine = Callable[..., Reader]

FOLDER = "/proc/driver/nvidia-fs/"
STATS = "GDS Version: 1.17.1.22\nNVFS statistics(ver: 4.0)\nNVFS Driver(version: 2.28.4)\nIO stats: Enabled, peer IO stats: Disabled\nOps\t\t\t: Read=0 Write=0 BatchIO=0\n"
DISTANCE = "gpu\t\tpeer\t\tpeerrank\tp2pdist\tlink\tgen\tnuma\tnp2p\tclass\n0000:86:00.0\t0000:87:00.0\t0x00840090\t0x0084\t0x04\t0x04\t0x01\t0\tnvme\n"
RUNNING = {
    FOLDER + "version": "version: 2.28\n",
    FOLDER + "modules": "nvme: (null)\nwekafsio: 1\n",
    FOLDER + "bridges": "0000:40:01.1\n",
    FOLDER + "stats": STATS,
    FOLDER + "peer_distance": DISTANCE,
    "/dev/nvidia-fs0": "",
    "/dev/nvidia-fs10": "",
    "/dev/nvidia-fs2": "",
    "/dev/nvidia0": "",
    "/dev/nvidia-fs": "",
}


def gaps(reader: Reader) -> Any:
    return {gap.field: gap.reason for gap in reader.gaps if gap.section == "nvidia_fs"}


def test_running(machine: Machine) -> None:
    reader = machine(RUNNING | {"/sys/module/nvidia_fs/parameters/rw_stats_enabled": "1\n"})
    found = nvidia_fs.collect(reader)
    assert (found.loaded, found.version) == (True, "2.28.4")
    assert found.device_nodes == ("/dev/nvidia-fs0", "/dev/nvidia-fs2", "/dev/nvidia-fs10")
    assert found.registered == ("nvme", "wekafsio")
    assert found.acs_bridges == ("0000:40:01.1",)
    assert found.rw_stats_enabled is True
    assert found.stats is not None
    assert found.stats["gds_version"] == "1.17.1.22"
    assert found.peer_distance is not None
    assert found.peer_distance[0]["class"] == "nvme"
    assert found.peer_distance[0]["p2pdist"] == 0x84
    assert not gaps(reader)


def test_statistics_header_where_the_parameter_is_not_there(machine: Machine) -> None:
    assert nvidia_fs.collect(machine(RUNNING)).rw_stats_enabled is True


def test_loaded_without_device_nodes(machine: Machine) -> None:
    files = {path: text for path, text in RUNNING.items() if not path.startswith("/dev/nvidia-fs")}
    assert nvidia_fs.collect(machine(files)).device_nodes == ()


def test_not_loaded_is_known(machine: Machine) -> None:
    reader = machine({"/proc/modules": "", "/dev/null": ""})
    found = nvidia_fs.collect(reader)
    assert (found.loaded, found.version, found.registered, found.device_nodes) == (False, None, None, ())
    assert not gaps(reader)


def test_nothing_captured(machine: Machine) -> None:
    reader = machine({})
    found = nvidia_fs.collect(reader)
    assert (found.loaded, found.version, found.device_nodes, found.registered, found.acs_bridges) == (None,) * 5
    assert {"loaded", "version", "device_nodes", "registered", "acs_bridges", "stats", "rw_stats_enabled"} <= set(
        gaps(reader)
    )


@pytest.mark.parametrize("file", ["modules", "bridges", "stats", "peer_distance"])
def test_a_refused_file_is_a_gap(machine: Machine, denied: OSError, file: Any) -> None:
    reader = machine(RUNNING | {FOLDER + file: denied})
    found = nvidia_fs.collect(reader)
    field = {"modules": "registered", "bridges": "acs_bridges"}.get(file, file)
    assert getattr(found, field) is None
    assert gaps(reader)[field] == "denied"
    assert found.loaded is True


def test_an_empty_bridges_file_says_that_there_is_none(machine: Machine) -> None:
    assert nvidia_fs.collect(machine(RUNNING | {FOLDER + "bridges": ""})).acs_bridges == ()


def test_pasted_lsmod(machine: Machine) -> None:
    row = "Module                  Size  Used by\nnvidia              16384  1\n"
    assert nvidia_fs.collect(machine({}, outputs={"lsmod": row})).loaded is False
    assert nvidia_fs.collect(machine({}, outputs={"lsmod": row + "nvidia_fs  258048  0\n"})).loaded is True


def test_pasted_gdscheck(machine: Machine) -> None:
    head = " GDS release version: 1.16.0.49\n nvidia_fs version:  2.27 nvidia_fs minimum version: 2.12\n Platform: x86_64\n"
    found = nvidia_fs.collect(machine({}, outputs={"gdscheck": head}))
    assert (found.loaded, found.version) == (True, "2.27")
    without = head.replace("nvidia_fs version:  2.27 ", "")
    assert nvidia_fs.collect(machine({}, outputs={"gdscheck": without})).loaded is False


@pytest.mark.shared
def test_a_booted_machine(shared: Path) -> None:
    """Twelve bridges and sixteen pairs stand in the capture's files; /dev was not captured."""
    reader = Reader(open_source(str(shared / "field/vm/acs-on-nvidia-fs-2.28.4/root.tar.gz")))
    found = nvidia_fs.collect(reader)
    assert (found.loaded, found.version, found.registered) == (True, "2.28.4", ("wekafsio",))
    assert found.acs_bridges is not None
    assert len(found.acs_bridges) == 12
    assert "0000:82:03.0" in found.acs_bridges
    assert found.peer_distance is not None
    assert len(found.peer_distance) == 16
    assert found.rw_stats_enabled is False
    assert found.device_nodes is None
    assert gaps(reader) == {"device_nodes": "absent"}

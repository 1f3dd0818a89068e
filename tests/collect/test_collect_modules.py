"""Loaded, built in, absent, or not known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gdsctl.collect import modules
from gdsctl.collect.reader import Reader
from gdsctl.source.opening import open_source

Machine = Callable[..., Reader]

LISTED = "nvme 57344 2 - Live 0x0000000000000000\nnvme_core 163840 3 nvme, Live 0x0000000000000000\nnvidia 900 1 - Live 0x0 (POE)\n"
NVIDIA_FILE = "filename: /lib/modules/6.8.0/updates/nvidia.ko\nversion: 570.1\nlicense: {license}\nsrcversion: {src}\n"


def gaps(reader: Reader) -> Any:
    return {(gap.key, gap.field): gap.reason for gap in reader.gaps if gap.section == "modules"}


def test_listed_modules(machine: Machine) -> None:
    reader = machine(
        {
            "/proc/modules": LISTED,
            "/sys/module/nvme_core/parameters/multipath": "Y\n",
            "/sys/module/nvme_core/parameters/io_timeout": "30\n",
            "/sys/module/nvme/version": "1.0\n",
        }
    )
    found = modules.collect(reader)
    assert (found["nvme"].loaded, found["nvme"].size, found["nvme"].version) == (True, 57344, "1.0")
    assert found["nvme_core"].used_by == ("nvme",)
    assert found["nvme_core"].parameters == {"multipath": "Y"}
    assert found["nvidia"].taint == "POE"
    assert found["nvidia_fs"].loaded is False
    assert found["rpcrdma"].loaded is False  # /sys/module stands and lacks it


def test_built_in(machine: Machine) -> None:
    reader = machine({"/proc/modules": "", "/sys/module/nvme/parameters/use_cmb_sqes": "Y\n"})
    assert modules.collect(reader)["nvme"].loaded is True


def test_built_in_by_the_kernels_list(machine: Machine) -> None:
    reader = machine(
        {
            "/proc/modules": "",
            "/sys/module/kernel/x": "",
            "/proc/sys/kernel/osrelease": "6.8.0\n",
            "/lib/modules/6.8.0/modules.builtin": "kernel/drivers/nvme/host/nvme-rdma.ko\n",
        }
    )
    found = modules.collect(reader)
    assert found["nvme_rdma"].loaded is True
    assert found["nvme_tcp"].loaded is False


def test_a_list_without_sysfs_cannot_deny_what_may_be_built_in(machine: Machine) -> None:
    reader = machine({"/proc/modules": LISTED})
    found = modules.collect(reader)
    assert found["nvidia_fs"].loaded is False
    assert found["rpcrdma"].loaded is None
    assert gaps(reader)["rpcrdma", "loaded"] == "absent"


def test_a_refused_list_falls_back_on_sysfs(machine: Machine, denied: OSError) -> None:
    reader = machine({"/proc/modules": denied, "/sys/module/nvidia_fs/version": "2.28.4\n"})
    found = modules.collect(reader)
    assert (found["nvidia_fs"].loaded, found["nvidia_fs"].version) == (True, "2.28.4")
    assert found["wekafsio"].loaded is False
    assert found["nvme"].loaded is None
    assert gaps(reader)["nvme", "loaded"] == "denied"


def test_nothing_captured(machine: Machine) -> None:
    reader = machine({})
    found = modules.collect(reader)
    assert all(module.loaded is None for module in found.values())
    assert {key for key, field in gaps(reader) if field == "loaded"} == set(found)


def test_pasted_lsmod(machine: Machine) -> None:
    whole = "Module                  Size  Used by\nnvidia_fs             258048  0\nnvidia              16384  1 nvidia_fs\n"
    found = modules.collect(machine({}, outputs={"lsmod": whole}))
    assert (found["nvidia_fs"].loaded, found["wekafsio"].loaded) == (True, False)
    assert found["nvidia"].used_by == ("nvidia_fs",)


def test_part_of_lsmod_denies_nothing(machine: Machine) -> None:
    reader = machine({}, outputs={"lsmod": "nvidia_fs             258048  0\n"})
    found = modules.collect(reader)
    assert (found["nvidia_fs"].loaded, found["wekafsio"].loaded) == (True, None)
    assert ("wekafsio", "loaded") in gaps(reader)


def test_licence_of_the_loaded_module(machine: Machine) -> None:
    files = {"/proc/modules": LISTED, "/sys/module/nvidia/srcversion": "AAA\n"}
    same = machine(files, outputs={"modinfo-nvidia": NVIDIA_FILE.format(license="NVIDIA", src="AAA")})
    assert modules.collect(same)["nvidia"].license == "NVIDIA"
    other = machine(files, outputs={"modinfo-nvidia": NVIDIA_FILE.format(license="Dual MIT/GPL", src="BBB")})
    assert modules.collect(other)["nvidia"].license is None
    assert ("nvidia", "license") in gaps(other)


def test_a_module_that_is_installed_but_not_loaded(machine: Machine) -> None:
    text = "filename: /lib/modules/6.8.0/nvidia-fs.ko\nversion: 2.28.4\nlicense: GPL v2\n"
    found = modules.collect(machine({"/proc/modules": LISTED}, outputs={"modinfo-nvidia-fs": text}))
    assert (found["nvidia_fs"].loaded, found["nvidia_fs"].version) == (False, "2.28.4")


def test_a_refused_parameter_is_a_gap(machine: Machine, denied: OSError) -> None:
    reader = machine({"/proc/modules": LISTED, "/sys/module/nvme_core/parameters/multipath": denied})
    assert modules.collect(reader)["nvme_core"].parameters == {"multipath": None}
    assert gaps(reader)["nvme_core", "parameters/multipath"] == "denied"


@pytest.mark.shared
def test_a_booted_machine(shared: Path) -> None:
    reader = Reader(open_source(str(shared / "field/vm/acs-on-nvidia-fs-2.28.4/root.tar.gz")))
    found = modules.collect(reader)
    assert (found["nvidia_fs"].version, found["nvidia_fs"].size, found["nvidia_fs"].taint) == ("2.28.4", 258048, "OE")
    assert found["nvidia"].used_by == ("nvidia_fs",)
    assert found["nvidia_fs"].parameters is not None
    assert found["nvidia_fs"].parameters["rw_stats_enabled"] == "0"
    assert found["nvme_core"].parameters == {"multipath": "Y"}
    assert found["rpcrdma"].loaded is False
    assert found["ext4"].used_by == ()

"""The running driver, its registry keys, and what modprobe would pass next time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gdsctl.collect import nvidia_driver
from gdsctl.collect.reader import Reader
from gdsctl.source.opening import open_source

Machine = Callable[..., Reader]

OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.148.08  Release Build  (dvs-builder)\nGCC version: 12\n"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version: 12\n"
PARAMS = 'RegistryDwords: "RMForceStaticBar1=1;RmForceDisableIomapWC=1;"\nEnableResizableBar: 0\n'
VERSION = "/proc/driver/nvidia/version"


def gaps(reader: Reader) -> Any:
    return {gap.field: gap.reason for gap in reader.gaps if gap.section == "nvidia_driver"}


@pytest.mark.parametrize(
    ("text", "version", "kind"), [(OPEN, "570.148.08", "open"), (CLOSED, "550.54.15", "proprietary")]
)
def test_the_drivers_own_word(machine: Machine, text: Any, version: Any, kind: Any) -> None:
    found = nvidia_driver.collect(machine({VERSION: text, "/proc/driver/nvidia/params": PARAMS}))
    assert (found.version, found.kind) == (version, kind)
    assert found.registry_dwords == {"RMForceStaticBar1": "1", "RmForceDisableIomapWC": "1"}
    assert found.params is not None
    assert found.params["EnableResizableBar"] == "0"
    assert found.sources["version"] == VERSION
    assert found.sources["registry_dwords"] == "/proc/driver/nvidia/params"


@pytest.mark.parametrize(("taint", "kind"), [("POE\n", "proprietary"), ("OE\n", "open")])
def test_taint_where_proc_is_refused(machine: Machine, denied: OSError, taint: Any, kind: Any) -> None:
    reader = machine({VERSION: denied, "/sys/module/nvidia/version": "550.54.15\n", "/sys/module/nvidia/taint": taint})
    found = nvidia_driver.collect(reader)
    assert (found.version, found.kind) == ("550.54.15", kind)
    assert found.sources["kind"] == "/sys/module/nvidia/taint"


@pytest.mark.parametrize(("words", "kind"), [("Dual MIT/GPL", "open"), ("NVIDIA", "proprietary")])
def test_the_files_licence_where_no_driver_runs(machine: Machine, words: Any, kind: Any) -> None:
    text = f"filename: /lib/modules/6.8.0/nvidia.ko\nlicense: {words}\n"
    found = nvidia_driver.collect(machine({"/proc/modules": ""}, outputs={"modinfo-nvidia": text}))
    assert (found.version, found.kind, found.sources) == (None, kind, {"kind": "modinfo nvidia"})


def test_no_driver_is_known_not_unknown(machine: Machine) -> None:
    reader = machine({"/proc/modules": "", "/sys/module/nvme/refcnt": "1", "/etc/hostname": "n"})
    found = nvidia_driver.collect(reader)
    assert (found.version, found.params, found.registry_dwords) == (None, None, None)
    assert found.modprobe_registry_dwords == {}
    assert not gaps(reader)


def test_nothing_captured(machine: Machine) -> None:
    reader = machine({})
    found = nvidia_driver.collect(reader)
    assert (found.version, found.kind, found.modprobe_registry_dwords) == (None, "unknown", None)
    assert set(gaps(reader)) == {
        "version", "kind", "params", "registry_dwords", "modprobe_registry_dwords", "modprobe_files",
    }  # fmt: skip


def test_refused_params_are_a_gap(machine: Machine, denied: OSError) -> None:
    reader = machine({VERSION: OPEN, "/proc/driver/nvidia/params": denied})
    assert nvidia_driver.collect(reader).registry_dwords is None
    assert gaps(reader)["registry_dwords"] == "denied"


def test_versions_from_nvml_and_nvidia_smi(machine: Machine) -> None:
    told = nvidia_driver.collect(machine({}, answers={"nvml": {"driver_version": "570.1.2", "gpus": []}}))
    assert (told.version, told.sources) == ("570.1.2", {"version": "NVML"})
    row = "0, 00000000:1B:00.0, NVIDIA L4, GPU-1, 23034 MiB, 550.54.15, 8.9\n"
    assert nvidia_driver.collect(machine({}, outputs={"nvidia-smi-query": row})).version == "550.54.15"


def test_the_last_line_of_modprobe_d_replaces_the_others(machine: Machine) -> None:
    reader = machine(
        {
            "/etc/modprobe.d/nvidia-a.conf": 'options nvidia NVreg_RegistryDwords="RMForceStaticBar1=1;"\n',
            "/etc/modprobe.d/nvidia-b.conf": 'options nvidia NVreg_RegistryDwords="PeerMappingOverride=1;"\n',
            "/etc/modprobe.d/notes.txt": 'options nvidia NVreg_RegistryDwords="X=1;"\n',
        }
    )
    found = nvidia_driver.collect(reader)
    assert found.modprobe_registry_dwords == {"PeerMappingOverride": "1"}
    assert found.modprobe_files == {
        "/etc/modprobe.d/nvidia-a.conf:1": "/etc/modprobe.d/nvidia-a.conf",
        "PeerMappingOverride": "/etc/modprobe.d/nvidia-b.conf",
    }


def test_the_command_line_comes_after_the_files(machine: Machine) -> None:
    reader = machine(
        {
            "/etc/modprobe.d/a.conf": 'options nvidia NVreg_RegistryDwords="A=1"\n',
            "/proc/cmdline": "root=/dev/sda1 ro nvidia.NVreg_RegistryDwords=B=2\n",
        }
    )
    assert nvidia_driver.collect(reader).modprobe_registry_dwords == {"B": "2"}


def test_one_refused_file_leaves_the_next_load_unknown(machine: Machine, denied: OSError) -> None:
    reader = machine(
        {"/etc/modprobe.d/a.conf": 'options nvidia NVreg_RegistryDwords="A=1"\n', "/etc/modprobe.d/z.conf": denied}
    )
    assert nvidia_driver.collect(reader).modprobe_registry_dwords is None
    assert gaps(reader)["modprobe_registry_dwords"] == "denied"


@pytest.mark.shared
def test_a_booted_machine(shared: Path) -> None:
    reader = Reader(open_source(str(shared / "field/vm/acs-on-nvidia-fs-2.28.4/root.tar.gz")))
    found = nvidia_driver.collect(reader)
    assert (found.version, found.kind) == ("535.261.03", "open")
    assert found.params is None  # the stand-in driver has no params file
    assert gaps(reader)["params"] == "absent"

"""What the platform is, read from small trees; and that nothing is claimed where a file is missing."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gdsctl.collect import platform
from gdsctl.collect.reader import Reader
from gdsctl.source.base import Missing, Output
from gdsctl.source.opening import open_source

Machine = Callable[..., Reader]

X86 = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model name\t: Intel(R) Xeon(R) Platinum 8480C
physical id\t: 0
flags\t\t: fpu lm {more}
processor\t: 1
vendor_id\t: GenuineIntel
physical id\t: 1
flags\t\t: fpu lm {more}
"""
ARM = "processor\t: 0\nBogoMIPS\t: 2000.00\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd4f\n"
EFI = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
DMI = "/sys/class/dmi/id/"


def fields(reader: Reader) -> Any:
    return {gap.field: gap.reason for gap in reader.gaps if gap.section == "platform"}


def test_a_server(machine: Machine) -> None:
    reader = machine(
        {
            "/proc/sys/kernel/osrelease": "6.8.0-60-generic\n",
            "/proc/cmdline": "BOOT_IMAGE=/vmlinuz root=/dev/nvme0n1p2 iommu=pt\n",
            "/proc/modules": "",
            "/proc/cpuinfo": X86.format(more="sse"),
            "/proc/kallsyms": "0000000000000000 T pci_p2pdma_add_resource\n0000000000000000 d p2pdma_pgmap_ops\n",
            "/etc/os-release": 'ID=ubuntu\nVERSION_ID="22.04"\n',
            "/boot/config-6.8.0-60-generic": "CONFIG_PCI_P2PDMA=y\n# CONFIG_NVME_MULTIPATH is not set\nCONFIG_MODULES=y\n",
            "/sys/class/dmi/id/sys_vendor": "Dell Inc.\n",
            "/sys/class/dmi/id/product_name": "PowerEdge XE9680\n",
            EFI: b"\x06\x00\x00\x00\x01",
        },
        outputs={"dmesg": "[1.0] foo\n"},
        answers={"host": {"hostname": "n1", "machine": "x86_64"}},
    )
    found = platform.collect(reader)
    assert (found.hostname, found.arch, found.kernel) == ("n1", "x86_64", "6.8.0-60-generic")
    assert found.kernel_version == (6, 8, 0)
    assert found.cmdline == "BOOT_IMAGE=/vmlinuz root=/dev/nvme0n1p2 iommu=pt"
    assert (found.cpu_vendor, found.cpu_family, found.sockets) == ("GenuineIntel", 6, 2)
    assert found.product == "Dell Inc. PowerEdge XE9680"
    assert found.virtualization == "none"
    assert found.secure_boot is True
    assert (found.os_id, found.os_version) == ("ubuntu", "22.04")
    assert found.kernel_config is not None
    assert found.kernel_config["CONFIG_PCI_P2PDMA"] == "y"
    assert found.kernel_config["CONFIG_NVME_MULTIPATH"] == "n"
    assert found.kernel_config["CONFIG_ZONE_DEVICE"] == "n"  # no line: the option does not exist in this kernel
    assert found.symbols == {"pci_p2pdma_add_resource": True, "p2pdma_pgmap_ops": True}
    assert found.kernel_log == ()
    assert not fields(reader)


def test_nothing_captured_is_unknown_throughout(machine: Machine) -> None:
    reader = machine({})
    found = platform.collect(reader)
    unknown = {
        "kernel", "kernel_version", "arch", "cmdline", "cpu_vendor", "cpu_model", "cpu_family", "sockets", "product",
        "virtualization", "secure_boot", "os_id", "os_version", "kernel_config", "symbols", "kernel_log",
        "module_list",
    }  # fmt: skip
    assert all(getattr(found, field) is None for field in unknown)
    assert set(fields(reader)) == unknown


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/proc/cmdline", "cmdline"),
        ("/proc/kallsyms", "symbols"),
        ("/etc/os-release", "os_id"),
        ("/proc/cpuinfo", "cpu_model"),
        (EFI, "secure_boot"),
    ],
)
def test_a_refused_file_is_a_gap(machine: Machine, denied: OSError, path: Any, field: Any) -> None:
    reader = machine({path: denied})
    assert getattr(platform.collect(reader), field) is None
    assert fields(reader)[field] in ("denied", "absent")


def test_release_from_proc_version(machine: Machine) -> None:
    reader = machine({"/proc/version": "Linux version 5.14.0-427.13.1.el9_4.x86_64 (mock@host) (gcc) #1 SMP\n"})
    found = platform.collect(reader)
    assert found.kernel == "5.14.0-427.13.1.el9_4.x86_64"
    assert found.kernel_version == (5, 14, 0)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"/proc/cpuinfo": X86.format(more="hypervisor"), DMI + "sys_vendor": "QEMU\n"}, "qemu"),
        ({"/proc/cpuinfo": X86.format(more="hypervisor"), DMI + "sys_vendor": "Amazon EC2\n"}, "amazon"),
        (
            {
                "/proc/cpuinfo": X86.format(more="hypervisor"),
                DMI + "sys_vendor": "Microsoft Corporation\n",
                DMI + "product_name": "Virtual Machine\n",
            },
            "microsoft",
        ),
        ({"/proc/cpuinfo": X86.format(more="hypervisor"), DMI + "product_name": "Google Compute Engine\n"}, "google"),
        ({"/proc/cpuinfo": X86.format(more="hypervisor")}, "unknown"),
        # A bare-metal EC2 instance has Amazon's name in its firmware, and no hypervisor.
        ({"/proc/cpuinfo": X86.format(more="sse"), DMI + "sys_vendor": "Amazon EC2\n"}, "none"),
        ({"/sys/hypervisor/type": "xen\n"}, "xen"),
        ({"/sys/hypervisor/type": "xen\n", "/proc/xen/capabilities": "control_d\n"}, "none"),
        ({"/proc/cpuinfo": ARM, DMI + "product_name": "GB200 NVL\n", DMI + "sys_vendor": "NVIDIA\n"}, "none"),
        ({"/proc/cpuinfo": ARM}, None),
    ],
)
def test_virtualization(machine: Machine, files: Any, expected: Any) -> None:
    reader = machine(files)
    assert platform.collect(reader).virtualization == expected
    assert ("virtualization" in fields(reader)) is (expected is None)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({EFI: b"\x06\x00\x00\x00\x01"}, True),
        ({EFI: b"\x06\x00\x00\x00\x00"}, False),
        ({EFI: b""}, None),
        ({"/sys/firmware/acpi/tables/DSDT": b"", "/sys/firmware/memmap/0/type": "1"}, False),  # legacy boot
        ({"/sys/firmware": dict}, None),  # as a container sees it
        ({"/sys/firmware/efi/efivars": dict}, None),  # the file system is not mounted
        ({"/sys/firmware/efi/efivars/BootOrder-8be4df61-93ca-11d2-aa0d-00e098032b8c": b"\0"}, False),
    ],
)
def test_secure_boot(machine: Machine, files: Any, expected: Any) -> None:
    reader = machine(files)
    assert platform.collect(reader).secure_boot is expected
    assert ("secure_boot" in fields(reader)) is (expected is None)


def test_arch_of_an_arm_server_without_uname(machine: Machine) -> None:
    assert platform.collect(machine({"/proc/cpuinfo": ARM})).arch == "aarch64"


def test_packed_configuration(machine: Machine) -> None:
    packed = gzip.compress(b"CONFIG_PCI_P2PDMA=y\nCONFIG_IOMMU_DEFAULT_PASSTHROUGH=y\n")
    found = platform.collect(machine({"/proc/config.gz": packed}))
    assert found.kernel_config is not None
    assert found.kernel_config["CONFIG_IOMMU_DEFAULT_PASSTHROUGH"] == "y"


def test_a_damaged_configuration_is_a_gap(machine: Machine) -> None:
    reader = machine({"/proc/config.gz": b"\x1f\x8b\x08nonsense"})
    assert platform.collect(reader).kernel_config is None
    assert fields(reader)["kernel_config"] == "error"


def test_a_bomb_is_cut(machine: Machine) -> None:
    packed = gzip.compress(b"CONFIG_PCI_P2PDMA=y\n" + b"\0" * (64 << 20))
    found = platform.collect(machine({"/proc/config.gz": packed}))
    assert found.kernel_config is None or found.kernel_config["CONFIG_PCI_P2PDMA"] == "y"


def test_dmesg_without_rights(machine: Machine) -> None:
    words = "dmesg: read kernel buffer failed: Operation not permitted\n"
    reader = machine({}, outputs={"dmesg": Output(stdout="", stderr=words, exit_code=1)})
    assert platform.collect(reader).kernel_log is None
    assert fields(reader)["kernel_log"] == "denied"


def test_dmesg_not_installed(machine: Machine) -> None:
    reader = machine({}, outputs={"dmesg": Missing(status="no_tool")})
    assert platform.collect(reader).kernel_log is None
    assert fields(reader)["kernel_log"] == "absent"


def test_the_log_keeps_what_explains_a_path(machine: Machine) -> None:
    log = "[ 1.0] usb 1-1: new device\n[ 2.0] nvidia_fs: module using GPL-only symbols uses symbols from proprietary module nvidia.\n"
    found = platform.collect(machine({}, outputs={"dmesg": log}))
    assert found.kernel_log == (log.splitlines()[1],)


@pytest.mark.shared
def test_a_booted_machine(shared: Path) -> None:
    """The capture's own files, read by eye: QEMU's q35 board, Debian 12, an AMD-like emulated CPU."""
    reader = Reader(open_source(str(shared / "field/vm/acs-on-nvidia-fs-2.28.4/root.tar.gz")))
    found = platform.collect(reader)
    assert found.kernel == "6.1.0-50-amd64"
    assert found.kernel_version == (6, 1, 0)
    assert (found.arch, found.cpu_vendor, found.cpu_family) == ("x86_64", "AuthenticAMD", 15)
    assert found.virtualization == "qemu"
    assert (found.os_id, found.os_version) == ("debian", "12")
    assert found.kernel_config is not None
    assert found.kernel_config["CONFIG_PCI_P2PDMA"] == "n"
    assert found.kernel_config["CONFIG_IOMMU_DEFAULT_DMA_LAZY"] == "y"
    assert found.symbols == {"pci_p2pdma_add_resource": False, "p2pdma_pgmap_ops": False}
    assert found.secure_boot is None


@pytest.mark.parametrize(
    ("files", "outputs", "answers", "expected"),
    [
        ({"/proc/modules": ""}, {}, {}, True),
        ({}, {"lsmod": "Module                  Size  Used by\n"}, {}, True),
        ({"/proc/version": "Linux"}, {}, {"host": {"machine": "x86_64"}}, False),
        ({"/proc/version": "Linux"}, {}, {}, None),  # picked by another tool
        ({"/proc/modules": PermissionError(13, "Permission denied")}, {}, {}, None),
    ],
)
def test_module_list(machine: Machine, files: Any, outputs: Any, answers: Any, expected: bool | None) -> None:
    reader = machine(files, outputs=outputs, answers=answers)
    assert platform.collect(reader).module_list is expected
    assert ("module_list" in fields(reader)) is (expected is None)


@pytest.mark.parametrize(("option", "expected"), [("CONFIG_PCI=y", False), ("CONFIG_MODULES=y", None)])
def test_a_tree_without_the_list_of_modules_was_picked(tmp_path: Path, option: str, expected: bool | None) -> None:
    (tmp_path / "sys").mkdir()
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/config.gz").write_bytes(gzip.compress(f"{option}\n".encode()))
    assert platform.collect(Reader(open_source(str(tmp_path)))).module_list is expected

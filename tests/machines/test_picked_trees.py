"""Trees as other tools make them: parts of /sys and /proc, of all kinds of machines. What stands there must be read; what
does not must not be denied.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gdsctl import pipeline
from gdsctl.model.node import Report
from gdsctl.source.opening import open_source

X86 = "processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: 25\nmodel name\t: Some CPU\nflags\t\t: fpu lm {more}\n"
AMD = X86.format(vendor="AuthenticAMD", more="")
INTEL = X86.format(vendor="GenuineIntel", more="")


def inspect(folder: Path, files: dict[str, Any]) -> Report:
    """`files`: path -> text, bytes, None for a folder, or a tuple with the target of a link."""
    for path, content in files.items():
        place = folder / path
        os.makedirs(place if content is None else place.parent, exist_ok=True)
        if isinstance(content, tuple):
            place.symlink_to(content[0])
        elif content is not None:
            place.write_bytes(content if isinstance(content, bytes) else content.encode())
    report = pipeline.inspect(open_source(str(folder)))
    msgspec.json.encode(report)
    return report


def unknown(report: Report) -> dict[str, str]:
    return {entry.pointer: entry.reason for entry in report.unknowns}


# --- processors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "vendor", "model"),
    [
        # What lscpu shows as vendor and model of the same texts; a core's own name needs lscpu's table of part numbers.
        ("processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd4f\n", "ARM", None),
        ("processor\t: 0\nCPU implementer\t: 0xc0\nCPU architecture: 8\n", "Ampere", None),
        ("processor\t: 0\ncpu\t\t: POWER9, altivec supported\nrevision\t: 2.2\n", None, "POWER9, altivec supported"),
        ("vendor_id       : IBM/S390\n# processors    : 2\nprocessor 0: version = FF\n", "IBM/S390", None),
        ("cpu\t\t: TI UltraSparc II\nncpus probed\t: 6\nncpus active\t: 6\n", None, "TI UltraSparc II"),
        ("processor\t\t: 0\nModel Name\t\t: Loongson-3A5000\n", None, "Loongson-3A5000"),
        ("processor\t: 0\nhart\t\t: 3\nuarch\t\t: sifive,u74-mc\n", None, "sifive,u74-mc"),
    ],
)
def test_cpuinfo_of_other_architectures(tmp_path: Path, text: str, vendor: Any, model: Any) -> None:
    report = inspect(tmp_path, {"proc/cpuinfo": text})
    assert (report.platform.cpu_vendor, report.platform.cpu_model) == (vendor, model)
    assert ("/platform/cpu_vendor" in unknown(report)) == (vendor is None)
    assert ("/platform/cpu_model" in unknown(report)) == (model is None)


@pytest.mark.parametrize(
    ("flag", "maker", "product", "expected"),
    [
        ("", "Dell Inc.", "PowerEdge R760xa", "none"),
        ("hypervisor", "QEMU", "Standard PC (Q35 + ICH9, 2009)", "qemu"),
        ("hypervisor", "Nobody", "Nothing", "unknown"),
        # -cpu host,-hypervisor and hypervisor.cpuid.v0 = "FALSE": how guests with GPUs are often set up
        ("", "QEMU", "Standard PC (Q35 + ICH9, 2009)", "qemu"),
        ("", "VMware, Inc.", "VMware7,1", "vmware"),
        # bare metal of the clouds bears their name, and lacks the flag
        ("", "Amazon EC2", "p4d.metal", "none"),
        ("", "Google", "Google Compute Engine", "none"),
    ],
)
def test_a_guest_whose_cpu_hides_it(tmp_path: Path, flag: str, maker: str, product: str, expected: str) -> None:
    files = {
        "proc/cpuinfo": X86.format(vendor="GenuineIntel", more=flag),
        "sys/class/dmi/id/sys_vendor": maker + "\n",
        "sys/class/dmi/id/product_name": product + "\n",
    }
    assert inspect(tmp_path, files).platform.virtualization == expected


# --- what nobody looked at ----------------------------------------------------------------------------------------


def test_a_tree_without_module_folders_denies_no_driver(tmp_path: Path) -> None:
    """hwloc-gather-topology takes neither /sys/module nor /proc/driver nor /proc/modules, which every kernel has."""
    report = inspect(tmp_path, {"sys/devices/system/node/node0/cpulist": "0\n", "proc/cpuinfo": AMD})
    assert report.nvidia_fs.loaded is None
    assert {report.modules[name].loaded for name in ("nvidia", "nvidia_fs", "nvidia_peermem", "nvme")} == {None}
    told = unknown(report)
    assert {"/nvidia_fs/loaded", "/modules/nvidia/loaded", "/nvidia_driver/version"} <= told.keys()
    assert {finding.id for finding in report.findings} == set()


@pytest.mark.parametrize("folder", ["sys/module/nvme", "proc/driver/rtc"])
def test_a_tree_with_one_of_them_does(tmp_path: Path, folder: str) -> None:
    report = inspect(tmp_path, {folder: None, "sys/class/net": None, "proc/cpuinfo": AMD})
    assert report.nvidia_fs.loaded is False
    assert "/nvidia_driver/version" not in unknown(report)


def test_a_list_of_modules_alone_does_too(tmp_path: Path) -> None:
    report = inspect(tmp_path, {"proc/modules": "xfs 2318336 1 - Live 0x0000000000000000\n", "sys/class/net": None})
    assert report.nvidia_fs.loaded is False
    assert report.modules["nvidia"].loaded is False


@pytest.mark.parametrize(
    ("names", "expected"), [(("dmi",), None), (("acpi", "memmap"), False), (("acpi", "efi"), None), ((), None)]
)
def test_secure_boot_is_denied_only_by_a_whole_listing(tmp_path: Path, names: Any, expected: Any) -> None:
    report = inspect(tmp_path, {"sys/class/net": None} | {f"sys/firmware/{name}": None for name in names})
    assert report.platform.secure_boot is expected
    assert ("/platform/secure_boot" in unknown(report)) == (expected is None)


@pytest.mark.parametrize(
    ("cpu", "words", "state"),
    [
        (AMD, "amd_iommu=off", "off"),
        (AMD, "intel_iommu=off", "unknown"),  # read by Intel's driver only
        (INTEL, "intel_iommu=off", "off"),
        (INTEL, "amd_iommu=off", "unknown"),
        (INTEL, "iommu=off", "off"),
        ("processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\n", "iommu=off", "unknown"),  # of x86 only
        (AMD, "quiet", "unknown"),
    ],
)
def test_the_switch_of_another_makers_iommu_decides_nothing(tmp_path: Path, cpu: str, words: str, state: str) -> None:
    report = inspect(tmp_path, {"proc/cpuinfo": cpu, "proc/cmdline": f"ro {words}\n", "sys/class/net": None})
    assert report.iommu.state == state


# --- PCI ----------------------------------------------------------------------------------------------------------


def function(address: str, **files: str) -> dict[str, str]:
    return {f"sys/bus/pci/devices/{address}/{name}": text + "\n" for name, text in files.items()}


def test_plain_folders_of_endpoints_alone_leave_their_places_unknown(tmp_path: Path) -> None:
    """Two GPUs and a drive of a POWER machine without the bridges above: they may share one, so no class, no verdict."""
    report = inspect(
        tmp_path,
        function("0004:05:00.0", vendor="0x10de", device="0x1db1", **{"class": "0x030200"}, numa_node="0")
        | function("0004:06:00.0", vendor="0x144d", device="0xa808", **{"class": "0x010802"}, numa_node="0")
        | {"sys/class/nvme/nvme0/address": "0004:06:00.0\n", "sys/class/nvme/nvme0/transport": "pcie\n"},
    )
    (pair,) = report.pairs
    assert (pair.class_, pair.p2p) == ("unknown", "unknown")
    assert {"/pci/devices/0/parent", "/pci/devices/1/parent"} <= unknown(report).keys()


def test_a_function_without_ids_or_node(tmp_path: Path) -> None:
    report = inspect(
        tmp_path,
        function("0000:00:01.0", **{"class": "0x030000"})
        | function("0000:00:02.0", vendor="0x15b3", device="0x1021", **{"class": "0x020000"}, numa_node="-1"),
    )
    told = {entry.pointer: entry for entry in report.unknowns}
    assert {"/pci/devices/0/vendor_id", "/pci/devices/0/device_id"} <= told.keys()
    assert told["/pci/devices/0/numa_node"].reason == "absent"
    assert "-1" not in told["/pci/devices/0/numa_node"].detail
    assert told["/pci/devices/1/numa_node"].reason == "unsupported"
    assert "-1" in told["/pci/devices/1/numa_node"].detail


def test_odd_entries_among_the_functions(tmp_path: Path) -> None:
    name = os.fsdecode(b"sys/bus/pci/devices/0000:00:\xff\xfe.0")
    report = inspect(
        tmp_path,
        function("10000:e1:00.0", vendor="0x144d", device="0xa808", **{"class": "0x010802"}, numa_node="1")
        | {
            name: None,
            "sys/bus/pci/devices/0000:00:20.0": None,  # a bus has 32 devices
            "sys/bus/pci/devices/0000:00:02.0": ("0000:00:02.0",),  # a link to itself
            "sys/bus/pci/devices/0000:00:03.0": "a file",
            "sys/bus/pci/devices/0000:00:04.0/class": None,  # folders instead of files
            "sys/bus/pci/devices/0000:00:04.0/vendor/x": "",
            "sys/bus/pci/devices/0000:00:05.0/class": b"\0\0\0",
            "sys/bus/pci/devices/0000:00:05.0/vendor": "-0x8086\n",
            "sys/bus/pci/devices/0000:00:05.0/device": "0x" + "f" * 5000,
            "sys/bus/pci/devices/0000:00:05.0/numa_node": "9" * 5000,
            "sys/bus/pci/devices/0000:00:05.0/current_link_speed": "-8.0 GT/s PCIe\n",
            "sys/bus/pci/devices/0000:00:05.0/config": b"",
        },
    )
    at = {device.address: device for device in report.pci.devices}
    assert list(at) == ["0000:00:02.0", "0000:00:03.0", "0000:00:04.0", "0000:00:05.0", "10000:e1:00.0"]
    broken = at["0000:00:05.0"]
    assert (broken.class_, broken.vendor_id, broken.device_id, broken.numa_node) == (None, None, None, None)
    assert broken.link.speed_gts is None
    assert at["10000:e1:00.0"].numa_node == 1


# --- drives and block devices -------------------------------------------------------------------------------------


def test_a_drive_that_is_no_pci_function_and_values_padded_with_nuls(tmp_path: Path) -> None:
    """Apple's NVMe hangs on the system's own bus; a capture took whole pages of each attribute."""
    page = b"apple-nvme\n".ljust(4096, b"\0")
    home = "sys/devices/platform/soc/27bcc0000.nvme/nvme/nvme0"
    report = inspect(
        tmp_path,
        {
            f"{home}/transport": page,
            f"{home}/address": b"27bcc0000.nvme\n".ljust(4096, b"\0"),
            f"{home}/nvme0n1/size": b"4096\n".ljust(4096, b"\0"),
            "sys/class/nvme/nvme0": (f"../../../{home}",),
        },
    )
    (drive,) = report.nvme
    assert (drive.transport, drive.address, drive.namespaces) == ("apple-nvme", None, ("nvme0n1",))
    assert report.pairs == ()


def test_stacked_devices_of_which_only_the_names_stand(tmp_path: Path) -> None:
    report = inspect(tmp_path, {"sys/block/dm-3/stat": "", "sys/block/md0/stat": "", "sys/block/sda/stat": ""})
    assert [(device.name, device.kind) for device in report.block] == [("dm-3", "dm"), ("md0", "md"), ("sda", "disk")]
    assert {"/block/0/slaves", "/block/1/slaves", "/block/1/level"} <= unknown(report).keys()


def test_a_namespace_without_its_controller_is_nvme_of_unknown_transport(tmp_path: Path) -> None:
    gpu = function("0000:01:00.0", vendor="0x10de", device="0x2330", **{"class": "0x030200"}, numa_node="0")
    report = inspect(
        tmp_path,
        gpu
        | {
            "sys/class/block/nvme0n1/dev": "259:0\n",
            "proc/self/mountinfo": "29 1 259:0 / /data rw,relatime shared:1 - xfs /dev/nvme0n1 rw\n",
        },
    )
    (mount,) = report.mounts
    assert (mount.device, mount.backing.kind, mount.backing.nvme, mount.backing.transport) == (
        "nvme0n1", "nvme", (), None,
    )  # fmt: skip
    assert {"/mounts/0/backing/nvme", "/mounts/0/backing/transport"} <= unknown(report).keys()
    (route,) = report.routes
    assert (route.route, route.confidence) == ("unknown", "unknown")

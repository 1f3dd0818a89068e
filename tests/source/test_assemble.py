"""Snapshots from pasted outputs, and nvidia-bug-report.log taken apart."""

# mypy: disable-error-code="union-attr,no-untyped-call,index,arg-type"
# An answer of another kind than the expected one fails the test by itself.

from __future__ import annotations

import gzip
import os

import pytest

from gdsctl.errors import InputError, UsageError
from gdsctl.source import bug_report
from gdsctl.source.assemble import assemble
from gdsctl.source.base import Missing, Output
from gdsctl.source.opening import open_source

LSPCI = """\
0000:01:00.0 Non-Volatile memory controller [0108]: Acme Drive [1234:0001] (prog-if 02 [NVM Express])
\tControl: I/O- Mem+ BusMaster+
\tKernel driver in use: nvme
"""
MOUNTS = "/dev/nvme0n1 /data ext4 rw,relatime 0 0\n"
RULE = "_" * 44


def written(tmp_path, name, text):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def test_what_was_given_stands_where_collectors_look(tmp_path):
    out = str(tmp_path / "node.tar.gz")
    assemble(
        out,
        lspci=written(tmp_path, "l", LSPCI),
        lsmod=written(tmp_path, "m", "Module                  Size  Used by\nnvme                   61440  3\n"),
        mounts=written(tmp_path, "t", MOUNTS),
        dmesg=written(tmp_path, "d", "[    0.0] Linux version 6.8.0\n"),
        cufile_json=written(tmp_path, "c", '{"properties": {}}'),
        files=[("/etc/modprobe.d/x.conf", written(tmp_path, "x", b"options nvme poll_queues=4\n"))],
        commands=[("my-tool", written(tmp_path, "y", b"caf\xe9\n"))],
    )
    source = open_source(out)
    assert source.info.kind == "assembled"
    assert source.run("lspci") == Output(stdout=LSPCI)
    assert source.run("lsmod").stdout.startswith("Module")
    assert source.run("dmesg").stdout == "[    0.0] Linux version 6.8.0\n"
    assert source.run("my-tool").stdout == "caf\\xe9\n"
    assert source.read("/proc/self/mounts") == MOUNTS.encode()
    assert source.read("/etc/cufile.json") == b'{"properties": {}}'
    assert source.read("/etc/modprobe.d/x.conf") == b"options nvme poll_queues=4\n"
    assert source.names("/etc/modprobe.d") == ("x.conf",)


def test_all_else_was_not_captured(tmp_path):
    out = str(tmp_path / "node")
    assemble(out, mounts=written(tmp_path, "t", MOUNTS))
    source = open_source(out)
    for reading in (
        source.read("/proc/self/mountinfo"),
        source.exists("/proc/modules"),
        source.names("/sys/bus/pci/devices"),
        source.real("/sys/class/nvme/nvme0"),
        source.run("lspci"),
        source.ask("nvml"),
    ):
        assert isinstance(reading, Missing)
        assert reading.status == "not_captured"


@pytest.mark.parametrize(
    "option", ["lspci", "nvidia_smi_topo", "gdscheck", "nccl_topo", "lsmod", "mounts", "bug_report"]
)
def test_another_tools_output_is_refused_and_nothing_written(tmp_path, option):
    path = written(tmp_path, "in", "I am a letter, dear Sir,\nand no tool's output.\n")
    with pytest.raises(InputError) as caught:
        assemble(str(tmp_path / "out"), **{option: path})
    assert str(caught.value).startswith(path + ":")
    assert caught.value.exit_code == 4
    assert os.listdir(tmp_path) == ["in"]


def test_usage(tmp_path):
    path = written(tmp_path, "in", "x\n")
    for wrong in (
        {"commands": [("../x", path)]},
        {"commands": [("Tool", path)]},
        {"commands": [("", path)]},
        {"files": [("etc/x", path)]},
        {"files": [("/etc/../x", path)]},
        {"files": [("/", path)]},
        {"files": [("/etc/x", path), ("/etc/x/y", path)]},
        {},
    ):
        with pytest.raises(UsageError):
            assemble(str(tmp_path / "out"), **wrong)
    for missing in (str(tmp_path / "none"), str(tmp_path)):
        with pytest.raises(InputError, match=r"no such file|is a directory"):
            assemble(str(tmp_path / "out"), dmesg=missing)
    assert os.listdir(tmp_path) == ["in"]


def test_a_broken_cufile_json_may_be_looked_at(tmp_path):
    assemble(str(tmp_path / "out"), cufile_json=written(tmp_path, "c", '{"properties": {'))
    assert open_source(str(tmp_path / "out")).read("/etc/cufile.json") == b'{"properties": {'


REPORT = f"""\
{RULE}

Start of NVIDIA bug report log file.  Please include this file, along
with a detailed description of your problem.

nvidia-bug-report.sh Version: 1

Date: Mon Mar  3 10:00:00 UTC 2025
uname: Linux trainer3 6.8.0-60-generic #1 SMP x86_64 GNU/Linux
command line flags:

{RULE}

*** /sys/bus/pci/devices/0000:17:00.0/power/control
*** ls: -rw-r--r-- 1 root root 4096 2025-03-03 10:00:00.0 +0000 /sys/bus/pci/devices/0000:17:00.0/power/control
auto

{RULE}

*** /etc/modprobe.d/nvidia.conf
*** ls: -rw-r--r-- 1 root root 60 2025-03-03 10:00:00.0 +0000 /etc/modprobe.d/nvidia.conf
# a comment

options nvidia NVreg_EnableStreamMemOPs=1

{RULE}

/usr/bin/lspci -nn

0000:17:00.0 short

{RULE}

/usr/bin/lspci -nnDvvvxxxx

{LSPCI}
{RULE}

dmesg:

[    0.0] Linux version 6.8.0
{RULE}

*** /proc/cmdline
*** ls: -r--r--r-- 1 root root 0 2025-03-03 10:00:00.0 +0000 /proc/cmdline
BOOT_IMAGE=/vmlinuz iommu=pt

{RULE}

*** /proc/driver/nvidia/./version
*** ls: -r--r--r-- 1 root root 0 2025-03-03 10:00:00.0 +0000 /proc/driver/nvidia/./version
NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15

{RULE}

*** /proc/driver/nvidia/registry does not exist

{RULE}

*** /proc/iomem is not readable

{RULE}

/sys/module/nvidia/parameters/NVreg_OpenRmEnableUnsupportedGpus:1
/sys/module/nvidia_uvm/parameters/uvm_ats_mode:1
{RULE}

/usr/bin/nvidia-smi --query

==============NVSMI LOG==============

/usr/bin/nvidia-smi nvlink --status

GPU 0: NVIDIA H100 (UUID: GPU-1)
\t Link 0: 26.562 GB/s


{RULE}

End of NVIDIA bug report log file.
"""


def sections_packed_one_by_one():
    """As the script does it: every section is its own gzip stream."""
    return b"".join(gzip.compress(part.encode()) for part in REPORT.split("\n\n"))


@pytest.mark.parametrize("packed", [False, True])
def test_bug_report(tmp_path, packed):
    raw = gzip.compress(REPORT.encode()) if packed else REPORT.encode()
    out = str(tmp_path / "out")
    assemble(out, bug_report=written(tmp_path, "r.gz", raw))
    source = open_source(out)
    assert source.info.host == "trainer3"
    assert source.read("/etc/modprobe.d/nvidia.conf") == b"# a comment\n\noptions nvidia NVreg_EnableStreamMemOPs=1\n"
    assert source.read("/proc/cmdline") == b"BOOT_IMAGE=/vmlinuz iommu=pt\n"
    assert source.read("/proc/driver/nvidia/version").startswith(b"NVRM version: NVIDIA UNIX Open Kernel Module")
    assert source.read("/sys/module/nvidia_uvm/parameters/uvm_ats_mode") == b"1\n"
    assert source.read("/proc/driver/nvidia/registry").status == "absent"
    assert source.read("/proc/iomem").status == "denied"
    assert source.run("lspci").stdout == LSPCI
    assert source.run("dmesg").stdout == "[    0.0] Linux version 6.8.0\n"
    assert source.run("nvidia-smi-nvlink").stdout == "GPU 0: NVIDIA H100 (UUID: GPU-1)\n\t Link 0: 26.562 GB/s\n"
    assert source.names("/sys/bus/pci/devices").status == "not_captured"  # two attributes are not the bus
    assert source.read("/proc/mounts").status == "not_captured"


def test_a_report_of_many_gzip_streams_cut_in_the_last():
    whole = b"".join(gzip.compress(line.encode()) for line in REPORT.splitlines(keepends=True))
    assert bug_report.unpacked(whole) == REPORT
    cut = bug_report.unpacked(whole[:-30])
    assert REPORT.startswith(cut)
    assert len(cut) > len(REPORT) - 100


def test_what_is_given_by_itself_outranks_the_report(tmp_path):
    assemble(
        str(tmp_path / "out"),
        bug_report=written(tmp_path, "r", REPORT),
        dmesg=written(tmp_path, "d", "fresh\n"),
        files=[("/proc/iomem", written(tmp_path, "i", "00000000-00000fff : Reserved\n"))],
    )
    source = open_source(str(tmp_path / "out"))
    assert source.run("dmesg").stdout == "fresh\n"
    assert source.read("/proc/iomem") == b"00000000-00000fff : Reserved\n"


def test_old_reports_name_files_without_stars():
    text = (
        f"Start of NVIDIA bug report log file.\n{RULE}\n\n/proc/cmdline\nquiet\n\n{RULE}\n\n/var/log/x does not exist\n"
    )
    assert bug_report.split(text).files == {"/proc/cmdline": "quiet\n"}


def test_hostile_reports(tmp_path, monkeypatch):
    head = "Start of NVIDIA bug report log file.\n"
    climbing = f"{head}{RULE}\n*** /proc/../../../etc/../x\nboo\n{RULE}\n*** /etc/{'a' * 300}\nboo\n{RULE}\n*** /proc/a\0b\nboo\n"
    assert bug_report.split(climbing).files == {}
    assert bug_report.split(head + f"{RULE}\n" * 100_000 + "*** " * 100_000).files == {}
    both = f"{head}{RULE}\n*** /etc/a\nfile\n{RULE}\n*** /etc/a/b\nbelow\n"
    with pytest.raises((InputError, UsageError)):
        assemble(str(tmp_path / "out"), bug_report=written(tmp_path, "both", both))
    monkeypatch.setattr(bug_report, "MAX_BYTES", 1000)
    with pytest.raises(InputError, match="unpacks to more"):
        bug_report.unpacked(gzip.compress(bytes(3 << 20)))
    with pytest.raises(InputError, match="damaged"):
        bug_report.unpacked(b"\x1f\x8b\xff\xff and so on")
    with pytest.raises(InputError, match="not an nvidia-bug-report"):
        bug_report.split("")

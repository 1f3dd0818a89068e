"""Pasted texts of two machines: every identity that texts hold, and what is no contradiction."""

from __future__ import annotations

from pathlib import Path

import pytest

from gdsctl.cli import run
from gdsctl.source.origin import contradictions

ONE, TWO = "1b4e28ba-2fa1-11d2-883f-0016d3cca427", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
DMI = "Handle 0x0001, DMI type 1, 27 bytes\nSystem Information\n\tManufacturer: Acme\n\tSerial Number: {}\n\tUUID: {}\n"
LSPCI = "0000:01:00.0 3D controller [0302]: NVIDIA\n0000:02:00.0 3D controller [0302]: NVIDIA\n"
# kind, texts of the first, texts of the second: what each tool prints, by its manual; certain: no reboot explains it
CASES = [
    (
        "machine-id",
        ("/etc/machine-id", "a" * 31 + "1\n"),
        ("/etc/machine-id2", "  Machine ID: " + "b" * 31 + "2\n"),
        True,
    ),
    ("DMI UUID", ("dmidecode", DMI.format("S1", ONE)), ("/sys/class/dmi/id/product_uuid", f"{TWO}\n"), True),
    ("serial number", ("dmidecode", DMI.format("S1", ONE)), ("/sys/class/dmi/id/product_serial", "S2\n"), True),
    (
        "host name",
        ("/etc/hostname", "gpu01.example\n"),
        ("uname", "Linux gpu02 6.8.0-60-generic #63 SMP x86_64\n"),
        True,
    ),
    ("host name", ("/etc/hostname", "gpu01\n"), ("journal", "Dec  2 10:00:01 gpu02 kernel: nvme nvme0: x\n"), True),
    (
        "GPU UUIDs",
        ("nvidia-smi-l", f"GPU 0: H100 (UUID: GPU-{ONE})\n"),
        ("nvidia-smi-q", f"GPU UUID : GPU-{TWO}\n"),
        True,
    ),
    (
        "boot id",
        ("/proc/sys/kernel/random/boot_id", f"{ONE}\n"),
        ("hostnamectl", "Boot ID: " + "c" * 31 + "3\n"),
        False,
    ),
    (
        "kernel release",
        ("gdscheck", "Platform: PowerEdge, Arch: x86_64(Linux 6.8.0-60-generic)\n"),
        ("dmesg", "[    0.0] Linux version 5.15.0-140-generic (buildd@x)\n"),
        False,
    ),
    ("host of the prompt", ("lspci", "root@gpu01:~# lspci\n"), ("lsmod", "[root@gpu02 ~]# lsmod\n"), False),
    ("PCI addresses", ("lspci", LSPCI), ("nccl-topo", '<gpu busid="0000:01:00.0"/><gpu busid="0000:81:00.0"/>'), False),
    ("PCI addresses", ("lspci", LSPCI), ("nvidia-smi-q", "GPU 00000000:81:00.0\n"), True),
]


@pytest.mark.parametrize(("kind", "first", "second", "certain"), CASES)
def test_what_two_texts_say_of_their_machine(
    kind: str, first: tuple[str, str], second: tuple[str, str], certain: bool
) -> None:
    told = {first[0]: ("a.txt", first[1]), second[0]: ("b.txt", second[1])}
    (found,) = [one for one in contradictions(told) if one.kind == kind]
    assert found.certain is certain
    assert "a.txt and b.txt" in found.said
    assert not contradictions({first[0]: ("a.txt", first[1]), "other": ("b.txt", first[1])})
    assert not contradictions({first[0]: ("a.txt", first[1]), second[0]: ("a.txt", second[1])})  # one file's own affair


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("/etc/hostname", "gpu01.example.net\n"), ("uname", "Linux gpu01 6.8.0 #1 SMP\n")),
        (("/etc/hostname", "localhost\n"), ("uname", "Linux gpu01 6.8.0 #1 SMP\n")),
        (("lspci", "root@0123456789ab:/# lspci\n"), ("lsmod", "root@gpu02:~# lsmod\n")),  # in a container
        (("nvidia-smi-l", f"GPU-{ONE}\nGPU-{TWO}\n"), ("nvidia-smi-q", f"GPU-{TWO}\n")),  # one GPU of two
        (("/sys/class/dmi/id/product_serial", "Default string\n"), ("dmidecode", DMI.format("S1", ONE))),
        (("lspci", "01:00.0 3D controller: NVIDIA\n"), ("nvidia-smi-q", "GPU 00000000:01:00.0\n")),
    ],
)
def test_near_misses(first: tuple[str, str], second: tuple[str, str]) -> None:
    assert contradictions({first[0]: ("a", first[1]), second[0]: ("b", second[1])}) == ()


def test_two_machines_are_refused_and_a_doubt_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {"host": "gpu01\n", "uname": "Linux gpu02 6.8.0 #1 SMP\n", "version": "Linux version 5.15.0 (x)\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    out = tmp_path / "out"
    command = ["snapshot", "assemble", str(out), "--command", f"uname={tmp_path / 'uname'}"]
    assert run([*command, "--file", f"/etc/hostname={tmp_path / 'host'}"]) == 4
    told = capsys.readouterr().err
    assert "are of different machines: host name gpu01 and gpu02" in told or "host name gpu02 and gpu01" in told
    assert not out.exists()
    assert run([*command, "--file", f"/proc/version={tmp_path / 'version'}"]) == 0
    assert "warning: " in (told := capsys.readouterr().err)
    assert "kernel release 6.8.0 and 5.15.0" in told
    assert run(["inspect", "-S", str(out)]) == 0
    assert "kernel release" in " ".join(capsys.readouterr().out.split())


def test_hostile_texts_end_soon() -> None:
    for text in ("System Information\n" * 200_000, "a@" * 2_000_000, "GPU " * 1_000_000, "\n[x@y " * 500_000):
        assert contradictions({"a": ("a", text), "b": ("b", text)}) == ()

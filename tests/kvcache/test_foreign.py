"""Files that are no application: what they seem to be, and that the command which is named takes them."""

from __future__ import annotations

import contextlib
import re
import shlex
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdsctl.cli import run
from gdsctl.data import app_foreign
from gdsctl.errors import InputError
from gdsctl.kvcache import foreign
from gdsctl.kvcache.app import judge
from gdsctl.model.node import Tool
from tests.hang import no_hang

ROOT = Path(__file__).resolve().parents[2]
TOOL = Tool(name="gdsctl", version="0")

# (text as somebody may paste it, a word of what it is told to be, the command that takes it or None)
SEEN: dict[str, tuple[str, str, str | None]] = {
    "cufile": ('// mine\n{\n  "properties": {"max_direct_io_size_kb": 1024},\n}\n', "a cufile.json", "gdsctl lint"),
    "cufile-list": ('{"fs": {"nfs": {"rdma_dev_addr_list": ["10.0.0.1"]}}}', "a cufile.json", "gdsctl lint"),
    "gdscheck": (" GDS release version: 1.9.0.20\n nvidia_fs version:  2.19 libcufile version: 2.12\n Platform: x86_64\n", "gdscheck", "gdsctl parse gdscheck"),
    "quoted gdscheck": ("> DRIVER CONFIGURATION:\n> NVMe : Supported\n", "gdscheck", "gdsctl parse gdscheck"),
    "topo": ("\tGPU0\tNIC0\tCPU Affinity\nGPU0\t X \tPIX\t0-3\nNIC0\tPIX\t X \t\n", "topo", "gdsctl parse nvidia-smi-topo"),
    "lspci": ("01:00.0 3D controller [0302]: NVIDIA Corporation Device [10de:2330] (rev a1)\n\tNUMA node: 0\n", "lspci", "gdsctl parse lspci"),
    "nccl": ('<system version="1">\n  <cpu numaid="0"/>\n</system>\n', "NCCL", "gdsctl parse nccl-topo"),
    "lsmod": ("Module                  Size  Used by\nnvidia_fs   200000  0\n", "lsmod", "gdsctl parse lsmod"),
    "modules": ("nvidia_fs 200704 0 - Live 0x0000000000000000 (OE)\n", "/proc/modules", "gdsctl parse proc-modules"),
    "kallsyms": ("ffffffffc0000000 t nvfs_init\t[nvidia_fs]\n", "kallsyms", "gdsctl parse kallsyms"),
    "mounts": ("proc /proc proc rw 0 0\n/dev/nvme0n1 /mnt ext4 rw 0 0\n", "mounts", "gdsctl parse mounts"),
    "mount": ("/dev/sda1 on / type ext4 (rw,relatime)\n", "mounts", "gdsctl parse mounts"),
    "params": ("ResmanDebugLevel: 4294967295\nRmLogonRC: 1\n", "driver", "gdsctl parse nvidia-params"),
    "stats": ("GDS Version: 1.14\nNVFS statistics(ver: 4.0)\n", "statistics", "gdsctl parse nvidia-fs-stats"),
    "log": (" 02-12-2026 09:05:11:123 [pid=1 tid=1] ERROR  cufio:10 no\n", "cufile.log", "gdsctl parse cufile-log"),
    "cmdline": ("BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro iommu=pt\n", "kernel command line", "gdsctl parse kernel-cmdline"),
    "dmesg": ("[    0.000000] Linux version 6.8\n[    1.000000] nvme nvme0: x\n", "kernel's log", None),
    "intent": ("schema: gdsctl/intent/v1\nmode: auto\n", "an intent", "gdsctl plan"),
    "smi": ("| NVIDIA-SMI 570.1   Driver Version: 570.1   CUDA Version: 12.8 |\n", "nvidia-smi", None),
    "modprobe": ("options nvidia NVreg_RegistryDwords=x\n", "modprobe", None),
    "fstab": ("# mine\n10.0.0.1:/kv /kv nfs vers=3 0 0\n", "fstab", None),
    "nfsmount": ('[ MountPoint "/kv" ]\nProto=rdma\n', "nfsmount.conf", None),
    "fio": ("[global]\nioengine=libaio\n[job1]\nbs=1m\n", "fio", None),
    "describe": ("Name:             kv-0\nNamespace:        default\n", "kubectl describe", None),
    "get": ("NAME   READY   STATUS    RESTARTS   AGE\nkv-0   1/1     Running   0          1d\n", "kubectl", None),
    "docker ps": ("CONTAINER ID   IMAGE   COMMAND\n", "docker", None),
    "html": ("<!DOCTYPE html>\n<html><body>lmcache</body></html>\n", "HTML", None),
    "weights": ('{"metadata": {}, "weight_map": {"a": "b"}}', "weights", None),
    "Service": ("apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n", "manifest (Namespace)", None),
    "bench": ('{"workload": "long-doc-qa", "kv_cache_volume": 48}', "bench", None),
    "nothing": (" \n", "empty", None),
}  # fmt: skip


@pytest.mark.parametrize("name", list(SEEN))
def test_what_it_seems_to_be(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, what, command = SEEN[name]
    path = tmp_path / "my file"
    path.write_text(text)
    assert run(["app", str(path)]) == 4
    told = capsys.readouterr().err
    assert told.startswith(f"gdsctl: {path}: ")
    assert told.count("\n") == 1
    assert what in told
    if command is not None:
        said = shlex.split(re.findall(r"`([^`]+)`", told)[0])
        assert said[0] == "gdsctl"
        assert " ".join(said).startswith(command)
        assert run(said[1:]) in (0, 1)  # it takes it


def test_every_row_names_a_command_or_a_way() -> None:
    for use, source in [(r.use, r.source) for r in app_foreign.rows()] + [
        (r.use, r.source) for r in app_foreign.binaries()
    ]:
        assert use
        assert source


@pytest.mark.parametrize("sample", ["cufile.json", "gdscheck.txt", "topo.txt", "lspci.txt"])
def test_the_samples(sample: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(ROOT / "docs" / "samples" / sample)
    assert run(["app", path]) == 4
    assert "this looks like" in capsys.readouterr().err


@pytest.mark.shared
def test_what_people_posted(shared: Path) -> None:
    kinds = {"gdscheck": "gdscheck", "topo": "topo -m", "nccl": "NCCL"}
    wrong = [
        path.name
        for folder, what in kinds.items()
        for path in sorted((shared / "field" / folder).iterdir())
        if path.suffix in (".txt", ".xml") and what not in (foreign.seems(path.read_text(errors="replace"), "f") or "")
    ]
    assert wrong == []


def test_what_is_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for raw, words in (
        (b"\x1f\x8b\x08\0\xff", "--snapshot"),
        (b"\x7fELF\x02\xff", "a program"),
        ("lmcache server".encode("utf-16"), "iconv"),
        (b"\xff\xfa", "not UTF-8"),
    ):
        path = tmp_path / "f"
        path.write_bytes(raw)
        assert run(["app", str(path)]) == 4
        assert words in capsys.readouterr().err
    assert run(["app", str(tmp_path)]) == 4
    assert "a folder: give the files in it" in capsys.readouterr().err
    (tmp_path / "Chart.yaml").touch()
    assert run(["app", str(tmp_path)]) == 4
    assert "helm template" in capsys.readouterr().err
    assert run(["app", "example:hgx-h100-vast"]) == 4
    assert "--snapshot example:hgx-h100-vast" in capsys.readouterr().err


def test_a_broken_configuration_is_told_as_one() -> None:
    """Near miss: what is recognised, or broken without being something else, keeps its own reason and line."""
    with pytest.raises(InputError, match=r"^f:3: not valid YAML"):
        judge([("f", "kind: Pod\nspec: {a: [\n")], tool=TOOL)
    with pytest.raises(InputError, match=r"^f: no KV cache"):
        judge([("f", "echo hello\n")], tool=TOOL)
    with pytest.raises(InputError, match="size --model"):
        judge([("c.json", '{"num_hidden_layers": 2}')], tool=TOOL)


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ('{"type": "fs", "base_path": "/kv"}', True),
        ('{"type": "GDS", "tag": "g", "path": "/kv"}', True),
        ('{"$schema": "x", "type": "object", "tag": 1}', False),
        ('[{"type": "message", "text": "a"}]', False),
    ],
)
def test_what_has_a_type_is_no_adapter_for_that(text: str, server: bool) -> None:
    if server:
        assert judge([("f.json", text)], tool=TOOL).stacks[0].software == "LMCache server"
    else:
        with pytest.raises(InputError, match="no KV cache"):
            judge([("f.json", text)], tool=TOOL)


def test_a_manifest_beside_an_application_is_no_fault() -> None:
    pod = "kind: Pod\napiVersion: v1\nspec: {containers: [{name: a, command: [lmcache, server]}]}\n"
    namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n"
    assert judge([("n", namespace), ("p", pod)], tool=TOOL).idle == ("n",)
    with pytest.raises(InputError, match="gdsctl lint"):
        judge([("p", pod), ("c", SEEN["cufile"][0])], tool=TOOL)


@settings(max_examples=60, deadline=None)
@given(
    st.text(alphabet='ab01:.[] \n\t"{}<>|=-/', max_size=200), st.sampled_from(["", "[", "GDS ", "Name: a\n", '"fs": {'])
)
def test_any_text_ends_soon(text: str, start: str) -> None:
    with no_hang(5), contextlib.suppress(InputError):
        assert foreign.seems(start + text, "f") is None or "\n" not in (foreign.seems(start + text, "f") or "")


@pytest.mark.parametrize(
    "unit", ['"fs": {', "\n", " ", "[ ", "Name: a\n", "a on /b type ", "x ", "1 1 1:1 / / a ", "gds:\n"]
)
def test_hostile_texts_end_soon(unit: str) -> None:
    with no_hang(5):
        told = foreign.seems(unit * (200_000 // len(unit)), "f")
    assert told is None or "\n" not in told

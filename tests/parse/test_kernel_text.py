"""proc_modules, lsmod, kallsyms, mounts, kernel_cmdline: what the kernel lists, whole and as people paste it."""

from __future__ import annotations

import contextlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdsctl.assess.rules import ids
from gdsctl.data.nvfs_hooks import hooks, symbols
from gdsctl.errors import InputError
from gdsctl.parse import (
    kallsyms,
    kernel_cmdline,
    kernel_log,
    lsmod,
    mounts,
    nvidia_fs_stats,
    nvidia_params,
    proc_modules,
)
from tests.hang import no_hang

CAPTURES = ("acs-on", "rdma-on", "acs-on-nvidia-fs-2.28.4", "rdma-612")
PARSERS = (kallsyms, kernel_cmdline, lsmod, mounts, nvidia_fs_stats, nvidia_params, proc_modules)


def captured(shared: Path, name: str, path: str) -> str:
    with tarfile.open(shared / "field" / "vm" / name / "root.tar.gz") as archive:
        member = archive.extractfile(path) or io.BytesIO()
        return member.read().decode("utf-8", "surrogateescape")


@pytest.mark.parametrize("parser", PARSERS, ids=lambda module: module.__name__.rpartition(".")[2])
@given(text=st.text(alphabet=st.sampled_from(' \t\n\r\0"=,;:()[]-_/\\#.>$@0129abxnu\u00e9\ud800\u2028'), max_size=200))
@settings(max_examples=60)
def test_any_text_gives_a_record_or_an_input_error(parser: Any, text: str) -> None:
    try:
        record = parser.parse(text)
    except InputError:
        return
    assert all(1 <= warned.line <= text.count("\n") + 1 for warned in record.warnings)


@pytest.mark.parametrize("parser", PARSERS, ids=lambda module: module.__name__.rpartition(".")[2])
@pytest.mark.parametrize(
    "hostile",
    [
        "a" * 100_000,
        "a=" * 50_000,
        " on /" * 20_000,
        '"' * 100_000,
        "x 1 1 a,\n" + "b\n" * 50_000,
        "[" * 100_000,
        " " * 100_000 + "x",
    ],
)
def test_hostile_text_does_not_hang(parser: Any, hostile: str) -> None:
    with no_hang(), contextlib.suppress(InputError):
        parser.parse(hostile)


@pytest.mark.shared
@pytest.mark.parametrize("name", CAPTURES)
def test_lsmod_and_proc_modules_agree_on_a_booted_kernel(shared: Path, name: str) -> None:
    listed = proc_modules.parse(captured(shared, name, "proc/modules"))
    shown = lsmod.parse((shared / "field" / "vm" / name / "oracle" / "lsmod.txt").read_text())
    facts = [
        {key: (m.size, m.refcount, set(m.used_by or ())) for key, m in parsed.modules.items()}
        for parsed in (listed, shown)
    ]
    assert facts[0] == facts[1]
    assert len(facts[0]) > 20
    assert not listed.truncated
    assert not shown.truncated


def test_proc_modules_row() -> None:
    record = proc_modules.parse(
        "nvidia 54706176 83 nvidia_uvm,nvidia_modeset,[permanent], Live 0x0000000000000000 (POE)\n"
        "loop 32768 0 - Live 0xffffffffc0b2d000\n"
        "tiny 100 - - Live 0x0\n"
    )
    nvidia = record.modules["nvidia"]
    assert (nvidia.size, nvidia.refcount, nvidia.used_by) == (54706176, 83, ("nvidia_uvm", "nvidia_modeset"))
    assert (nvidia.state, nvidia.taint) == ("Live", "POE")
    assert record.modules["loop"].used_by == ()
    assert record.modules["loop"].taint == ""
    assert record.modules["tiny"].refcount is None


names = st.from_regex(r"[a-z][a-z0-9_]{0,20}", fullmatch=True)


@given(
    st.dictionaries(
        names, st.tuples(st.integers(0, 2**40), st.integers(0, 99), st.lists(names, max_size=3)), min_size=1
    )
)
@settings(max_examples=50)
def test_proc_modules_round_trip(rows: Any) -> None:
    text = "".join(
        f"{name} {size} {count} {''.join(user + ',' for user in users) or '-'} Live 0x0\n"
        for name, (size, count, users) in rows.items()
    )
    record = proc_modules.parse(text)
    assert {n: (m.size, m.refcount, list(m.used_by or ())) for n, m in record.modules.items()} == rows


def test_lsmod_users_wrapped_after_a_comma_and_inside_a_name() -> None:
    record = lsmod.parse(
        "Module                  Size  Used by\n"
        "nvidia              54706176  83 nvidia_uvm,\n"
        "nvidia_mo\n"
        "deset\n"
        "nvidia_modeset       1306624  3 nvidia_drm\n"
        "nvidia_uvm           1437696  0\n"
        "nvidia_drm             77824  2\n"
    )
    assert record.modules["nvidia"].used_by == ("nvidia_uvm", "nvidia_modeset")
    assert record.modules["nvidia_modeset"].used_by == ("nvidia_drm",)


def test_lsmod_quoted_without_header_and_cut() -> None:
    record = lsmod.parse("> nvme_core  131072  5 nvme,nvme_fabrics\n> nvme  49152\n")
    assert record.modules["nvme_core"].used_by == ("nvme", "nvme_fabrics")
    assert "nvme" not in record.modules
    assert record.truncated
    assert record.warnings[-1].line == 2


@pytest.mark.parametrize("text", ["", "hello world\n", "GDS release version: 1.13.0.11\n"])
def test_lsmod_refuses_other_text(text: str) -> None:
    with pytest.raises(InputError):
        lsmod.parse(text)


def test_kallsyms_exact_names_zeroed_addresses_and_module_column() -> None:
    record = kallsyms.parse(
        "0000000000000000 T pci_p2pdma_add_resource\n"
        "0000000000000000 r __ksymtab_nvme_v2_register_nvfs_dma_ops\t[nvme]\n"
        "0000000000000000 t __pfx_rpcrdma_register_nvfs_dma_ops\t[rpcrdma]\n"
        "0000000000000000 t nvme_v1_register_nvfs_dma_ops\t[nvme]\n"
        "0000000000000000 t nvme_v1_unregister_nvfs_dma_ops\t[nvme]\n"
        "0000000000000000 T scsi_v1_register_dma_scsi_ops\n"
    )
    assert record.nvfs_hooks == {
        "nvme_v1_register_nvfs_dma_ops": "nvme",
        "nvme_v1_unregister_nvfs_dma_ops": "nvme",
        "scsi_v1_register_dma_scsi_ops": None,
    }
    assert record.p2pdma.pci_p2pdma_add_resource is True
    assert record.p2pdma.p2pdma_pgmap_ops is False
    assert (record.count, record.truncated) == (6, False)


def test_kallsyms_cut_off_leaves_the_unseen_unknown() -> None:
    record = kallsyms.parse("ffffffff81000000 T startup_64\nffffffff8100")
    assert record.truncated
    assert record.count == 1
    assert record.p2pdma.pci_p2pdma_add_resource is None


def test_kallsyms_reads_ten_megabytes() -> None:
    text = "0000000000000000 t some_ordinary_symbol_name_of_a_module\t[module_name]\n" * 150_000
    with no_hang():
        record = kallsyms.parse(text + "0000000000000000 t rpcrdma_register_nvfs_dma_ops\t[rpcrdma]\n")
    assert record.nvfs_hooks == {"rpcrdma_register_nvfs_dma_ops": "rpcrdma"}
    assert record.count == 150_001


def test_hook_table_pairs_every_register_with_its_unregister() -> None:
    assert {"nvme", "nvme_rdma", "rpcrdma", "lnet", "wekafsio", "scsi_mod"} <= set(hooks())
    for row in hooks().values():
        assert [name.replace("_register_", "_unregister_") for name in row.register] == list(row.unregister)
    assert len(set(symbols())) == len(symbols())


def flattened(nodes: Any) -> Any:
    for node in nodes:
        yield node
        yield from flattened(node.get("children", ()))


@pytest.mark.shared
@pytest.mark.parametrize("name", CAPTURES)
def test_mountinfo_agrees_with_findmnt_and_proc_mounts(shared: Path, name: str) -> None:
    info = mounts.parse(captured(shared, name, "proc/self/mountinfo"))
    plain = mounts.parse(captured(shared, name, "proc/mounts"))
    oracle = json.loads((shared / "field" / "vm" / name / "oracle" / "findmnt.json").read_text())["filesystems"]
    expected = {n["target"]: (n["source"], n["fstype"], set(n["options"].split(","))) for n in flattened(oracle)}
    assert {m.target: (m.source, m.fstype, set(m.options)) for m in info.mounts} == expected
    assert [(m.target, m.source, m.fstype, set(m.options)) for m in plain.mounts] == [
        (m.target, m.source, m.fstype, set(m.options)) for m in info.mounts
    ]


def test_mounts_three_forms() -> None:
    record = mounts.parse(
        "25 1 259:2 /sub / ro,relatime shared:1 master:2 - ext4 /dev/nvme0n1p2 rw,data=ordered\n"
        "10.0.0.1:/kv\\040a /vast/k\\011v nfs rw,proto=rdma,port=20049 0 0\n"
        "/dev/md0 on /mnt/my data type xfs (rw,noatime) [scratch]\n"
    )
    info, plain, shown = record.mounts
    assert (info.target, info.source, info.fstype) == ("/", "/dev/nvme0n1p2", "ext4")
    assert info.options == ("ro", "relatime", "data=ordered")
    assert (info.major_minor, info.root, info.optional_fields) == ("259:2", "/sub", ("shared:1", "master:2"))
    assert (plain.source, plain.target, plain.major_minor) == ("10.0.0.1:/kv a", "/vast/k\tv", None)
    assert (shown.source, shown.target, shown.options) == ("/dev/md0", "/mnt/my data", ("rw", "noatime"))


def test_mounts_quoted_commas_and_escaped_options() -> None:
    (mount,) = mounts.parse('o /m overlay rw,context="a:b:s0:c1,c2",lowerdir=/x\\054y 0 0\n').mounts
    assert mount.options == ("rw", 'context="a:b:s0:c1,c2"', "lowerdir=/x,y")


def test_mounts_ambiguous_names_are_not_guessed() -> None:
    record = mounts.parse("proc on /proc type proc (rw)\n//srv/a on /b on /mnt type cifs (rw)\n")
    assert [m.target for m in record.mounts] == ["/proc"]
    assert record.warnings[0].line == 2


def test_mounts_wrapped_and_cut() -> None:
    record = mounts.parse("/dev/vda / ext4 rw,rela\ntime 0 0\nsrv:/x /mnt nfs\nrw 0 0\n/dev/vdb /data xf")
    assert [(m.target, m.options) for m in record.mounts] == [("/", ("rw", "relatime")), ("/mnt", ("rw",))]
    assert record.truncated
    assert record.warnings[-1].line == 5


def escaped(name: str) -> str:
    return "".join(f"\\{ord(c):03o}" if c in " \t\n\\#" else c for c in name)


paths = st.text(st.characters(blacklist_characters="\0\r", blacklist_categories=()), min_size=1, max_size=30)


@given(paths, paths)
@settings(max_examples=100)
def test_mount_names_survive_the_kernels_escapes(source: str, tail: str) -> None:
    line = f"{escaped(source)} /{escaped(tail)} xfs rw,noatime 0 0\n"
    (mount,) = mounts.parse(line).mounts
    assert (mount.source, mount.target) == (source, "/" + tail)
    (mount,) = mounts.parse(f"25 1 8:1 / /{escaped(tail)} rw - xfs {escaped(source)} rw\n").mounts
    assert (mount.source, mount.target) == (source, "/" + tail)


def test_cmdline_quotes_repeats_and_acs_lists() -> None:
    record = kernel_cmdline.parse(
        'BOOT_IMAGE=/vmlinuz-6.8 root=LABEL=x ro dyndbg="file a.c +p; file b.c +p" iommu=on iommu=pt intel_iommu=on '
        'pci=noats,disable_acs_redir=0000:3a:00.0;0000:3b:00.0 "pci=config_acs=xx0x@0000:01:00.0;xx1@pci:8086:1" -- init_arg=1\n'
    )
    assert [p.value for p in record.parameters if p.name == "iommu"] == ["on", "pt"]
    assert (record.iommu.iommu, record.iommu.intel_iommu, record.iommu.amd_iommu) == ("pt", "on", None)
    assert next(p.value for p in record.parameters if p.name == "dyndbg") == "file a.c +p; file b.c +p"
    assert record.pci.disable_acs_redir == ("0000:3a:00.0", "0000:3b:00.0")
    assert record.pci.config_acs == ("xx0x@0000:01:00.0", "xx1@pci:8086:1")
    assert record.init_arguments == ("init_arg=1",)
    assert "noats" in record.pci.options
    assert not record.truncated


def test_cmdline_cut_inside_quotes_drops_the_part() -> None:
    record = kernel_cmdline.parse('ro root=/dev/vda pci="disable_acs_redir=0000:3a')
    assert record.truncated
    assert [p.name for p in record.parameters] == ["ro", "root"]
    assert kernel_cmdline.parse("\n").parameters == ()


@pytest.mark.parametrize("text", ["hello world\n", '{"a": 1}\n', "NVMe : Supported\n"])
def test_cmdline_refuses_other_text(text: str) -> None:
    with pytest.raises(InputError):
        kernel_cmdline.parse(text)


values = st.text("abc019;:,/ _-", max_size=12)


@given(st.lists(st.tuples(names, st.none() | values), max_size=8))
@settings(max_examples=80)
def test_cmdline_round_trip(pairs: Any) -> None:
    text = " ".join(["ro", *(n if v is None else f'{n}="{v}"' if " " in v or not v else f"{n}={v}" for n, v in pairs)])
    assert [(p.name, p.value) for p in kernel_cmdline.parse(text).parameters] == [("ro", None), *pairs]


def test_nvidia_params_quotes_and_registry_keys() -> None:
    record = nvidia_params.parse(
        'EnableGpuFirmware: 18\nRegistryDwords: "RMForceStaticBar1=1;RmForceDisableIomapWC=0x1;bad;a=b=c;"\n'
        'RegistryDwordsPerDevice: "pci=0000:3b:00.0;ForceP2P=0;pci=0000:86:00.0;ForceP2P=1"\nRmMsg: ""\n'
    )
    assert record.params["EnableGpuFirmware"] == "18"
    assert record.params["RmMsg"] == ""
    assert record.registry_dwords == {"RMForceStaticBar1": "1", "RmForceDisableIomapWC": "0x1"}
    assert record.registry_dwords_per_device == {
        "0000:3b:00.0": {"ForceP2P": "0"},
        "0000:86:00.0": {"ForceP2P": "1"},
    }


def test_nvidia_params_cut_inside_quotes() -> None:
    record = nvidia_params.parse('NvLinkDisable: 0\nRegistryDwords: "RMForceStatic')
    assert record.truncated
    assert record.params == {"NvLinkDisable": "0"}
    assert record.registry_dwords == {}


@given(
    st.dictionaries(st.from_regex(r"[A-Z][A-Za-z]{0,10}", fullmatch=True), st.text("abc=; .", max_size=10), min_size=1)
)
@settings(max_examples=50)
def test_nvidia_params_round_trip(params: Any) -> None:
    text = "".join(f'{name}: "{value}"\n' for name, value in params.items())
    assert nvidia_params.parse(text).params == params


STATS_OFF = """GDS Version: 1.4.0.29
NVFS statistics(ver: 4.0)
NVFS Driver(version: 2.13.5)
Mellanox PeerDirect Supported: False
IO stats: Disabled, peer IO stats: Disabled
Logging level: info

Active Shadow-Buffer (MiB): 0
Active Process: 0
Reads\t\t\t\t: err=0 io_state_err=0
Sparse Reads\t\t        : n=0 io=0 holes=0 pages=0
Writes\t\t\t\t: err=0 io_state_err=0 pg-cache=0 pg-cache-fail=0 pg-cache-eio=0
Mmap\t\t\t\t: n=4 ok=3 err=1 munmap=2
Bar1-map\t\t\t: n=0 ok=0 err=0 free=0 callbacks=0 active=0 delay-frees=0
Error\t\t\t\t: cpu-gpu-pages=0 sg-ext=0 dma-map=0 dma-ref=0
Ops\t\t\t\t: Read=0 Write=0 BatchIO=0
"""


def test_stats_off_leaves_absent_counters_unknown() -> None:
    stats = nvidia_fs_stats.parse(STATS_OFF)
    assert (stats.gds_version, stats.driver_version, stats.nvfs_statistics_version) == ("1.4.0.29", "2.13.5", "4.0")
    assert (stats.peerdirect, stats.io_stats_enabled, stats.peer_io_stats_enabled) == (False, False, False)
    assert stats.reads["n"] is None
    assert stats.reads["mib"] is None
    assert stats.reads["err"] == 0
    assert stats.batches == {"n": None, "ok": None, "err": None, "avg_submit_latency_us": None}
    assert stats.mmap == {"n": 4, "ok": 3, "err": 1, "munmap": 2}
    assert not stats.truncated
    assert stats.warnings == ()


def test_stats_on_with_gpus_and_old_names() -> None:
    stats = nvidia_fs_stats.parse(
        "NVFS statistics(ver:1.0)\nNVFS Driver(version: 2:7:47)\nIO stats: Enabled, peer IO stats: Enabled\n"
        "Reads : n=10 ok=9 err=1 readMB=7 io_state_err=0\nReads : Bandwidth(MB/s)=5 Avg-Latency(usec)=6\n"
        "Ops : Read=1 Write=0\n"
        "GPU 0000:be:00.0  uuid:87e5c586-0000 : Registered_MB=3 Cache_MB=2 max_pinned_MB=4 cross_root_port(%)=50\n"
    )
    assert stats.driver_version == "2.7.47"
    assert stats.io_stats_enabled is True
    assert (stats.reads["n"], stats.reads["mib"], stats.reads["bandwidth_mibs"], stats.reads["avg_latency_us"]) == (
        10,
        7,
        5,
        6,
    )
    (gpu,) = stats.gpus
    assert (gpu.address, gpu.registered_mib, gpu.cross_root_port_percent) == ("0000:be:00.0", 3, 50)
    assert stats.ops["batch_io"] is None
    assert not stats.truncated


def test_stats_cut_off() -> None:
    stats = nvidia_fs_stats.parse(STATS_OFF[: STATS_OFF.index("Error") + 20])
    assert stats.truncated
    assert stats.error["sg_ext"] is None


def test_mount_names_that_look_like_paste_marks_and_lines_ended_by_windows() -> None:
    record = mounts.parse("a /**x**[1m xfs rw 0 0\r\n25 1 8:1 / /y rw - xfs b rw,noatime\r\n> c /z xfs rw 0 0\n")
    assert [(m.target, m.options) for m in record.mounts] == [
        ("/**x**[1m", ("rw",)),
        ("/y", ("rw", "noatime")),
        ("/z", ("rw",)),
    ]


def test_lines_name_findings_that_exist_and_loads_are_told() -> None:
    assert {row.finding for row in kernel_log.known_lines() if row.finding} <= set(ids())
    text = (
        "[  5.1] nvidia_fs: Initializing nvfs driver module\n"
        "[ 61.0] x86/PAT: gdsio:4711 conflicting memory types 21000000000-22000000000  write-combining<->uncached-minus\n"
        "[ 62.0] x86/PAT: Xorg:1 conflicting memory types 1000-2000  uncached-minus<->write-back\n"
    )
    assert [(event.meaning, event.line) for event in kernel_log.parse(text).events] == [
        ("nvidia-fs-starts", 1),
        ("memory-type-conflict", 2),
    ]

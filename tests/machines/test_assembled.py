"""Snapshots put together from pasted outputs: what nobody captured is unknown, and gdscheck is believed only there."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from gdsctl import pipeline
from gdsctl.assess.assessment import assess
from gdsctl.cli import run
from gdsctl.collect.node import collect
from gdsctl.model.node import Node, Report
from gdsctl.plan.intent import Intent, Wanted
from gdsctl.plan.verify import verify
from gdsctl.render import terminal
from gdsctl.source.assemble import assemble
from gdsctl.source.opening import open_source

# As `lspci -D -vvv` prints without -n; 2330 is an H100 SXM, and the second drive is held for a guest.
LSPCI = """\
0000:00:01.0 PCI bridge: Intel Corporation Device 352a (rev 04) (prog-if 00 [Normal decode])
\tBus: primary=00, secondary=01, subordinate=01, sec-latency=0
\tCapabilities: [40] Express (v2) Root Port (Slot+), MSI 00
\tKernel driver in use: pcieport
0000:00:02.0 PCI bridge: Intel Corporation Device 352a (rev 04) (prog-if 00 [Normal decode])
\tBus: primary=00, secondary=02, subordinate=02, sec-latency=0
\tCapabilities: [40] Express (v2) Root Port (Slot+), MSI 00
\tKernel driver in use: pcieport
0000:01:00.0 3D controller: NVIDIA Corporation Device 2330 (rev a1)
\tKernel driver in use: nvidia
0000:02:00.0 Non-Volatile memory controller: Micron Technology Inc Device 51c3 (rev 01) (prog-if 02 [NVM Express])
\tNUMA node: 1
\tKernel driver in use: nvme
0000:02:00.1 Non-Volatile memory controller: Micron Technology Inc Device 51c3 (rev 01) (prog-if 02 [NVM Express])
\tKernel driver in use: vfio-pci
0000:02:00.2 Ethernet controller: Mellanox Technologies MT2910 Family [ConnectX-7]
\tKernel driver in use: mlx5_core
"""
# GDS 1.13 beside nvidia_fs 2.20, the closed kernel modules and one bridge with ACS.
GDSCHECK = """\
 GDS release version: 1.13.1.3
 nvidia_fs version:  2.20 libcufile version: 2.12
 Platform: x86_64
 DRIVER CONFIGURATION:
 NVMe               : Supported
 NVMeOF             : Unsupported
 NFS                : Supported
 GPU INFO:
 GPU index 0 NVIDIA H100 80GB HBM3 bar:1 bar size (MiB):131072 supports GDS, IOMMU State: Disabled
 PLATFORM INFO:
 Found ACS enabled for switch 0000:00:01.0
 IOMMU: disabled
 Nvidia Driver Info Status: Supported only on (nvidia-fs version <= 2.17.4)
 Platform verification succeeded
"""
NO_MODULE = GDSCHECK.replace("nvidia_fs version:  2.20 libcufile", "libcufile").replace("Supported\n", "Unsupported\n")


Pasted = Callable[..., str]


@pytest.fixture
def pasted(tmp_path: Path) -> Pasted:
    def build(
        lspci: str | None = None,
        gdscheck: str | None = None,
        files: dict[str, str] | None = None,
        lsmod: str | None = None,
    ) -> str:
        def written(name: str, text: str | None) -> str | None:
            if text is None:
                return None
            (tmp_path / name).write_text(text)
            return str(tmp_path / name)

        out = str(tmp_path / "node.tar")
        (tmp_path / "node.tar").unlink(missing_ok=True)
        assemble(
            out,
            lspci=written("lspci", lspci),
            gdscheck=written("gdscheck", gdscheck),
            lsmod=written("lsmod", lsmod),
            files=[(path, str(written(f"file{n}", text))) for n, (path, text) in enumerate((files or {}).items())],
        )
        return out

    return build


def node_of(path: str) -> Node:
    return collect(open_source(path))


def text_of(report: Report) -> str:
    return terminal.plain(terminal.inspect_report(report), 140)


def test_drives_of_lspci_are_controllers_named_by_their_addresses(pasted: Pasted) -> None:
    report = pipeline.inspect(open_source(pasted(lspci=LSPCI)))
    (drive,) = report.nvme  # vfio-pci's is none of this kernel's
    assert (drive.name, drive.address, drive.transport) == ("nvme@0000:02:00.0", "0000:02:00.0", "pcie")
    assert (drive.driver, drive.numa_node, drive.namespaces) == ("nvme", 1, ())
    assert {"/nvme/0/namespaces", "/nvme/0/multipath"} <= {unknown.pointer for unknown in report.unknowns}
    assert ("0000:01:00.0", "0000:02:00.0", "nvme") in {(p.gpu, p.peer, p.peer_kind) for p in report.pairs}
    # pci.ids calls 10de:2330 so; lspci's own table did not know it.
    assert report.gpus[0].name == "GH100 [H100 SXM5 80GB]"
    shown = text_of(report)
    assert "\nnvme@0000:02:00.0 " in shown
    assert "\n0000:02:00.2 " in shown  # the NIC's row among the peers
    assert "NIC Mellanox Technologies MT2910 Family [ConnectX-7]" in shown


def test_mounts_that_nobody_captured_are_not_known(pasted: Pasted) -> None:
    source = open_source(pasted(lspci=LSPCI, gdscheck=GDSCHECK))
    report = pipeline.inspect(source)
    shown = text_of(report)
    assert shown.rstrip().endswith("which mounts there are is not known; settle with: cat /proc/self/mountinfo")
    assert "none that could hold data" not in shown
    gate = verify(assess(collect(source)), Wanted(intent=Intent(), path=None, said="none"))
    (route,) = [one for one in gate.requirements if one.id == "route"]
    assert gate.verdict == "unknown"
    assert (route.status, route.settle_with) == ("unknown", "cat /proc/self/mountinfo")
    assert "not known" in route.evidence
    assert "in principle" not in route.evidence


def test_gdscheck_tells_what_was_not_captured(pasted: Pasted) -> None:
    node = node_of(pasted(lspci=LSPCI, gdscheck=GDSCHECK))
    assert (node.nvidia_fs.loaded, node.nvidia_fs.version) == (True, "2.20")
    assert node.nvidia_fs.acs_bridges == ("0000:00:01.0",)
    assert node.nvidia_fs.sources == dict.fromkeys(("loaded", "version", "acs_bridges"), "gdscheck")
    assert node.modules["nvidia_fs"].loaded is True
    assert (node.iommu.state, node.iommu.evidence) == ("off", ("gdscheck: IOMMU: disabled",))
    assert (node.nvidia_driver.kind, node.nvidia_driver.sources) == ("proprietary", {"kind": "gdscheck"})
    assert node.gpus[0].bar1_bytes == 128 * 2**30
    hooks = node.nvfs_hooks
    assert [(hooks[name].registered, hooks[name].state) for name in ("nvme", "rpcrdma")] == [(True, "patched")] * 2
    assert hooks["nvme"].source == "gdscheck"
    assert (hooks["nvme_rdma"].registered, hooks["nvme_rdma"].state) == (None, "unknown")
    text = text_of(pipeline.report(assess(node)))
    assert "version not known, proprietary kernel modules [gdscheck]" in text


def test_the_other_words_of_gdscheck(pasted: Pasted) -> None:
    other = GDSCHECK.replace("IOMMU: disabled", "IOMMU: Pass-through or enabled").replace(
        "Supported only on (nvidia-fs version <= 2.17.4)", "Unsupported(Unable to read version file, cannot validate)"
    )
    node = node_of(pasted(gdscheck=other))
    assert (node.iommu.state, node.iommu.evidence) == ("unknown", ("gdscheck: IOMMU: Pass-through or enabled",))
    assert (node.nvidia_driver.kind, node.nvidia_driver.sources) == ("unknown", {})
    new = GDSCHECK.replace("1.13.1.3", "1.16.0.49").replace("NVMe               : Supported", "NVMe : nvfs, compat")
    new = new.replace("NFS                : Supported", "NFS : compat")
    hooks = node_of(pasted(gdscheck=new)).nvfs_hooks
    assert (hooks["nvme"].registered, hooks["rpcrdma"].registered) == (True, None)


def test_without_the_module_nothing_is_registered(pasted: Pasted) -> None:
    node = node_of(pasted(gdscheck=NO_MODULE))
    assert (node.nvidia_fs.loaded, node.nvidia_fs.version) == (False, None)
    assert node.modules["nvidia_fs"].loaded is False
    assert {hook.registered for hook in node.nvfs_hooks.values()} == {None}


def test_gdscheck_overrides_nothing(pasted: Pasted) -> None:
    files = {
        "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15\n",
        "/proc/driver/nvidia-fs/version": "version: 2.25\n",
        "/proc/driver/nvidia-fs/modules": "wekafsio: 1\n",
        "/proc/driver/nvidia-fs/bridges": "0000:40:01.1\n",
        "/proc/cmdline": "quiet iommu=pt intel_iommu=on\n",
    }
    node = node_of(pasted(gdscheck=GDSCHECK, files=files))
    assert (node.nvidia_fs.version, node.nvidia_fs.registered) == ("2.25", ("wekafsio",))
    assert (node.nvidia_fs.acs_bridges, node.nvidia_fs.sources) == (("0000:40:01.1",), {})
    assert node.nvidia_driver.kind == "open"
    assert node.iommu.state != "off"
    assert node.nvfs_hooks["nvme"].registered is False


def test_lsmod_says_loaded_and_gdscheck_which(pasted: Pasted) -> None:
    lsmod = "Module                  Size  Used by\nnvidia_fs             262144  0\n"
    found = node_of(pasted(gdscheck=GDSCHECK, lsmod=lsmod)).nvidia_fs
    assert (found.loaded, found.version, found.acs_bridges) == (True, "2.20", ("0000:00:01.0",))
    assert found.sources == {"version": "gdscheck", "acs_bridges": "gdscheck"}
    without = lsmod.replace("nvidia_fs ", "nvidia_uvm")
    assert node_of(pasted(gdscheck=GDSCHECK, lsmod=without)).nvidia_fs.loaded is False


def test_outputs_of_two_machines_are_told(pasted: Pasted) -> None:
    two = GDSCHECK.replace(
        " PLATFORM INFO", " GPU index 1 NVIDIA L4 bar:1 bar size (MiB):32768 supports GDS\n PLATFORM INFO"
    )
    for report, subjects in ((GDSCHECK, set()), (two, {"number of GPUs", "GPU model"})):
        findings = pipeline.inspect(open_source(pasted(lspci=LSPCI, gdscheck=report))).findings
        told = [finding for finding in findings if finding.id == "source.mixed-machines"]
        assert {finding.subject for finding in told} == subjects
        assert {finding.severity for finding in told} <= {"warning"}


def test_assemble_says_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lspci").write_text(LSPCI)
    out = str(tmp_path / "node")
    assert run(["snapshot", "assemble", out, "--lspci", str(tmp_path / "lspci")]) == 0
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", f"gdsctl: wrote {out}; look at it with: gdsctl inspect --snapshot {out}\n")


@pytest.mark.shared
def test_a_beta_report_beside_a_server_of_eight(shared: Path, pasted: Pasted) -> None:
    """GDS 0.9.1 with nvidia_fs 2.4, its own minimum; lspci of eight H100, each with a drive in its switch."""
    lspci = gzip.decompress((shared / "field/lspci/xe9680-8xh100.lspci-vvv.gz").read_bytes()).decode()
    report = pipeline.inspect(open_source(pasted(lspci=lspci, gdscheck=(shared / "field/gdscheck/01.txt").read_text())))
    assert len(report.nvme) == 8
    nearest = [p for p in report.pairs if p.peer_kind == "nvme" and msgspec.to_builtins(p)["class"] == "PIX"]
    assert len({pair.gpu for pair in nearest}) == len({pair.peer for pair in nearest}) == 8
    assert {finding.id for finding in report.findings} == {"source.mixed-machines"}

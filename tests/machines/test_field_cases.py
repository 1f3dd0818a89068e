"""Twelve cases from the field, each beside the machine that differs in the one thing that matters.

The machine of most cases is sound: one switch with a GPU and a drive, xfs on it, nvidia-fs loaded, nvme with hooks. A
case changes what its text says, and the expected ids and routes follow from the change. All go through the whole chain,
from files or pasted outputs to routes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gdsctl import pipeline
from gdsctl.errors import InputError
from gdsctl.model.judgement import Finding
from gdsctl.model.node import Report
from gdsctl.parse import cufile_log, gdscheck
from gdsctl.source.assemble import assemble
from gdsctl.source.opening import open_source
from tests.builders import CR, RR, SV, UF
from tests.made import Made
from tests.sound import Sound

QUIET = {"fs.tmpfs", "fs.unsupported", "nvidia-fs.stats-disabled"}
"""Of every machine here: /dev/shm, a SATA root disk, counters off."""


@pytest.fixture
def sound(tmp_path: Path) -> Callable[..., Report]:
    def build(prepare: Callable[[Made], None] | None = None, **changes: Any) -> Report:
        made = Sound(tmp_path / "machine", **changes)
        if prepare:
            prepare(made)
        return pipeline.inspect(made.source())

    return build


def ids(report: Report) -> set[str]:
    return {finding.id for finding in report.findings} - QUIET


def found(report: Report, id_: str) -> Finding:
    return next(finding for finding in report.findings if finding.id == id_)


def route(report: Report, mount: str = "/mnt") -> tuple[str, set[str]]:
    chosen = [r for r in report.routes if r.mount == mount]
    assert len(chosen) == 1
    return chosen[0].route, set(chosen[0].blockers)


def test_the_sound_machine_has_nothing_wrong(sound: Callable[..., Report]) -> None:
    report = sound()
    assert ids(report) == set()
    assert route(report) == ("nvidia-fs", set())


class TestContainerHalfState:
    """A container sees the host's /proc/driver/nvidia-fs but was not given /dev/nvidia-fs*.

    libcufile believes the first, fails to open the second and goes on with descriptor 0: worse than having neither.
    """

    @staticmethod
    def container(root: Path, *, nvidia_fs: str | None, nodes: int) -> Report:
        (root / "machine").mkdir()
        (root / "machine/.dockerenv").touch()
        made = Sound(root / "machine", nvidia_fs=nvidia_fs, nodes=nodes)
        made.mount("/", "overlay", "overlay", "rw,relatime", "rw,lowerdir=/var/lib/docker/overlay2/l/AB,upperdir=/u")
        return pipeline.inspect(made.source())

    def test_loaded_without_nodes(self, tmp_path: Path) -> None:
        report = self.container(tmp_path, nvidia_fs="2.26.6", nodes=0)
        wanted = {"nvidia-fs.no-device-node", "container.no-nvidia-fs-device"}
        assert wanted <= ids(report)
        assert {found(report, id_).severity for id_ in wanted} == {"critical"}
        assert route(report)[0] == "none"
        assert wanted <= route(report)[1]

    def test_loaded_with_nodes(self, tmp_path: Path) -> None:
        report = self.container(tmp_path, nvidia_fs="2.26.6", nodes=16)
        assert report.container.kind == "docker"
        assert ids(report) == {"fs.overlay"}
        assert route(report) == ("nvidia-fs", set())
        assert route(report, "/")[0] != "nvidia-fs"

    def test_a_host_without_the_module_is_harmless(self, tmp_path: Path) -> None:
        report = self.container(tmp_path, nvidia_fs=None, nodes=0)
        assert ids(report) == {"fs.overlay", "nvidia-fs.not-loaded"}
        assert route(report) == ("compat", {"nvidia-fs.not-loaded"})

    def test_a_host_with_the_half_state(self, sound: Callable[..., Report]) -> None:
        report = sound(nodes=0)
        assert ids(report) == {"nvidia-fs.no-device-node"}
        assert route(report)[0] == "none"


class TestHookGenerations:
    """nvidia-fs 2.28.2 and newer asks for nvme_v2 where the block layer has the DMA map iterator, from Linux 6.17 on.

    DOCA 26.01's nvme exported v1 only; the drives looked unpatched although the module was a patched one.
    """

    def test_v1_exported_and_v2_wanted(self, sound: Callable[..., Report]) -> None:
        report = sound(kernel="6.17.0-14-generic", nvidia_fs="2.28.4", hooks="nvme_v1")
        assert ids(report) == {"nvme.symbol-mismatch"}
        assert route(report) == ("compat", {"nvme.symbol-mismatch"})
        said = found(report, "nvme.symbol-mismatch").message
        assert "nvme_v1_register_nvfs_dma_ops" in said
        assert "nvme_v2_register_nvfs_dma_ops" in said

    @pytest.mark.parametrize(
        ("kernel", "nvidia_fs", "hooks"),
        [
            ("6.17.0-14-generic", "2.28.4", "nvme_v2"),
            ("6.8.0-60-generic", "2.28.4", "nvme_v1"),  # no iterator
            ("6.8.0-60-generic", "2.26.6", "nvme_v1"),  # a driver that knows v1 only
        ],
    )
    def test_the_generation_wanted(self, sound: Callable[..., Report], kernel: str, nvidia_fs: str, hooks: str) -> None:
        report = sound(kernel=kernel, nvidia_fs=nvidia_fs, hooks=hooks)
        assert ids(report) == set()
        assert route(report) == ("nvidia-fs", set())

    def test_an_iterator_in_an_older_kernel(self, sound: Callable[..., Report]) -> None:
        """Backported: the symbol decides, not the version."""
        report = sound(
            lambda made: made.symbol("blk_rq_dma_map_iter_start"),
            kernel="6.8.0-60-generic",
            nvidia_fs="2.28.4",
            hooks="nvme_v1",
        )
        assert ids(report) == {"nvme.symbol-mismatch"}

    def test_stock_is_told_as_stock(self, sound: Callable[..., Report]) -> None:
        report = sound(hooks=None)
        assert ids(report) == {"nvme.unpatched"}
        assert route(report) == ("compat", {"nvme.unpatched"})


class TestDataOrdered:
    """data=ordered is ext4's default, so the kernel leaves it out of the table, and cuFile wants to read it there."""

    def test_not_shown(self, sound: Callable[..., Report]) -> None:
        report = sound(fstype="ext4", options="rw,stripe=32")
        assert ids(report) == {"fs.ext4-data-ordered"}
        assert route(report) == ("compat", {"fs.ext4-data-ordered"})
        assert (
            found(report, "fs.ext4-data-ordered").remedy.commands
            == (
                "umount -- /mnt",
                "mount -t ext4 -o rw,relatime,stripe=32,data=ordered -- /dev/nvme0n1 /mnt",  # no line in fstab, no UUID known
            )
        )

    def test_shown(self, sound: Callable[..., Report]) -> None:
        report = sound(fstype="ext4", options="rw,stripe=32,data=ordered")
        assert ids(report) == set()
        assert route(report) == ("nvidia-fs", set())

    def test_another_mode(self, sound: Callable[..., Report]) -> None:
        assert ids(sound(fstype="ext4", options="rw,data=writeback")) == {"fs.ext4-data-ordered"}


class TestCufileLog:
    """One number, 5030, for three causes. The lines before it tell them apart, so the number alone means nothing."""

    HEAD = " 02-12-2026 10:11:12:137 [pid=4711 tid=4711] "
    END = HEAD + "ERROR  cufio:340 cuFileHandleRegister error: internal error\n"

    @pytest.mark.parametrize(
        ("text", "meaning"),
        [
            ("ERROR  cufio-fs:327 error creating udev_device for block device dev_no: 0:412", "no-block-device"),
            ("ERROR  cufio-udev:67 udev property not found: ID_FS_USAGE nvme3n1p1", "udev-property-missing"),
            ("ERROR  cufio-fs:268 Unsupported block device: /dev/dm-3", "block-device-unsupported"),
            # near misses: a real device number says nothing of the kind, nor does the number at the end
            ("ERROR  cufio-fs:759 error getting volume attributes error for device: dev_no: 259:6", None),
            ("ERROR  cufio-fs:327 error creating udev_device for block device dev_no: 259:6", None),
            ("ERROR  cufio:311 cuFileHandleRegister error, failed to allocate file object", None),
        ],
    )
    def test_meaning(self, text: str, meaning: str | None) -> None:
        log = cufile_log.parse(f"{self.HEAD}{text}\n{self.END}")
        assert [entry.meaning for entry in log.entries] == [meaning, None]
        assert log.meanings == ({meaning: 1} if meaning else {})


class TestRefusedModule:
    """Look-alike lines of the kernel log with different remedies."""

    @staticmethod
    def logged(line: str) -> Callable[[Made], None]:
        def prepare(made: Made) -> None:
            made.outputs["dmesg"] = f"[   12.345678] {line}\n"

        return prepare

    def test_gpl_only(self, sound: Callable[..., Report]) -> None:
        line = "nvidia_fs: module using GPL-only symbols uses symbols nvidia_p2p_dma_unmap_pages from proprietary module nvidia."
        report = sound(self.logged(line), nvidia_fs=None, open_kernel=False)
        assert ids(report) == {"driver.proprietary", "nvidia-fs.not-loaded", "nvidia-fs.proprietary-driver"}
        assert "nvidia-fs.proprietary-driver" in route(report)[1]

    @pytest.mark.parametrize(
        "line",
        [
            "nvidia_fs: disagrees about version of symbol nvidia_p2p_get_pages",
            "nvidia_fs: Unknown symbol nvidia_p2p_get_pages (err -22)",
            "nvidia_fs: Unknown symbol nvidia_p2p_dma_map_pages (err 0)",
        ],
    )
    def test_symbols(self, sound: Callable[..., Report], line: str) -> None:
        report = sound(self.logged(line), nvidia_fs=None)
        assert ids(report) == {"nvidia-fs.not-loaded", "nvidia-fs.symbol-version"}
        assert any(line in evidence.value for evidence in found(report, "nvidia-fs.symbol-version").evidence)

    def test_unversioned_but_loaded(self, sound: Callable[..., Report]) -> None:
        """The kernel warns and goes on."""
        report = sound(self.logged("nvidia_fs: no symbol version for nvidia_p2p_get_pages"))
        assert ids(report) == set()

    def test_of_another_module(self, sound: Callable[..., Report]) -> None:
        report = sound(
            self.logged("nvidia_peermem: Unknown symbol ib_register_peer_memory_client (err 0)"), nvidia_fs=None
        )
        assert ids(report) == {"nvidia-fs.not-loaded"}


class TestAcs:
    """Redirection matters at the ports between GPU and drive, and only its bits; SrcValid alone redirects nothing."""

    def test_redirecting_ports_are_named_and_no_other(self, sound: Callable[..., Report]) -> None:
        report = sound(acs=(SV | RR | CR | UF, SV | RR | CR | UF))
        finding = found(report, "acs.redirect-on-path")
        assert ids(report) == {"acs.redirect-on-path"}
        assert set(finding.subject.split(", ")) == {"0000:42:00.0", "0000:42:01.0"}
        assert finding.remedy.persistent is False
        assert not any("0000:42:02.0" in command for command in finding.remedy.commands)
        assert route(report) == ("nvidia-fs", set())  # it is slower, not impossible

    def test_one_port(self, sound: Callable[..., Report]) -> None:
        assert found(sound(acs=(0, RR)), "acs.redirect-on-path").subject == "0000:42:01.0"

    @pytest.mark.parametrize("acs", [(SV, SV), (UF, SV | UF), (0, 0)])
    def test_other_bits(self, sound: Callable[..., Report], acs: tuple[int, int]) -> None:
        assert ids(sound(acs=acs)) == set()

    def test_from_pasted_lspci(self, tmp_path: Path, fixtures: Path) -> None:
        """The port above the GPU has ReqRedir+ CmpltRedir+; the root port has SrcValid+ only."""
        report = pasted(tmp_path, lspci=(fixtures / "parse/lspci/switch-root.txt").read_text())
        (physical, _) = report.pairs[:2]
        assert (physical.gpu, physical.peer) == ("0000:43:00.0", "0000:44:00.0")
        assert physical.acs_redirect_at == ("0000:42:00.0",)

    def test_gdscheck_lists_bridges_of_the_whole_machine(self, tmp_path: Path) -> None:
        """A bridge with any bit on, anywhere: no statement about a path, so no finding rests on it."""
        text = REPORT.replace(" IOMMU: disabled\n", " IOMMU: disabled\n Found ACS enabled for switch 0000:40:01.1\n")
        report = pasted(tmp_path, gdscheck=text)
        assert report.nvidia_fs.acs_bridges == ("0000:40:01.1",)
        assert "acs.redirect-on-path" not in ids(report)


# A report of 1.15 in the tool's layout, written for these tests.
REPORT = """\
 GDS release version: 1.15.1.6
 nvidia_fs version:  2.26 libcufile version: 2.12
 Platform: x86_64
 ============
 ENVIRONMENT:
 ============
 =====================
 DRIVER CONFIGURATION:
 =====================
 NVMe P2PDMA        : Unsupported
 NVMe               : Supported
 NVMeOF             : Unsupported
 NFS                : Unsupported
 Userspace RDMA     : Unsupported
 --Mellanox PeerDirect : Disabled
 =====================
 CUFILE CONFIGURATION:
 =====================
 properties.use_compat_mode : true
 properties.rdma_dynamic_routing : 0
 =========
 GPU INFO:
 =========
 GPU index 0 NVIDIA A100 80GB PCIe bar:1 bar size (MiB):131072 supports GDS, IOMMU State: Disabled
 ==============
 PLATFORM INFO:
 ==============
 IOMMU: disabled
 Nvidia Driver Info Status: Supported(Nvidia Open Driver Installed)
 Cuda Driver Version Installed:  13000
 Platform: G292-Z20-00, Arch: x86_64(Linux 6.8.0-111-generic)
 Platform verification succeeded
"""


def pasted(folder: Path, **texts: str) -> Report:
    """A snapshot that knows only what was pasted."""
    files = {}
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text)
        files[name] = str(folder / f"{name}.txt")
    assemble(str(folder / "pasted"), **files)  # type: ignore[arg-type]  # its named texts
    return pipeline.inspect(open_source(str(folder / "pasted")))


class TestFlattenedGdscheck:
    """A report whose blanks an issue tracker took away."""

    @pytest.mark.parametrize(
        "flatten",
        [
            lambda text: "\n".join(" ".join(line.split()) for line in text.splitlines()),
            lambda text: "\n\n".join(line.strip() for line in text.splitlines()),
            lambda text: "\n".join("> " + line for line in text.splitlines()),
        ],
        ids=["blanks-collapsed", "blank-lines", "quoted"],
    )
    def test_reads_the_same(self, tmp_path: Path, flatten: Callable[[str], str]) -> None:
        report = gdscheck.parse(flatten(REPORT))
        assert report.gds_release == "1.15.1.6"
        assert report.nvidia_fs_version == "2.26"
        assert {name: row.state for name, row in report.drivers.items()} == {
            "NVMe P2PDMA": "unsupported",
            "NVMe": "supported",
            "NVMeOF": "unsupported",
            "NFS": "unsupported",
            "Userspace RDMA": "unsupported",
        }
        assert report.verification == "succeeded"
        assert not report.truncated
        whole = pasted(tmp_path, gdscheck=flatten(REPORT))
        assert (whole.gds.version, whole.nvidia_fs.loaded, whole.iommu.state) == ("1.15.1", True, "off")

    def test_all_on_one_line(self) -> None:
        """Names hold blanks, so a cell's end is not certain: the head is, the rest is said to be missing."""
        report = gdscheck.parse(" ".join(REPORT.split()))
        assert report.gds_release == "1.15.1.6"
        assert report.truncated
        assert report.verification is None


class TestCompatEverywhere:
    """1.16 without nvidia-fs: every row says compat, and the only nvidia_fs number is the least one the library takes."""

    TEXT = (
        REPORT.replace("1.15.1.6", "1.16.0.49")
        .replace("nvidia_fs version:  2.26 libcufile version: 2.12", "nvidia_fs minimum version: 2.12")
        .replace(" NVMe P2PDMA        : Unsupported\n", "")
        .replace("Supported\n NVMeOF", "compat\n NVMeOF")
        .replace(" NVMeOF             : Unsupported", " NVMeOF             : compat")
        .replace(" NFS                : Unsupported", " NFS                : compat")
    )

    def test_the_minimum_is_not_the_loaded_version(self, tmp_path: Path) -> None:
        report = pasted(tmp_path, gdscheck=self.TEXT, mounts="/dev/nvme0n1 /mnt xfs rw,relatime 0 0\n")
        assert report.nvidia_fs.loaded is False
        assert report.nvidia_fs.version is None
        assert "nvidia-fs.version-too-old" not in ids(report)
        assert {name: list(row["modes"]) for name, row in report.gds.gdscheck["drivers"].items()} == {  # type: ignore[index]
            "NVMe": ["compat"],
            "NVMeOF": ["compat"],
            "NFS": ["compat"],
            "Userspace RDMA": [],
        }

    def test_loaded_beside_it(self, tmp_path: Path) -> None:
        text = self.TEXT.replace("nvidia_fs minimum", "nvidia_fs version:  2.27 nvidia_fs minimum")
        report = pasted(tmp_path, gdscheck=text)
        assert (report.nvidia_fs.loaded, report.nvidia_fs.version) == (True, "2.27")


class TestOldGpu:
    """Compute capability 5.0: the NVMe row says Supported all the same, and the platform fails."""

    TEXT = (
        REPORT.replace(
            " GPU index 0 NVIDIA A100 80GB PCIe bar:1 bar size (MiB):131072 supports GDS, IOMMU State: Disabled",
            " GPU 0 Quadro K1200 does not have supported architecture, has 5 requires >= 6\n"
            " Platform does not have any supported GPU!",
        )
        .replace("verification succeeded", "verification failed\n platform is not supported by cufile")
        .replace("1.15.1.6", "1.0.0.82")
    )

    def test_failure(self, tmp_path: Path) -> None:
        report = pasted(tmp_path, gdscheck=self.TEXT)
        check = report.gds.gdscheck
        assert check is not None
        assert check["verification"] == "failed"
        assert check["drivers"]["NVMe"]["state"] == "supported"
        assert [(gpu["index"], gpu["name"], gpu["supports_gds"]) for gpu in check["gpus"]] == [
            (0, "Quadro K1200", False)
        ]

    def test_of_a_gpu_that_is_new_enough(self, tmp_path: Path) -> None:
        check = pasted(tmp_path, gdscheck=REPORT).gds.gdscheck
        assert check is not None
        assert check["verification"] == "succeeded"
        assert check["gpus"][0]["supports_gds"] is True

    @pytest.mark.parametrize(("capability", "raised"), [("5.0", True), ("8.0", False)])
    def test_on_a_machine(self, sound: Callable[..., Report], capability: str, raised: bool) -> None:
        def prepare(made: Made) -> None:
            gpu = made.answers["nvml"]["gpus"][0]
            gpu.update(name="Quadro K1200" if raised else gpu["name"], compute_capability=capability)

        report = sound(prepare)
        assert ("gpu.compute-capability" in ids(report)) is raised
        assert route(report)[0] == ("compat" if raised else "nvidia-fs")


class TestGluedTopo:
    """Padding lost at a terminal's edge: NIC2 and NIC3 grow together, `NODEPIX` may be one split only."""

    HEAD = "\tGPU0\tNIC0\tNIC1\tNIC2\tNIC3\tCPU Affinity\tNUMA Affinity\n"

    def test_a_cell_with_one_reading(self, tmp_path: Path) -> None:
        text = self.HEAD + "GPU0\t X \tPIX\tNODE\tNODEPIX\t0-7\t0\n" + "NIC0\tPIX\t X \tNODE\tNODENODE\n"
        report = pasted(tmp_path, nvidia_smi_topo=text)
        assert [gpu.index for gpu in report.gpus] == [0]
        parsed = topo(text)
        assert parsed["GPU0"] == {"GPU0": "X", "NIC0": "PIX", "NIC1": "NODE", "NIC2": "NODE", "NIC3": "PIX"}

    def test_a_cell_missing_is_nowhere(self) -> None:
        """Four cells for five columns, none glued: which is missing is not certain, so none is moved into its place."""
        text = self.HEAD + "GPU0\t X \tPIX\tNODE\tPIX\t0-7\t0\n" + "NIC0\tPIX\t X \tNODE\tNODE\tPIX\n"
        row = topo(text)["GPU0"]
        assert row["NIC3"] is None
        assert topo(text)["NIC0"] == {"GPU0": "PIX", "NIC0": "X", "NIC1": "NODE", "NIC2": "NODE", "NIC3": "PIX"}


def topo(text: str) -> dict[str, dict[str, str | None]]:
    from gdsctl.parse import nvidia_smi_topo

    return nvidia_smi_topo.parse(text).matrix


class TestCounters:
    """`IO stats: Disabled` makes `Ops Read=0` mean nothing."""

    def test_disabled(self, sound: Callable[..., Report]) -> None:
        report = sound(stats=False)
        assert found(report, "nvidia-fs.stats-disabled").severity == "info"
        assert report.nvidia_fs.rw_stats_enabled is False

    def test_enabled(self, sound: Callable[..., Report]) -> None:
        report = sound(stats=True)
        assert "nvidia-fs.stats-disabled" not in {finding.id for finding in report.findings}
        assert report.nvidia_fs.rw_stats_enabled is True


class TestWrongNames:
    """A cufile.json written from what gdscheck prints: the library ignores every name of it without a word."""

    def configured(self, sound: Callable[..., Report], **properties: Any) -> Report:
        text = json.dumps({"properties": properties}, indent=2)
        return sound(lambda made: made.file("/etc/cufile.json", text))

    def test_labels_are_no_keys(self, sound: Callable[..., Report]) -> None:
        report = self.configured(sound, use_compat_mode=False, max_batch_io_size=64)
        assert ids(report) == {"cufile.label-not-key"}
        subjects = {finding.subject for finding in report.findings if finding.id == "cufile.label-not-key"}
        assert subjects == {"/properties/use_compat_mode", "/properties/max_batch_io_size"}
        assert "allow_compat_mode" in " ".join(finding.remedy.text + finding.message for finding in report.findings)

    def test_names_that_exist_nowhere(self, sound: Callable[..., Report]) -> None:
        report = self.configured(sound, max_device_cache_mb=128)
        assert ids(report) == {"cufile.unknown-key"}

    def test_the_real_names(self, sound: Callable[..., Report]) -> None:
        report = self.configured(sound, allow_compat_mode=True, io_batchsize=64, max_device_cache_size_kb=131072)
        assert ids(report) == set()

    def test_a_file_that_is_no_json_stops_every_process(self, sound: Callable[..., Report]) -> None:
        report = sound(lambda made: made.file("/etc/cufile.json", '{"properties": {"allow_compat_mode": true,}}'))
        assert ids(report) == {"cufile.syntax"}
        assert route(report)[0] == "none"


def test_pasted_text_of_another_tool_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        pasted(tmp_path, gdscheck="total 4\ndrwxr-xr-x 2 root root 4096 .\n")

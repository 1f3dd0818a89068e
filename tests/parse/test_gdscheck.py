from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdsctl.errors import InputError
from gdsctl.parse.gdscheck import Gdscheck, parse

REPORT = """\
 GDS release version: 1.13.1.7
 nvidia_fs version:  2.24 libcufile version: 2.12
 Platform: x86_64
 ============
 ENVIRONMENT:
 ============
 CUFILE_LOGGING_LEVEL : INFO
 =====================
 DRIVER CONFIGURATION:
 =====================
 NVMe P2PDMA        : Unsupported
 NVMe               : Supported
 SCSI               : Unsupported
 IBM Spectrum Scale : Unsupported
 --Mellanox PeerDirect : Disabled
 --rdma_device_status  : Up: 2 Down: 1
 =====================
 CUFILE CONFIGURATION:
 =====================
 properties.use_compat_mode : true
 properties.max_direct_io_size_kb : 16384
 properties.posix_pool_slab_size_kb : 4 1024 16384
 fs.lustre.posix_gds_min_kb: 0
 =========
 GPU INFO:
 =========
 GPU index 0 Example Card 80GB bar:1 bar size (MiB):131072 supports GDS, IOMMU State: Disabled
 ==============
 PLATFORM INFO:
 ==============
 Found ACS enabled for switch 86:10.0
 IOMMU: disabled
 Nvidia Driver Info Status: Supported(Nvidia Open Driver Installed)
 Cuda Driver Version Installed:  12080
 Platform: Example Board, Arch: x86_64(Linux 5.15.0-1-example)
 Platform verification succeeded
"""


def facts(report: Gdscheck) -> dict[str, Any]:
    """Every leaf of a report but the warnings, `path -> value`, without empties."""
    found: dict[str, Any] = {}

    def walk(path: str, value: Any) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                walk(f"{path}/{name}", inner)
        elif path == "/gpus":
            for gpu in value:
                walk(f"/gpus/{gpu['index']}", gpu)
        elif value is not None and value != []:
            found[path] = value

    document = msgspec.json.decode(msgspec.json.encode(report))
    del document["warnings"], document["truncated"]
    walk("", document)
    return found


def test_a_whole_report() -> None:
    # Each value read off REPORT above.
    report = parse(REPORT)
    assert facts(report) == {
        "/gds_release": "1.13.1.7",
        "/nvidia_fs_version": "2.24",
        "/libcufile_interface": "2.12",
        "/platform": "x86_64",
        "/environment/CUFILE_LOGGING_LEVEL": "INFO",
        "/drivers/NVMe P2PDMA/state": "unsupported",
        "/drivers/NVMe/state": "supported",
        "/drivers/SCSI/state": "unsupported",
        "/drivers/IBM Spectrum Scale/state": "unsupported",
        "/userspace_rdma/peer_direct": "Disabled",
        "/userspace_rdma/up": 2,
        "/userspace_rdma/down": 1,
        "/cufile/properties.use_compat_mode": "true",
        "/cufile/properties.max_direct_io_size_kb": "16384",
        "/cufile/properties.posix_pool_slab_size_kb": "4 1024 16384",
        "/cufile/fs.lustre.posix_gds_min_kb": "0",
        "/cufile_keys//properties/allow_compat_mode": True,
        "/cufile_keys//properties/max_direct_io_size_kb": 16384,
        "/cufile_keys//properties/posix_pool_slab_size_kb": [4, 1024, 16384],
        "/cufile_keys//fs/lustre/posix_gds_min_kb": 0,
        "/gpus/0/index": 0,
        "/gpus/0/name": "Example Card 80GB",
        "/gpus/0/bar1_mib": 131072,
        "/gpus/0/supports_gds": True,
        "/gpus/0/iommu": "Disabled",
        "/platform_info/iommu": "disabled",
        "/platform_info/acs_bridges": ["0000:86:10.0"],
        "/platform_info/nvidia_driver_status": "Supported(Nvidia Open Driver Installed)",
        "/platform_info/cuda_driver": "12080",
        "/platform_info/product": "Example Board",
        "/platform_info/arch": "x86_64",
        "/platform_info/kernel": "5.15.0-1-example",
        "/verification": "succeeded",
    }
    assert (report.truncated, report.warnings) == (False, ())


def test_token_layout(fixtures: Path) -> None:
    report = parse((fixtures / "parse/gdscheck/token_layout.txt").read_text())
    assert (report.nvidia_fs_version, report.nvidia_fs_minimum, report.libcufile_interface) == ("2.28", "2.12", None)
    assert report.environment == {"CUFILE_ENV_PATH_JSON": "/opt/ml/cufile.json"}
    assert (report.drivers["NVMe"].state, report.drivers["NVMe"].modes) == ("modes", ("nvfs", "p2pdma", "compat"))
    assert report.drivers["WekaFS"].state == "unsupported"
    assert (report.userspace_rdma.up, report.userspace_rdma.down, report.userspace_rdma.dmabuf) == (3, 1, "Disabled")
    assert report.cufile["properties.gpu_bounce_buffer_mode"] == "slab"
    assert report.cufile_keys == {
        "/properties/allow_compat_mode": False,
        "/properties/io_batchsize": 64,
        "/properties/gpu_bounce_buffer_slab_config/slab_size_kb": [512, 2048],
        "/properties/gpu_bounce_buffer_slab_config/slab_count": [7, 3],
        "/properties/rdma_load_balancing_policy": "MaxMinFit",
        "/properties/rdma_dynamic_routing": True,
        "/properties/rdma_dynamic_routing_order": ["GPU_MEM", "SYS_MEM"],
        "/fs/lustre/posix_gds_min_kb": 12,
        "/fs/nfs/mount_table": {
            "/mnt/a": {"rdma_dev_addr_list": ["192.0.2.1", "192.0.2.2"]},
            "/mnt/b": {"rdma_dev_addr_list": ["192.0.2.1", "192.0.2.2"]},
            "/mnt/c": {"rdma_dev_addr_list": ["192.0.2.3"]},
        },
        "/fs/gpfs/gds_async_support": True,
    }
    zero, one, two = report.gpus
    assert (zero.name, zero.bar1_mib, zero.supports_gds, zero.reason) == ("Model Zero", 0, False, "BAR1=0")
    assert (one.bar1_mib, one.supports_gds, one.iommu) == (None, True, "Pass-through or Enabled")
    assert (two.name, two.supports_gds, two.reason) == ("Model Two", False, "Model Not Supported")
    assert report.platform_info.acs_bridges == ("10000:e1:00.0", "0000:3a:04.1")
    assert report.platform_info.nvidia_driver_status == "Supported only on (nvidia-fs version <= 2.17.4)"
    assert report.platform_info.product == "Example Board, rev 3"
    assert report.verification == "failed"
    assert not report.truncated
    assert [warned.message for warned in report.warnings if "counts 4 GPUs" in warned.message]


def test_bad_config_instead_of_a_report(fixtures: Path) -> None:
    report = parse((fixtures / "parse/gdscheck/bad_config.txt").read_text())
    assert (report.verification, report.truncated, report.drivers) == (None, False, {})
    assert [warned.line for warned in report.warnings] == [1, 2, 3, 4]
    assert "invalid json config /etc/cufile.json" in report.warnings[0].message


def test_of_two_reports_the_last() -> None:
    report = parse(REPORT + REPORT.replace("1.13.1.7", "1.14.0.1").replace("Supported\n SCSI", "Unsupported\n SCSI"))
    assert (report.gds_release, report.drivers["NVMe"].state) == ("1.14.0.1", "unsupported")
    assert [warned.line for warned in report.warnings] == [len(REPORT.splitlines()) + 1]


def test_without_the_module_only_a_minimum_is_printed() -> None:
    report = parse(" GDS release version: 1.16.3.2\n nvidia_fs minimum version: 2.12\n")
    assert (report.nvidia_fs_version, report.nvidia_fs_minimum, report.truncated) == (None, "2.12", True)


def test_beta_slab_sizes_are_bytes() -> None:
    head = " GDS release version (beta): 0.9.3.1\n cuFile CONFIGURATION:\n"
    report = parse(head + " properties.use_compat_mode : 1\n properties.posix_pool_slab_size_kb : 8192 2097152 \n")
    assert report.cufile_keys == {
        "/properties/allow_compat_mode": True,
        "/properties/posix_pool_slab_size_kb": [8, 2048],
    }
    assert [warned.line for warned in report.warnings] == [4]


def test_the_last_line_without_an_end_has_no_value() -> None:
    report = parse("properties.use_compat_mode : true\nproperties.max_direct_io_size_kb : 163")
    assert report.cufile == {"properties.use_compat_mode": "true"}
    assert report.truncated


def test_a_number_cut_by_a_wrap_is_not_believed() -> None:
    report = parse("properties.use_compat_mode : true\nproperties.max_direct_io_size_kb : 163\n84\n")
    assert report.cufile == {"properties.use_compat_mode": "true"}
    assert [warned.line for warned in report.warnings] == [2, 3]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("GPU Index: 0 bar:1 bar size (MB):32768", (0, None, 32768, None, None)),
        ("GPU index 0 Card X bar:1 bar size (MiB):256 supports GDS", (0, "Card X", 256, True, None)),
        (
            "GPU 3 Card X does not have supported architecture, has 5 requires >= 6",
            (3, "Card X", None, False, "does not have supported architecture, has 5 requires >= 6"),
        ),
        ("GPU 1 Y NO GDS SUPPORT - Reason: arch=5 (needs >=6)", (1, "Y", None, False, "arch=5 (needs >=6)")),
        ("GPU index 0 X bar:1 bar size (MiB):65\n536 supports GDS", None),
        ("GPU index 0 X Y bar:1\nbar size (MiB):256 supports GDS", (0, "X Y", 256, True, None)),
    ],
)
def test_gpu_rows(line: str, expected: tuple[Any, ...] | None) -> None:
    gpus = parse(f"DRIVER CONFIGURATION:\n{line}\n").gpus
    assert [(gpu.index, gpu.name, gpu.bar1_mib, gpu.supports_gds, gpu.reason) for gpu in gpus] == (
        [] if expected is None else [expected]
    )


@pytest.mark.parametrize(
    "text", ["", "\n\n", "hello\nworld\n", '{"properties": {"allow_compat_mode": true}}', "\0" * 99]
)
def test_not_gdscheck(text: str) -> None:
    with pytest.raises(InputError):
        parse(text)


# file -> (release, nvidia_fs, minimum, interface, driver rows, cuFile rows, GPUs, verification, truncated), each counted
# in the sample by eye.
SAMPLES: dict[str, tuple[Any, ...]] = {
    "01": ("0.9.1.5", "2.4", None, "2.3", 8, 16, 1, "succeeded", False),
    "02": ("0.9.1.5", "2.4", None, "2.3", 8, 16, 1, "failed", False),
    "04": ("1.0.0.82", "2.7", None, "2.4", 10, 18, 1, "succeeded", False),
    "05": ("1.0.0.82", "2.7", None, "2.4", 10, 18, 2, "succeeded", False),
    "06": ("1.0.1.3", "2.7", None, "2.4", 10, 13, 0, None, True),
    "07": (None, None, None, None, 11, 10, 0, None, True),
    "09": ("1.5.0.59", "2.14", None, "2.12", 3, 0, 0, None, True),
    "11": ("1.7.1.12", "2.17", None, "2.12", 10, 11, 0, None, True),
    "12": ("1.10.0.4", "2.20", None, "2.12", 11, 29, 1, "succeeded", False),
    "13": ("1.11.1.6", "2.25", None, "2.12", 11, 29, 4, "succeeded", False),
    "14": ("1.13.0.11", "2.17", None, "2.12", 12, 31, 8, "succeeded", False),
    "15": ("1.13.0.11", "2.17", None, "2.12", 12, 3, 0, None, True),
    "16": ("1.13.1.3", "2.20", None, "2.12", 12, 31, 1, "succeeded", False),
    "18": ("1.13.1.3", None, None, "2.12", 12, 11, 0, None, True),
    "19": ("1.13.1.3", "2.24", None, "2.12", 4, 0, 0, None, True),
    "20": ("1.14.0.30", "2.24", None, "2.12", 13, 33, 2, "succeeded", False),
    "21": ("1.14.0.30", "2.25", None, "2.12", 13, 0, 0, None, True),
    "23": ("1.15.0.42", None, None, "2.12", 13, 33, 1, "succeeded", False),
    "24": ("1.15.0.42", "2.26", None, "2.12", 13, 0, 0, None, True),
    "26": ("1.16.0.49", "2.27", "2.12", None, 14, 41, 1, "succeeded", False),
    "27": ("1.16.0.49", None, "2.12", None, 13, 12, 0, None, True),
    "29": ("1.18.1.6", None, "2.12", None, 13, 0, 0, None, True),
    "30": (None, None, None, None, 1, 1, 0, "succeeded", False),
}


@pytest.mark.shared
@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_field_sample(shared: Path, name: str) -> None:
    lines = (shared / "field/gdscheck" / f"{name}.txt").read_text().splitlines(keepends=True)
    text = "".join(line for line in lines if not line.startswith("# "))
    report = parse(text)
    assert SAMPLES[name] == (
        report.gds_release,
        report.nvidia_fs_version,
        report.nvidia_fs_minimum,
        report.libcufile_interface,
        len(report.drivers),
        len(report.cufile),
        len(report.gpus),
        report.verification,
        report.truncated,
    )
    # An independent count: rows of the shape section.key.
    assert len(report.cufile) == len(re.findall(r"\b(?:properties|fs|profile|miscellaneous|execution|block)\.\w", text))
    assert len(report.cufile_keys) == len(report.cufile)


@pytest.mark.shared
def test_field_details(shared: Path) -> None:
    def sample(name: str) -> Gdscheck:
        return parse((shared / "field/gdscheck" / f"{name}.txt").read_text())

    assert sample("01").cufile_keys["/properties/posix_pool_slab_size_kb"] == [4, 1024, 16384]
    assert sample("15").userspace_rdma.up == 8
    assert sample("23").platform_info.product == "Standard PC (Q35 + ICH9, 2009)"
    assert sample("26").drivers["WekaFS"].modes == ("dmabuf", "compat")
    assert sample("26").drivers["FSx Lustre"].state == "supported"
    assert sample("29").userspace_rdma.health_monitor == "Not initialized"
    assert sample("30").platform_info.acs_bridges == ("0000:86:10.0", "0000:84:10.0", "0000:82:00.0", "0000:80:01.1")
    assert sample("30").drivers["NVMe"].state == "unsupported"
    assert sample("30").cufile_keys == {"/properties/allow_compat_mode": True}


LINES = REPORT.splitlines(keepends=True)
TRUTH = facts(parse(REPORT))


def harmless(text: str, quote: str, *, collapse: bool, strip: bool, bold: bool) -> str:
    out = []
    for line in text.splitlines():
        spaced = re.sub(r"(?<=\S) +", " ", line) if collapse else line
        bare = spaced.strip() if strip else spaced
        out.append(quote + (f"**{bare}**" if bold and bare else bare))
    return "\n".join(out) + "\n"


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["", "> ", "> > ", "\x1b[1m", "\t"]), st.booleans(), st.booleans(), st.booleans())
def test_pasting_changes_nothing(quote: str, collapse: bool, strip: bool, bold: bool) -> None:
    assert facts(parse(harmless(REPORT, quote, collapse=collapse, strip=strip, bold=bold))) == TRUTH


@settings(max_examples=150, deadline=None)
@given(st.sets(st.integers(0, len(LINES) - 1)), st.integers(0, len(REPORT)))
def test_lost_lines_and_a_cut_lose_facts_but_change_none(lost: set[int], cut: int) -> None:
    text = "".join(line for number, line in enumerate(LINES) if number not in lost)[:cut]
    try:
        report = parse(text)
    except InputError:
        return
    assert [fact for fact, value in facts(report).items() if TRUTH.get(fact) != value] == []
    assert report.truncated == ("verification succeeded" not in text)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([*LINES, "GPU", " : ", "/", "-", "\ud800", "\0", "\n", "Platform: "]), max_size=30))
def test_never_another_exception(parts: list[str]) -> None:
    try:
        report = parse("".join(parts))
    except InputError:
        return
    msgspec.json.encode(report)

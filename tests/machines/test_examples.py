"""The examples that ship: what must be concluded of each, worked out from how the machine is made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from fixtures import make_examples
from gdsctl import pipeline
from gdsctl.model.node import Report
from gdsctl.source.examples import list_examples
from gdsctl.source.opening import open_source

# mount -> (route of every GPU, ids that block it). Reasons:
#
# hgx-h100-vast    /        ext4 whose options show no data=ordered: no direct file, compat allowed by cufile.json
#                  /scratch xfs on NVMe, nvme has v1 hooks, nvidia-fs 2.25.7 asks for v1 and has it registered: direct
#                  /vast/kv NFS over RDMA through the VAST client's rpcrdma, which has hooks and is registered: direct
#                  /dev/shm tmpfs, which cuFile takes in compat mode only from 1.16 on; this is 1.14.1: refused
# pcie-nvme-raid   P2PDMA is asked for. Its keys are missing in the running driver (modprobe.d has them: a reload is due),
#                  and GDS 1.16 wants block.*.use_pci_p2pdma as well. RAID0 needs Linux 7.1 besides, drives behind a
#                  multipath head have no P2PDMA, and /mnt/nvme does not show data=ordered. The boot drive has one port, so
#                  no head. nvidia-fs is not loaded, so it is no way out: all compat. AMD host bridges are trusted.
# nvme-unpatched   nvidia-fs runs and the switch is right; only nvme exports no hooks. / is a SATA disk
# vm-flattened     nvidia-fs is not loaded and nvme has no hooks; the array itself (RAID0, MD_* known) would do
# vm-lab-switches  nvme of Debian has no hooks; no libcufile and no cufile.json were captured, so compat is the default
ROUTES: dict[str, dict[str, tuple[str, set[str]]]] = {
    "hgx-h100-vast": {
        "/": ("compat", {"fs.ext4-data-ordered"}),
        "/scratch": ("nvidia-fs", set()),
        "/vast/kv": ("nvidia-fs", set()),
        "/dev/shm": ("none", {"fs.tmpfs", "fs.unsupported"}),
    },
    "pcie-nvme-raid": {
        "/": ("compat", {"driver.registry-key-missing", "p2pdma.half-configured"}),
        "/mnt/raid": (
            "compat",
            {
                "driver.registry-key-missing",
                "p2pdma.filesystem-unsupported",
                "nvme.native-multipath",
            },
        ),
        "/mnt/nvme": (
            "compat",
            {
                "driver.registry-key-missing",
                "p2pdma.half-configured",
                "nvme.native-multipath",
                "fs.ext4-data-ordered",
            },
        ),
        "/dev/shm": ("compat", {"fs.tmpfs"}),
    },
    "nvme-unpatched": {
        "/": ("compat", {"fs.unsupported"}),
        "/mnt/nvme": ("compat", {"nvme.unpatched"}),
        "/dev/shm": ("none", {"fs.tmpfs", "fs.unsupported"}),
    },
    "vm-flattened": {
        "/": ("compat", {"fs.unsupported"}),
        "/mnt/resource_nvme": ("compat", {"nvidia-fs.not-loaded", "nvme.unpatched"}),
        "/dev/shm": ("none", {"fs.tmpfs", "fs.unsupported"}),
    },
    "vm-lab-switches": {
        "/": ("compat", {"fs.unsupported"}),
        "/ctl": ("compat", {"fs.unsupported"}),
        "/host": ("compat", {"fs.unsupported"}),
        "/usr/lib/modules": ("compat", {"fs.unsupported"}),
        "/dev/shm": ("compat", {"fs.tmpfs"}),
        "/run": ("compat", {"fs.tmpfs"}),
        "/tmp": ("compat", {"fs.tmpfs"}),
        "/mnt/ext4": ("compat", {"nvme.unpatched"}),
        "/mnt/xfs": ("compat", {"nvme.unpatched"}),
        "/mnt/raid0": ("compat", {"nvme.unpatched"}),
    },
}

# All findings beyond those that block a route above.
#   pci.cross-socket        a mount whose only drives are on the other socket for some GPUs
#   cufile.compat-...       P2PDMA asked for and compat allowed
#   iommu.*                 iommu=pt; intel_iommu=on in the lab
#   nvidia-fs.stats-...     rw_stats_enabled is 0, the module's default
#   pci.no-numa             four GPUs of the guest have numa_node -1, and the guest has two nodes
FURTHER = {
    "hgx-h100-vast": {"pci.cross-socket"},
    "pcie-nvme-raid": {"driver.pending-reboot", "pci.cross-socket", "iommu.passthrough", "cufile.compat-hides-failure"},
    "nvme-unpatched": {"nvidia-fs.stats-disabled"},
    "vm-flattened": {"pci.no-numa"},
    "vm-lab-switches": {"iommu.translated", "nvidia-fs.stats-disabled", "pci.cross-socket"},
}


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    return {name: pipeline.inspect(open_source(f"example:{name}")) for name in ROUTES}


def test_every_example_is_listed_and_says_whether_it_is_made_up() -> None:
    listed = {example.name: example for example in list_examples()}
    assert set(listed) == set(ROUTES)
    assert {name for name, example in listed.items() if not example.synthetic} == {"vm-lab-switches"}
    assert all(example.title for example in listed.values())


@pytest.mark.parametrize("name", ROUTES)
def test_routes(reports: dict[str, Report], name: str) -> None:
    report = reports[name]
    found = {(r.gpu, r.mount): (r.route, set(r.blockers)) for r in report.routes}
    assert found == {(gpu.address, mount): wanted for gpu in report.gpus for mount, wanted in ROUTES[name].items()}
    # Nobody documents cuFile on 9p, and tmpfs only from 1.16 on, while the lab has no library whose release would tell.
    open_ = {mount.target for mount in report.mounts if mount.fstype in ("9p", "tmpfs") and report.gds.version is None}
    assert {r.mount for r in report.routes if r.confidence != "certain"} == open_


@pytest.mark.parametrize("name", ROUTES)
def test_findings(reports: dict[str, Report], name: str) -> None:
    blocking = {id_ for _, ids in ROUTES[name].values() for id_ in ids}
    assert {finding.id for finding in reports[name].findings} == blocking | FURTHER[name]


@pytest.mark.parametrize("name", sorted(make_examples.MACHINES))
def test_synthetic_examples_say_so_in_the_report(reports: dict[str, Report], name: str) -> None:
    assert "synthetic: made by gdsctl's own generator" in (reports[name].source.note or "")


@pytest.mark.parametrize("name", ROUTES)
def test_the_document_fits_its_schema(reports: dict[str, Report], name: str) -> None:
    document = json.loads(msgspec.json.encode(reports[name]))
    schema: dict[str, Any] = msgspec.json.schema(Report)
    jsonschema.validate(document, schema)
    pointers = [unknown["pointer"] for unknown in document["unknowns"]]
    assert len(pointers) == len(set(pointers))


@pytest.mark.parametrize("name", sorted(make_examples.MACHINES))
def test_the_archive_replays_the_machine_as_it_is_made(reports: dict[str, Report], tmp_path: Path, name: str) -> None:
    """Fails where the generator or what gdsctl reads has changed: run fixtures/make_examples.py."""
    fresh = pipeline.inspect(make_examples.MACHINES[name](tmp_path))
    replayed = reports[name]
    source = msgspec.structs.replace(replayed.source, path=None)
    assert msgspec.structs.replace(replayed, source=source) == fresh


def test_making_an_example_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    for turn in ("first", "second"):
        source = make_examples.nvme_unpatched(tmp_path / turn)
        pipeline.capture(source, str(tmp_path / f"{turn}.tar.gz"), redact=False)
    assert (tmp_path / "first.tar.gz").read_bytes() == (tmp_path / "second.tar.gz").read_bytes()


def test_archives_are_small(fixtures: Path) -> None:
    folder = fixtures.parent / "gdsctl/examples"
    sizes = {path.name: path.stat().st_size for path in folder.glob("*.tar.gz")}
    assert sizes
    assert max(sizes.values()) < 300_000


class TestHgx:
    """Switch 0 of socket 0 holds GPU 0, 1 and a storage NIC, switch 2 of socket 1 holds GPU 4, 5 and the other."""

    def test_storage_nics_are_near_half_of_the_gpus(self, reports: dict[str, Report]) -> None:
        report = reports["hgx-h100-vast"]
        storage = {nic.address for nic in report.nics if nic.ipv4}
        assert [nic.ipv4 for nic in report.nics if nic.ipv4] == [("172.16.1.41",), ("172.16.1.42",)]
        index = {gpu.address: gpu.index for gpu in report.gpus}
        near = {index[pair.gpu] for pair in report.pairs if pair.peer in storage and pair.class_ == "PIX"}
        assert near == {0, 1, 4, 5}

    def test_compute_nics_share_the_switch_of_two_gpus(self, reports: dict[str, Report]) -> None:
        report = reports["hgx-h100-vast"]
        compute = {nic.address for nic in report.nics if nic.link_layer == "InfiniBand"}
        near = [pair for pair in report.pairs if pair.peer in compute and pair.class_ == "PIX"]
        assert len(compute) == 8
        assert len(near) == 8 * 2
        assert {pair.bottleneck_gbs for pair in near} == {50.0}  # 400 Gbit/s, below the link's 63

    def test_the_mount_stands_on_the_nics_of_its_localports(self, reports: dict[str, Report]) -> None:
        report = reports["hgx-h100-vast"]
        mount = next(mount for mount in report.mounts if mount.target == "/vast/kv")
        addresses = {nic.rdma_device: nic.ipv4 for nic in report.nics}
        assert [addresses[name] for name in mount.backing.nics] == [("172.16.1.41",), ("172.16.1.42",)]
        # Two NICs of 200 Gbit/s are 25 GB/s each, together below the GPU's link of Gen5 x16, 63.02 GB/s.
        assert {r.ceiling_gbs for r in report.routes if r.mount == "/vast/kv"} == {50.0}

    def test_every_gpu_has_eighteen_links_to_the_switches(self, reports: dict[str, Report]) -> None:
        links = {(link.peer, link.count) for gpu in reports["hgx-h100-vast"].gpus for link in gpu.nvlinks}
        assert links == {("switch", 18)}


def test_raid_reload_is_pending_with_both_values_shown(reports: dict[str, Report]) -> None:
    finding = next(f for f in reports["pcie-nvme-raid"].findings if f.id == "driver.pending-reboot")
    shown = " ".join(evidence.value for evidence in finding.evidence)
    assert "none" in shown
    assert "RMForceStaticBar1=1" in shown


def test_no_path_of_the_flattened_guest_is_called_near(reports: dict[str, Report]) -> None:
    report = reports["vm-flattened"]
    assert report.platform.virtualization == "microsoft"
    assert {pair.class_ for pair in report.pairs} == {"unknown"}
    assert len(report.pairs) == 8 * (8 + 9)


class TestLab:
    """Beside the capture, the tools of the same machine: lsblk and findmnt say what lies on what."""

    @pytest.mark.shared
    def test_mounts_as_findmnt_and_lsblk(self, reports: dict[str, Report], shared: Path) -> None:
        oracle = shared / "field/vm/switches-on/oracle"

        def flat(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return [found for row in rows for found in (row, *flat(row.get("children", [])))]

        mounted = {row["target"]: row for row in flat(json.loads((oracle / "findmnt.json").read_text())["filesystems"])}
        for mount in reports["vm-lab-switches"].mounts:
            row = mounted[mount.target]
            assert (mount.source, mount.fstype) == (row["source"], row["fstype"])
            assert sorted(mount.options) == sorted(row["options"].split(","))
        disks = json.loads((oracle / "lsblk.json").read_text())["blockdevices"]
        on_md = {row["name"] for row in flat(disks) for child in row.get("children", []) if child["name"] == "md0"}
        block = {device.name: device for device in reports["vm-lab-switches"].block}
        assert set(block["md0"].slaves) == on_md

"""What a finding says differently because of what else is wrong."""

from __future__ import annotations

import pytest

from gdsctl.assess.assessment import assess
from gdsctl.model.judgement import Finding
from gdsctl.model.node import Node
from gdsctl.model.software import Module, NvfsHook
from tests.assess.rules.nodes import NVME, P2PDMA_DWORDS, but, cufile, healthy, on_array

STOCK = NvfsHook(state="stock", wanted_symbol="nvme_v1_register_nvfs_dma_ops", registered=False)
UNPATCHED = but(healthy(), {"nvfs_hooks.nvme": STOCK, "nvidia_fs.registered": ("rpcrdma",)})


def one(node: Node, id_: str) -> Finding:
    (finding,) = [finding for finding in assess(node).findings if finding.id == id_]
    return finding


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (UNPATCHED, None),
        (but(UNPATCHED, {"platform.symbols": {"pci_p2pdma_add_resource": False}}), "without CONFIG_PCI_P2PDMA"),
        (but(UNPATCHED, {"nvidia_driver.version": "535.261.03"}), "older than P2PDMA asks for"),
        (but(UNPATCHED, {"gds.version": "1.11.1"}), "GDS 1.11.1 is older than 1.13"),
        (on_array(UNPATCHED), "needs Linux 7.1"),
        (but(UNPATCHED, {"pci.devices": ()}), None),  # where they sit is not known, so it may work
        (cufile(UNPATCHED, None), None),
    ],
)
def test_p2pdma_is_recommended_only_where_it_may_work(node: Node, reason: str | None) -> None:
    text = one(node, "nvme.unpatched").remedy.text
    assert ("set up P2PDMA" in text) is (reason is None)
    assert (reason or "mlnx-nvme") in text


def test_loading_nvidia_fs_is_not_told_as_if_it_helped_alone() -> None:
    away = {"nvidia_fs.loaded": False, "modules.nvidia_fs": Module(loaded=False)}
    assert not one(but(healthy(), away), "nvidia-fs.not-loaded").remedy.text.startswith("By itself")
    some = one(but(UNPATCHED, away), "nvidia-fs.not-loaded").remedy.text
    assert some.startswith("By itself this makes no more than /mnt/nfs direct: nvme has to carry")
    local = but(UNPATCHED, {**away, "mounts": UNPATCHED.mounts[:1]})
    assert "makes nothing direct" in one(local, "nvidia-fs.not-loaded").remedy.text


def test_keys_that_wait_for_the_next_load_are_not_to_be_written() -> None:
    unset = but(healthy(p2pdma=True), {"nvidia_driver.registry_dwords": {}})
    waiting = one(unset, "driver.registry-key-missing")
    assert waiting.remedy == one(unset, "driver.pending-reboot").remedy
    assert waiting.message.endswith("they already stand in modprobe.d, for the next load")
    first = next(iter(P2PDMA_DWORDS))
    part = one(but(unset, {"nvidia_driver.modprobe_registry_dwords": {first: "1"}}), "driver.registry-key-missing")
    assert part.message.endswith(f"{first} already stands in modprobe.d, for the next load")
    assert "Write the keys" in part.remedy.text
    boxed = one(but(unset, {"container.kind": "docker"}), "driver.registry-key-missing")
    assert "modprobe.d, for" not in boxed.message  # the image's files are not the host's


def test_a_key_of_cufile_json_needs_no_reboot_and_no_mention_where_no_key_helps() -> None:
    node = cufile(healthy(p2pdma=True), {"properties": {"use_pci_p2pdma": True}})
    remedy = one(node, "p2pdma.half-configured").remedy
    assert (remedy.needs_reboot, remedy.commands) == (False, ("gdsctl plan --mode p2pdma --emit cufile.json",))
    array = on_array(node)
    assert [f.subject for f in assess(array).findings if f.id == "p2pdma.half-configured"] == []
    assert one(array, "p2pdma.filesystem-unsupported").subject == NVME
    newer = but(array, {"platform.kernel_version": (7, 1, 0)})
    assert "block.raid.use_pci_p2pdma" in one(newer, "p2pdma.half-configured").message


@pytest.mark.parametrize(
    ("units", "virtualization", "word"),
    [
        (("dmar0", "dmar1"), "none", "intel_iommu=off"),
        (("dmar0",), "qemu", "intel_iommu=off"),  # QEMU emulates Intel's beside AMD's CPU
        (("ivhd0",), "none", "amd_iommu=off"),
        (("smmu3.0x1",), "none", "with iommu=off"),
        ((), "none", "amd_iommu=off"),
        ((), "kvm", "with iommu=off"),
    ],
)
def test_the_iommu_that_runs_decides_about_its_switch(units: tuple[str, ...], virtualization: str, word: str) -> None:
    changes = {"iommu.state": "translated", "iommu.units": units, "platform.cpu_vendor": "AuthenticAMD"}
    node = but(healthy(), {**changes, "platform.virtualization": virtualization})
    assert word in one(node, "iommu.translated").remedy.text

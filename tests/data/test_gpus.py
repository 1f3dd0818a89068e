"""Which row a GPU's name or PCI id falls into."""

from __future__ import annotations

from typing import Any

import pytest

from gdsctl.data import gpus

# Names as nvidia-smi or pci.ids print them; kind from NVIDIA's product lines, capability from its "CUDA GPUs" page.
NAMES = [
    ("NVIDIA H100 80GB HBM3", "datacenter", "9.0", True),
    ("NVIDIA H200", "datacenter", "9.0", True),
    ("NVIDIA A100-SXM4-80GB", "datacenter", "8.0", True),
    ("GA100 [A100 PCIe 40GB]", "datacenter", "8.0", True),
    ("NVIDIA B200", "datacenter", "10.0", True),
    ("NVIDIA B300 SXM6 AC", "datacenter", "10.3", True),
    ("NVIDIA L4", "datacenter", "8.9", True),
    ("NVIDIA L40S", "datacenter", "8.9", True),
    ("NVIDIA L40", "datacenter", "8.9", False),
    ("NVIDIA A40", "datacenter", "8.6", True),
    ("NVIDIA A30", "datacenter", "8.0", False),
    ("Tesla V100-SXM2-32GB", "datacenter", "7.0", False),
    ("Tesla T4", "datacenter", "7.5", False),
    ("Tesla M60", "datacenter", None, False),
    ("NVIDIA GH200 480GB", "datacenter", "9.0", False),
    ("NVIDIA GB200", "datacenter", "10.0", False),
    ("NVIDIA GB10", "integrated", "12.1", False),
    ("Orin (nvgpu)", "integrated", None, False),
    ("NVIDIA RTX A6000", "workstation", "8.6", False),
    ("NVIDIA RTX 6000 Ada Generation", "workstation", "8.9", False),
    ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "workstation", "12.0", False),
    ("Quadro RTX 8000", "workstation", "7.5", False),
    ("Quadro K1200", "workstation", None, False),
    ("NVIDIA GeForce RTX 4090", "geforce", None, False),
    ("NVIDIA TITAN RTX", "geforce", None, False),
    ("NVIDIA A40-8Q", "vgpu", None, False),
    ("GRID A100-10C", "vgpu", None, False),
    ("NVIDIA H100-1-10C", "vgpu", None, False),
]


@pytest.mark.parametrize(("name", "kind", "capability", "listed"), NAMES)
def test_names(name: Any, kind: Any, capability: Any, listed: Any) -> None:
    model = gpus.by_name(name)
    assert model is not None
    assert (model.kind, model.compute_capability, model.p2pdma_listed) == (kind, capability, listed)


@pytest.mark.parametrize("name", ["", "NVIDIA Graphics Device", "AMD Instinct MI300X", "x" * 100_000])
def test_unknown_names_have_no_row(name: Any) -> None:
    assert gpus.by_name(name) is None


def test_only_gpus_older_than_hopper_need_force_p2p() -> None:
    assert {m.name for m in gpus.models() if m.p2pdma_listed and m.force_p2p} == {"A100", "A40", "L4", "L40S"}
    assert {m.name for m in gpus.models() if m.p2pdma_listed and not m.force_p2p} == {
        "H100", "H200", "B100", "B200", "B300",
    }  # fmt: skip


def test_device_ids_are_unique_and_agree_with_pci_ids() -> None:
    ids = [device for model in gpus.models() for device in model.device_ids]
    assert len(ids) == len(set(ids))
    sxm = gpus.by_device_id("2330")  # pci.ids: GH100 [H100 SXM5 80GB]
    assert sxm is not None
    assert sxm.name == "H100"
    assert gpus.by_device_id("22A3") is None  # an NVSwitch


def test_every_row_names_its_source() -> None:
    assert all(model.source for model in gpus.models())

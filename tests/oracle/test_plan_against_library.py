"""Every cufile.json that a plan writes, opened by libcufile itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from gdsctl import emit
from gdsctl.assess.assessment import assess
from gdsctl.model.devices import Backing, LnetNi, Mount
from gdsctl.model.node import Node
from gdsctl.plan.cufile import Style
from gdsctl.plan.desired import plan
from gdsctl.plan.intent import Mode
from tests.planned_nodes import changed, example, local, unknown, wanted

if TYPE_CHECKING:
    from tests.oracle.conftest import Libcufile

pytestmark = pytest.mark.oracle

INTENTS = {
    "none": None,
    "strict": "compat: forbid\nrouting: [GPU_MEM_NVLINKS, SYS_MEM]\ntuning: {max_io_threads: 16, io_batchsize: 64}",
    "low": "tuning: {max_direct_io_size_kb: 256, posix_pool_slab_size_kb: [4, 8], posix_pool_slab_count: [2, 2]}",
}
STYLES: tuple[Style, ...] = ("explicit", "minimal")
AHEAD = {"block.nvme.use_pci_p2pdma", "block.nvmeof.use_pci_p2pdma", "block.raid.use_pci_p2pdma"}
MODES: tuple[Mode, ...] = ("nvidia-fs", "p2pdma", "compat")


def nodes() -> dict[str, Node]:
    hgx = example("hgx-h100-vast").node
    kv = next(mount for mount in hgx.mounts if mount.target == "/vast/kv")
    own = {ip: nic.rdma_device or "" for nic in hgx.nics for ip in nic.ipv4}
    # The library keeps the table by device number, so the two must be different file systems here as well.
    halves = tuple(
        msgspec.structs.replace(kv, target=target, backing=msgspec.structs.replace(kv.backing, nics=(own[address],)))
        for target, address in (("/dev/shm", "172.16.1.41"), ("/vast/2 '\"\\ünï", "172.16.1.42"))
    )
    clients = [
        Mount(
            target=target,
            source=f"172.16.9.9@{net}:/fs" if kind == "lustre" else "fs",
            fstype=kind,
            options=("rw",),
            backing=msgspec.convert({"kind": kind, "nics": [own[address]], "transport": "rdma"}, Backing),
        )
        for target, kind, net, address in (
            ("/dev/shm", "lustre", "o2ib", "172.16.1.41"),
            ("/vast/2 '\"\\ünï", "lustre", "o2ib1", "172.16.1.42"),
            ("/weka", "wekafs", "", "172.16.1.41"),
            ("/gpfs", "gpfs", "", "172.16.1.42"),
            ("/beegfs", "beegfs", "", "172.16.1.42"),
        )
    ]
    lnet = tuple(
        LnetNi(nid=f"{address}@{net}", net=net) for address, net in (("172.16.1.41", "o2ib"), ("172.16.1.42", "o2ib1"))
    )
    grace = local(arch="aarch64", hook="stock", gpu="NVIDIA GH200 480GB")
    return {
        "hgx": hgx,
        "hgx, a table by mount": changed(hgx, mounts=halves),
        "hgx, clients of its network": changed(hgx, mounts=tuple(clients), lnet=lnet),
        "raid": example("pcie-nvme-raid").node,
        "unpatched": example("nvme-unpatched").node,
        "vm": example("vm-flattened").node,
        "grace": changed(grace, gpus=tuple(msgspec.structs.replace(gpu, c2c=True) for gpu in grace.gpus)),
        "local": local(),
        "nothing known": unknown(),
    }


@pytest.mark.parametrize("intent", list(INTENTS))
def test_every_planned_file_is_clean(libcufile: Libcufile, intent: str) -> None:
    """Accepted, opened, nothing complained of, changed or unknown, for each node and mode; equal files are asked once."""
    release = ".".join(libcufile.version.split(".")[:2])
    minor = int(release.split(".")[1])
    seen: dict[str, str] = {}
    for name, node in nodes().items():
        as_if = changed(node, gds=msgspec.structs.replace(node.gds, version=f"{release}.0"))
        for mode in MODES:
            made = plan(assess(as_if), wanted(INTENTS[intent]), mode)
            seen.setdefault(emit.EMITTERS["cufile.json"].emit(made).content, f"{name}, {mode}")
    assert len(seen) >= 3
    for content, which in seen.items():
        answer = libcufile.ask(content, unknown=True)
        told = (which, answer.get("reason"), answer["complaints"], answer["changed"], answer["unknown"])
        assert answer["accepted"], told
        assert answer["opened"], told
        assert not answer["complaints"], told
        assert not answer["changed"], told
        # Written for the library that comes next: releases before 1.16 pass over the switches of P2PDMA's targets.
        assert not set(answer["unknown"]) - (AHEAD if minor < 16 else set()), told


@pytest.mark.parametrize("intent", ["none", "low"])
def test_both_styles_are_one_configuration(libcufile: Libcufile, intent: str) -> None:
    """What the library reads back is the same, whether or not its own defaults are spelt out."""
    release = ".".join(libcufile.version.split(".")[:2])
    for name, node in nodes().items():
        if name not in ("hgx", "raid", "local"):
            continue
        as_if = assess(changed(node, gds=msgspec.structs.replace(node.gds, version=f"{release}.0")))
        asked, effective = {}, {}
        for style in STYLES:
            made = plan(as_if, wanted(INTENTS[intent]), style=style)
            asked[style] = emit.EMITTERS["cufile.json"].emit(made).content
            answer = libcufile.ask(asked[style], unknown=True)
            assert answer["clean"] or set(answer["unknown"]) <= AHEAD, (name, style, answer["complaints"])
            effective[style] = answer["effective"], answer.get("parameters")
        assert len(asked["minimal"]) < len(asked["explicit"])
        assert effective["minimal"] == effective["explicit"]


def test_a_plan_for_an_unknown_release_opens_everywhere(libcufile: Libcufile) -> None:
    """Newer keys are passed over by an older library; no value may be outside its ranges."""
    made = plan(assess(local(version=None)), wanted())
    answer = libcufile.ask(emit.EMITTERS["cufile.json"].emit(made).content, unknown=False)
    assert answer["accepted"]
    assert answer["opened"]
    assert not answer["changed"] or set(answer["changed"]) <= {"logging.level"}

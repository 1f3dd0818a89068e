"""Pairs of which nvidia-smi's matrix is all that is known."""

from __future__ import annotations

import msgspec

from gdsctl.assess.config import Config
from gdsctl.assess.pairs import pairs
from gdsctl.assess.routing import near
from gdsctl.assess.view import View
from gdsctl.model.devices import Gpu, Nic
from gdsctl.model.node import Node, SourceInfo
from gdsctl.parse.nvidia_smi_topo import parse

TEXT = """\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV4\tPXB\tSYS\t0-31\t0
GPU1\tNV4\t X \tNODE\tSYS\t0-31\t0
NIC0\tPXB\tNODE\t X \tSYS
NIC1\tSYS\tSYS\tSYS\t X

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_bond_0
"""


def node_of(*gpus: Gpu, nics: tuple[Nic, ...] = ()) -> Node:
    topo = msgspec.to_builtins(parse(TEXT))
    return Node(source=SourceInfo(kind="assembled"), gpus=gpus, nics=nics, smi_topo=topo)


def test_the_class_alone_is_known():
    found = pairs(node_of(Gpu(index=0, address=None), Gpu(index=1, address="0000:1b:00.0")))
    assert [(pair.gpu, pair.peer, pair.class_) for pair in found] == [
        ("gpu0", "mlx5_0", "PXB"),
        ("gpu0", "mlx5_bond_0", "SYS"),
        ("0000:1b:00.0", "mlx5_0", "NODE"),
        ("0000:1b:00.0", "mlx5_bond_0", "SYS"),
    ]
    for pair in found:
        assert (pair.p2p, pair.meet, pair.acs_redirect_at, pair.bottleneck_gbs, pair.hops) == (
            "unknown",
            None,
            None,
            None,
            (),
        )
        assert "nvidia-smi" in pair.p2p_reason


def test_a_matrix_of_other_gpus_makes_no_pairs():
    assert pairs(node_of(Gpu(index=0, address=None))) == ()
    assert pairs(node_of()) == ()


def test_routing_goes_by_the_class():
    nics = (Nic(address=None, rdma_device="mlx5_0"), Nic(address=None, rdma_device="mlx5_9"))
    node = node_of(Gpu(index=0, address=None), Gpu(index=1, address=None), nics=nics)
    view = View(node, Config.of(node), pairs(node))
    assert [near(view, gpu, nics[0]) for gpu in view.gpus] == [True, False]
    assert near(view, view.gpus[0], nics[1]) is None

"""The matrix of `nvidia-smi topo -m` as a second opinion on the PCI tree, and the only one where no tree was captured."""

from __future__ import annotations

import re
from typing import Any, NamedTuple, get_args

from gdsctl.model.devices import Gpu
from gdsctl.model.judgement import Pair, PairClass
from gdsctl.model.node import Node

_GPU = re.compile(r"GPU(\d{1,5})")
_NVME = re.compile(r"NVMe\d{1,5}")
_CLASSES: frozenset[str] = frozenset(get_args(PairClass)) - {"unknown"}


class Cell(NamedTuple):
    """A GPU and a device as nvidia-smi calls them; `device`: the RDMA device's name where the legend tells it."""

    gpu: Gpu
    device: str
    nvme: bool
    class_: PairClass


def cells(node: Node) -> tuple[Cell, ...]:
    """GPU x NIC (and NVMe) cells that are certain. None where the GPUs are not the node's, so that numbers mean others."""
    topo = node.smi_topo or {}
    gpus = {gpu.index: gpu for gpu in node.gpus if gpu.kind != "other-accelerator"}
    rows = {name: int(match[1]) for name in topo.get("devices", ()) if (match := _GPU.fullmatch(name))}
    if set(rows.values()) != set(gpus):
        return ()
    legend: dict[str, str] = topo.get("nic_legend", {})
    return tuple(
        Cell(gpus[index], legend.get(column, column), _NVME.fullmatch(column) is not None, class_)
        for name, index in rows.items()
        for table in (topo.get("matrix"), topo.get("nvme_matrix"))
        for column, class_ in _row(table, name).items()
        if column not in rows and class_ in _CLASSES
    )


def _row(table: Any, name: str) -> dict[str, Any]:
    return (table or {}).get(name) or {}


def pairs_without_tree(node: Node) -> tuple[Pair, ...]:
    """Pairs of a node of which no PCI function is known: the class alone. A GPU without an address goes by its number."""
    return tuple(
        Pair(
            gpu=cell.gpu.address or f"gpu{cell.gpu.index}",
            peer=cell.device,
            peer_kind="nvme" if cell.nvme else "nic",
            class_=cell.class_,
            p2p_reason="the class is nvidia-smi's; the PCI functions between are not known",
        )
        for cell in cells(node)
    )

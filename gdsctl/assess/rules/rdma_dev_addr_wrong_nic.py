from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.lint_findings import told
from gdsctl.assess.rule import Rule, Verdict
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    yield from told(view, "rdma.dev-addr-wrong-nic")


RULE = Rule(
    id="rdma.dev-addr-wrong-nic",
    severity="warning",
    problem="an RDMA address is on a NIC that cannot carry the traffic",
    why="The list names this node's addresses on RDMA interfaces that the mount uses. libcufile does not check it: with another NIC's address it measures distances to the wrong card, or finds no device at all.",
    look_at=("ip -br address", "ibdev2netdev", "gdsctl lint"),
    remedy=Remedy(text="Name the addresses of the RDMA interfaces that the mount goes over."),
    source="NVIDIA GDS Configuration Guide, rdma_dev_addr_list; libcufile 1.11 to 1.20, observed",
    check=check,
)

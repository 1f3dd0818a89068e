from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.lint_findings import told
from gdsctl.assess.rule import Rule, Verdict
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    yield from told(view, "rdma.dev-addr-not-local")


RULE = Rule(
    id="rdma.dev-addr-not-local",
    severity="error",
    problem="an address in rdma_dev_addr_list is not on this node",
    why="The list holds this client's own addresses, not the server's; an address that no interface here has is counted as down and never used.",
    look_at=("gdsctl lint", "ip -4 addr", "gdscheck -p | grep rdma"),
    remedy=Remedy(text="Use the IPv4 addresses of this node's RDMA interfaces."),
    source="libcufile 1.11 to 1.20, observed; NVIDIA GDS Configuration Guide",
    check=check,
)

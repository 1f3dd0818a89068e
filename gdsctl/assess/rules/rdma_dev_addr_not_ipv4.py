from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.lint_findings import told
from gdsctl.assess.rule import Rule, Verdict
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    yield from told(view, "rdma.dev-addr-not-ipv4")


RULE = Rule(
    id="rdma.dev-addr-not-ipv4",
    severity="error",
    problem="an entry of rdma_dev_addr_list is no IPv4 address",
    why="Up to 1.15 anything else is unusable; from 1.16 on it is taken for the name of an interface.",
    look_at=("gdsctl lint", "ip -4 addr", "gdscheck -p | grep rdma"),
    remedy=Remedy(text="Write IPv4 addresses."),
    source="libcufile 1.11 to 1.20, observed; NVIDIA GDS Configuration Guide",
    check=check,
)

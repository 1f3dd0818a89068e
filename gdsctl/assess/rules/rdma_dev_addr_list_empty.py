from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.lint_findings import told
from gdsctl.assess.rule import Rule, Verdict
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    yield from told(view, "rdma.dev-addr-list-empty")


RULE = Rule(
    id="rdma.dev-addr-list-empty",
    severity="warning",
    problem="no RDMA addresses are configured for a file system that needs them",
    why="User-space RDMA (WekaFS, Storage Scale) and dynamic routing choose NICs only from rdma_dev_addr_list; with an empty list user-space RDMA is off and routing has nothing to choose.",
    look_at=("gdsctl lint", "ip -4 addr", "gdscheck -p | grep rdma"),
    remedy=Remedy(text="List the IPv4 addresses of the NICs that the mount uses (gdsctl plan --emit cufile.json)."),
    source="libcufile 1.11 to 1.20, observed; NVIDIA GDS Configuration Guide",
    not_to_conclude="For local NVMe the list does not matter.",
    check=check,
)

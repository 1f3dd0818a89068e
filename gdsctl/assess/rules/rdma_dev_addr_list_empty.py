from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gdsctl.assess.lint_findings import told
from gdsctl.assess.rule import Cannot, Rule, Scope, Verdict
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    """User-space RDMA is off without an address; dynamic routing only loses its choice."""
    users = frozenset(view.user_rdma_targets)
    if users and not view.config.known:
        yield Cannot(
            subject="rdma_dev_addr_list",
            fact="whether cufile.json names an RDMA address is not known",
            settle_with="cat /etc/cufile.json",
            scope=Scope(mounts=users),
        )
    for verdict in told(view, "rdma.dev-addr-list-empty"):
        yield msgspec.structs.replace(verdict, scope=Scope(mounts=users), blocks=("rdma",) if users else ())


RULE = Rule(
    id="rdma.dev-addr-list-empty",
    severity="warning",
    problem="no RDMA addresses are configured for a file system that needs them",
    why="User-space RDMA (WekaFS, Storage Scale) and dynamic routing choose NICs only from rdma_dev_addr_list; with an empty list user-space RDMA is off and routing has nothing to choose.",
    look_at=("gdsctl lint", "ip -4 addr", "gdscheck -p | grep rdma"),
    remedy=Remedy(text="List the IPv4 addresses of the NICs that the mount uses (gdsctl plan --emit cufile.json)."),
    source="libcufile 1.11 to 1.20, observed; NVIDIA GDS Configuration Guide",
    not_to_conclude="For local NVMe the list does not matter.",
    blocks=("rdma",),
    check=check,
)

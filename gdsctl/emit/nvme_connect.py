"""`nvme connect` lines for a shell, and what makes them hold over a boot."""

from __future__ import annotations

from gdsctl.emit.comment import comment
from gdsctl.plan import nvme_of
from gdsctl.plan.desired import Plan
from gdsctl.plan.documents import Artifact


def applies(plan: Plan) -> bool:
    return bool(plan.nvme_of.connections)


def emit(plan: Plan) -> Artifact:
    """Commands for root; what is connected already is a comment."""
    lines = ["#!/bin/sh", comment("NVMe over RDMA: before the mounts that rest on it")]
    if any(not connection.stands for connection in plan.nvme_of.connections):
        lines.append("set -e")
    reasons: dict[str, str] = {}
    to_make = dict(nvme_of.commands(plan.nvme_of))
    for connection in plan.nvme_of.connections:
        lines.append(comment(connection.why))
        if connection.stands:
            lines += map(comment, (connection.command, *nvme_of.at_boot(connection)))
        else:
            lines += to_make[connection]
        reasons[str(len(lines))] = connection.why
    if not plan.nvme_of.connections:
        lines[1:] = [comment("no mount of the plan rests on NVMe over RDMA")]
    return Artifact(path="nvme-connect.sh", content="\n".join(lines) + "\n", reasons=reasons)

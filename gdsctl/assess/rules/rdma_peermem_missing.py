from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Cannot, Fail, Rule, Scope, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    users = view.user_rdma_targets
    if not users or not view.gpus:
        return
    scope = Scope(mounts=frozenset(users))
    peer_type = view.config.get("properties.rdma_peer_type")
    if peer_type == "dmabuf":
        return
    module = view.node.modules.get("nvidia_peermem")
    if module is None or module.loaded is None:
        yield Cannot(
            subject="nvidia_peermem",
            fact="whether nvidia_peermem is loaded is not known",
            settle_with="grep nvidia_peermem /proc/modules",
            scope=scope,
        )
    elif not module.loaded and not view.config.known:
        yield Cannot(
            subject="nvidia_peermem",
            fact="nvidia_peermem is not loaded, and whether cufile.json chooses dma-buf instead is not known",
            settle_with="cat /etc/cufile.json",
            scope=scope,
        )
    elif not module.loaded:
        yield Fail(
            subject="nvidia_peermem",
            message="nvidia_peermem is not loaded, and rdma_peer_type is not dmabuf",
            evidence=seen("nvidia_peermem loaded", "no", "/proc/modules"),
            scope=scope,
        )


RULE = Rule(
    id="rdma.peermem-missing",
    severity="error",
    problem="user-space RDMA cannot register GPU memory",
    why="WekaFS and Storage Scale reach the GPU by RDMA from user space: the NIC's driver must learn of GPU memory, through "
    "nvidia_peermem or dma-buf.",
    look_at=("grep nvidia_peermem /proc/modules", "gdscheck -p | grep -A6 'Userspace RDMA'"),
    remedy=Remedy(
        text="Load nvidia_peermem, at boot too; or set properties.rdma_peer_type to dmabuf where driver and NIC support it.",
        commands=("modprobe nvidia_peermem", "echo nvidia_peermem > /etc/modules-load.d/nvidia-peermem.conf"),
        risk="none",
    ),
    not_to_conclude="NFS, Lustre, BeeGFS and NVMe-oF do not need it.",
    source="GDS Troubleshooting Guide, user-space RDMA; libcufile log text 'nvidia_peermem.ko is not loaded'",
    blocks=("rdma",),
    check=check,
)

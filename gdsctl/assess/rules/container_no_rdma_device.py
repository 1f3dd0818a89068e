from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Cannot, Fail, Rule, Scope, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    """Matters where libcufile itself does the RDMA; for NFS and Lustre the host's kernel does it."""
    container = view.node.container
    mounts = view.user_rdma_targets
    if not view.in_container or view.gpuless or not mounts:
        return
    scope = Scope(mounts=frozenset(mounts))
    if container.rdma_nodes is None:
        yield Cannot(
            subject="/dev/infiniband",
            fact="whether the container has RDMA devices is not known",
            settle_with=view.settle("container", "rdma_nodes", "ls /dev/infiniband"),
            scope=scope,
        )
    elif not any(name.startswith("uverbs") for name in container.rdma_nodes):
        yield Fail(
            subject="/dev/infiniband",
            message=f"the container has no /dev/infiniband/uverbs*, which RDMA from user space needs: {', '.join(mounts)}",
            evidence=seen("/dev/infiniband", ", ".join(container.rdma_nodes) or "nothing", "/dev"),
            scope=scope,
        )


RULE = Rule(
    id="container.no-rdma-device",
    severity="error",
    problem="the container has no RDMA device",
    why="For WekaFS and Storage Scale libcufile_rdma opens the NIC itself, through /dev/infiniband/uverbsN and rdma_cm.",
    look_at=("ls /dev/infiniband   # in the container", "ibv_devices   # in the container"),
    remedy=Remedy(
        text="Give the devices: --device /dev/infiniband, NVIDIA_MOFED=enabled with the container toolkit's runtime, or the "
        "resource of your RDMA device plugin.",
        risk="the container is started anew",
    ),
    not_to_conclude="NFS over RDMA and Lustre need none of it: there the host's kernel does the RDMA.",
    source="NVIDIA container toolkit, internal/discover/mofed.go: uverbs* and rdma_cm; rdma-core, libibverbs",
    blocks=("rdma",),
    check=check,
)

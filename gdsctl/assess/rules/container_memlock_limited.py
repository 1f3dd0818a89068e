from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Cannot, Fail, Rule, Scope, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy

_UNLIMITED = 2**63 - 1


def check(view: View) -> Iterator[Verdict]:
    container = view.node.container
    mounts = view.user_rdma_targets
    if not view.in_container or view.gpuless or not mounts or container.ipc_lock:
        return
    scope = Scope(mounts=frozenset(mounts))
    limit = container.memlock_bytes
    if limit is None or (container.ipc_lock is None and limit < _UNLIMITED):
        yield Cannot(
            subject="memlock",
            fact="how much memory the container may lock is not known",
            settle_with=view.settle("container", "memlock_bytes", "ulimit -l   # in the container"),
            scope=scope,
        )
    elif limit < _UNLIMITED:
        yield Fail(
            subject="memlock",
            message=f"the container may lock {limit} bytes of memory, without CAP_IPC_LOCK: RDMA cannot register more",
            evidence=seen("RLIMIT_MEMLOCK", limit, next(iter(container.evidence), "/proc/self/limits")),
            scope=scope,
        )


RULE = Rule(
    id="container.memlock-limited",
    severity="warning",
    problem="the container may lock little memory",
    why="Memory that an RDMA NIC reads or writes is pinned, and counts against the limit on locked memory unless the process "
    "has CAP_IPC_LOCK. Registration fails with ENOMEM where the limit is reached.",
    look_at=("ulimit -l   # in the container", "grep CapEff: /proc/self/status   # bit 14 is CAP_IPC_LOCK"),
    remedy=Remedy(
        text="Lift it: docker run --ulimit memlock=-1, or --cap-add IPC_LOCK; in a pod, capabilities: add: [IPC_LOCK].",
        risk="the container is started anew, and may pin all memory",
    ),
    not_to_conclude="Local NVMe does not hang on it: cuFile's own buffers are pinned by the NVIDIA driver.",
    source="Linux drivers/infiniband/core/umem.c, ib_umem_get: RLIMIT_MEMLOCK unless CAP_IPC_LOCK",
    check=check,
)

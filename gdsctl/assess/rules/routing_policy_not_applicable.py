from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.routing import applicable, far_gpus, is_routed
from gdsctl.assess.rule import Fail, Rule, Scope, Verdict, seen
from gdsctl.assess.view import View, gpu_key
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    if view.config.flag("properties.rdma_dynamic_routing") is not True:
        return
    order = view.config.get("properties.rdma_dynamic_routing_order") or ()
    for storage in view.storages:
        far = far_gpus(view, storage) if is_routed(storage) else None
        if not far:
            continue
        nics = view.nics(storage.mount)
        for policy in order:
            if policy == "P2P":
                continue
            cannot = [gpu for gpu in far if policy not in applicable(view, gpu, nics)]
            if cannot:
                numbers = ", ".join(str(gpu.index) for gpu in cannot)
                yield Fail(
                    subject=storage.mount.target,
                    message=f"policy {policy} cannot work for GPU {numbers} and {storage.mount.target}",
                    evidence=seen(
                        "order",
                        " ".join(map(str, order)),
                        view.config.origin_of("/properties/rdma_dynamic_routing_order") or "library default",
                    ),
                    scope=Scope(gpus=frozenset(map(gpu_key, cannot)), mounts=frozenset({storage.mount.target})),
                    severity="warning" if set(order) <= {policy, "P2P"} else "info",
                )


RULE = Rule(
    id="routing.policy-not-applicable",
    severity="info",
    otherwise={"warning": "where the order names no other policy"},
    problem="a routing policy cannot work on this node",
    why="GPU_MEM_NVLINKS needs NVLink to a GPU that shares a root port with the NIC, GPU_MEM such a GPU; a policy that cannot "
    "work is passed over, and without another the traffic crosses the root complex.",
    look_at=("nvidia-smi topo -m", "grep 'dynamic routing policy' cufile.log"),
    remedy=Remedy(text="Name only policies that apply (gdsctl plan works them out); SYS_MEM always does."),
    source="GDS Overview Guide, dynamic routing; libcufile log texts 'cannot be enforced'",
    check=check,
)

from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.routing import far_gpus, is_routed
from gdsctl.assess.rule import Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    if view.config.flag("properties.rdma_dynamic_routing") is not True or not view.gpus:
        return
    routed = [storage for storage in view.storages if is_routed(storage)]
    reason = None
    if len(view.gpus) == 1:
        reason = "the node has one GPU, so no other can stage for it"
    elif not routed and view.mounts:
        reason = "no mount is a network file system over RDMA"
    elif routed and all(far_gpus(view, storage) == () for storage in routed):
        reason = "every GPU has a NIC of the mount under its own root port"
    if reason:
        yield Fail(
            subject="properties.rdma_dynamic_routing",
            message=f"dynamic routing is on but changes nothing: {reason}",
            evidence=seen(
                "rdma_dynamic_routing",
                "true",
                view.config.origin_of("/properties/rdma_dynamic_routing") or "cufile.json",
            ),
        )


RULE = Rule(
    id="routing.useless",
    severity="info",
    problem="dynamic routing is on where it has nothing to do",
    why="It stages the bytes of GPUs that have no NIC near by in a GPU that has; where all paths are short, or there is no "
    "such mount, it only adds a look-up.",
    look_at=("nvidia-smi topo -m", "gdscheck -p | grep routing"),
    remedy=Remedy(text="Leave properties.rdma_dynamic_routing false."),
    source="GDS Overview Guide, dynamic routing",
    check=check,
)

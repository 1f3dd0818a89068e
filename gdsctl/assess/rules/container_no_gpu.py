from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Cannot, Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    container = view.node.container
    if not view.in_container or not view.gpus:
        return
    if container.has_gpu_nodes is False:
        yield Fail(
            subject="/dev/nvidia*",
            message="the container is given none of the node's GPUs",
            evidence=seen("/dev/nvidia0 ...", "none", next(iter(container.evidence), "/dev")),
        )
    elif container.has_gpu_nodes is None:
        yield Cannot(
            subject="/dev/nvidia*",
            fact="whether the container gets GPUs is not known",
            settle_with=view.settle("container", "has_gpu_nodes", "ls /dev/nvidia[0-9]*"),
            blocks=(),
        )


RULE = Rule(
    id="container.no-gpu",
    severity="error",
    problem="the container has no GPU",
    why="Sysfs shows the node's GPUs in every container, but without /dev/nvidiaN CUDA finds none, and cuFile needs CUDA.",
    look_at=("nvidia-smi -L   # in the container",),
    remedy=Remedy(
        text="Ask for GPUs: --gpus all, --device nvidia.com/gpu=all (CDI), or the resource nvidia.com/gpu in a pod.",
        risk="the container is started anew",
    ),
    source="NVIDIA container toolkit documentation, GPU enumeration",
    blocks=("nvidia-fs", "p2pdma", "c2c", "rdma", "compat"),
    check=check,
)

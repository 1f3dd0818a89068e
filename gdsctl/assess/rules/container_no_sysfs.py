from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Cannot, Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    container = view.node.container
    if not view.in_container or view.gpuless:
        return
    if container.has_sysfs is False:
        yield Fail(
            subject="/sys",
            message="the container has no /sys: libcufile finds neither GPUs nor the devices below files",
            evidence=seen("/sys/bus/pci/devices", "missing", next(iter(container.evidence), "file system")),
        )
    elif container.has_sysfs is None:
        yield Cannot(
            subject="/sys",
            fact="whether the container has /sys is not known",
            settle_with=view.settle("container", "has_sysfs", "ls /sys/bus/pci/devices"),
            blocks=(),
        )


RULE = Rule(
    id="container.no-sysfs",
    severity="error",
    problem="the container has no /sys",
    why="At its start libcufile walks /sys/bus/pci/devices and /sys/class, and for each file it registers it looks up "
    "/sys/dev/block/MAJOR:MINOR.",
    look_at=("ls /sys/bus/pci/devices | head -3   # in the container",),
    remedy=Remedy(
        text="Mount sysfs at /sys. Read-only, as docker and Kubernetes do it, is enough.",
        risk="the container is started anew",
    ),
    not_to_conclude="That /sys is read-only is no fault: libcufile only reads there.",
    source="libcufile 1.14 and 1.20, observed: what is opened at start and by cuFileHandleRegister; OCI runtime specification, "
    "config-linux.md, default filesystems",
    blocks=("nvidia-fs", "p2pdma", "c2c", "rdma"),
    check=check,
)

from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    container = view.node.container
    if not view.in_container or container.toolkit_gds is not True:
        return
    if container.nvidia_fs_nodes != 0 and view.node.nvidia_fs.loaded is not False:
        return
    lost = [
        path
        for path, stands in (("/run/udev", container.has_udev_db), ("/etc/cufile.json", container.has_cufile_json))
        if stands is not True
    ]
    if lost:
        yield Fail(
            subject="NVIDIA_GDS",
            message=f"without /dev/nvidia-fs* on the node the container toolkit does not mount {' and '.join(lost)} either",
            evidence=seen("/dev/nvidia-fs*", "none on the node", "/dev"),
        )


RULE = Rule(
    id="container.toolkit-skips-mounts",
    severity="error",
    problem="the container toolkit's gds mode gives nothing on a node without nvidia-fs",
    why="NVIDIA_GDS=enabled, CDI's nvidia.com/gds and the device plugin's GDS_ENABLED look for /dev/nvidia-fs* first and skip "
    "/run/udev and /etc/cufile.json where there is none. A node that goes direct by P2PDMA alone has none, yet cuFile needs "
    "both mounts there just the same.",
    look_at=("ls /dev/nvidia-fs*   # on the node", "ls -d /run/udev/data /etc/cufile.json   # in the container"),
    remedy=Remedy(
        text="Mount both yourself: -v /run/udev:/run/udev:ro -v /etc/cufile.json:/etc/cufile.json:ro, or hostPath volumes.",
        risk="the container is started anew, and sees names and serial numbers of the host's devices",
    ),
    not_to_conclude="nvidia-fs need not be loaded for it: P2PDMA does without.",
    source="NVIDIA container toolkit, internal/discover/gds.go, Mounts(); NVIDIA k8s-device-plugin, internal/cdi/cdi.go: a CDI "
    "spec without edits is left out",
    check=check,
)

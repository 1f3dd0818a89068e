from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Cannot, Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    """The overlay at `/` is there in nearly every container, and no fault where the data lie on a volume."""
    if not view.in_container or view.gpuless:
        return
    volumes = [storage for storage in view.storages if storage.mount.target not in ("/", "/etc", "/etc/hosts")]
    if any(s.takes_nvidia_fs or s.takes_p2pdma or s.takes_user_rdma for s in volumes):
        return
    if any(gap.section == "mounts" and gap.key is None for gap in view.node.gaps):
        yield Cannot(
            subject="volumes",
            fact="what the container's volumes lie on is not known",
            settle_with=view.settle("mounts", "", "cat /proc/self/mountinfo   # in the container"),
            blocks=(),
        )
        return
    targets = [storage.mount.target for storage in volumes]
    yield Fail(
        subject="volumes",
        message="no volume of the container lies on a file system that can go direct"
        + (f": {', '.join(targets[:3])}" if targets else ", all paths are the overlay's"),
        evidence=seen("mounts", ", ".join(m.target for m in view.mounts) or "none", "/proc/self/mountinfo"),
    )


RULE = Rule(
    id="container.no-data-volume",
    severity="error",
    problem="no volume of the container lies on a file system that can go direct",
    why="A path that is no volume is on the container's overlay, which has no device of its own (major number 0): there is "
    "nothing for cuFile to go direct to, however well the node is set up.",
    look_at=("findmnt -T PATH   # in the container", "grep 'dev_no: 0:' cufile.log"),
    remedy=Remedy(
        text="Bind-mount the data directory (docker run -v /mnt/nvme:/data), or use a hostPath, local or CSI volume on ext4, "
        "xfs or a supported network file system.",
        risk="the container is started anew",
    ),
    not_to_conclude="The node's file systems are not at fault. An overlay at / is normal.",
    source="GDS 1.16 Release Notes, compat-only file systems; overlayfs has an anonymous device number (Linux "
    "Documentation/filesystems/overlayfs.rst, st_dev)",
    check=check,
)

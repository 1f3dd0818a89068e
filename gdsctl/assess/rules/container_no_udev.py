from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Cannot, Fail, Rule, Scope, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    """Matters to file systems on block devices; the library asks udev for ID_FS_USAGE of the device."""
    container = view.node.container
    mounts = [s.mount.target for s in view.storages if s.filesystem is not None and s.filesystem.backing == "block"]
    inside = view.in_container
    if not mounts or view.gpuless or container.has_udev_db is True:
        return
    if container.has_udev_db is False:
        yield Fail(
            subject="/run/udev",
            message="there is no udev database: cuFile cannot register files on block devices",
            evidence=seen("/run/udev/data", "missing", "file system"),
            scope=Scope(mounts=frozenset(mounts)),
            remedy=None
            if inside
            else Remedy(
                text="Start udevd, so that /run/udev/data is filled.",
                commands=("systemctl start systemd-udevd && udevadm trigger",),
                risk="udev's rules run for every device",
            ),
        )
    elif inside:  # a host has one
        yield Cannot(
            subject="/run/udev",
            fact="whether the container sees the host's udev database is not known",
            settle_with=view.settle("container", "has_udev_db", "ls -d /run/udev/data"),
            scope=Scope(mounts=frozenset(mounts)),
            blocks=("nvidia-fs", "p2pdma", "c2c"),
        )


RULE = Rule(
    id="container.no-udev",
    severity="error",
    problem="the udev database is not there",
    why="cuFileHandleRegister asks udev for ID_FS_USAGE and ID_FS_TYPE of the device; without the database it fails with 5030 "
    "(1.14) or 5027 (1.20), in compat mode too.",
    look_at=("ls /run/udev/data | head -3", "grep 'udev property not found' cufile.log"),
    remedy=Remedy(
        text="Mount /run/udev of the host into the container, read-only (docker run -v /run/udev:/run/udev:ro).",
        risk="the container sees the names and serial numbers of the host's devices",
    ),
    not_to_conclude="Do not write the database by hand. 5030 has other causes as well.",
    source="libcufile 1.14 and 1.20, observed: one file /run/udev/data/b<major>:<minor> decides",
    blocks=("nvidia-fs", "p2pdma", "c2c", "compat"),
    after=("container.toolkit-skips-mounts",),
    check=check,
)

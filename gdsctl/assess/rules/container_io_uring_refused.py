from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    """No route hangs on it, so that not to know is nothing to tell."""
    container = view.node.container
    if view.in_container and container.io_uring is False and not view.gpuless:
        yield Fail(
            subject="io_uring",
            message="the container may not set up io_uring rings",
            evidence=seen("io_uring_setup", "refused", next(iter(container.evidence), "seccomp")),
        )


RULE = Rule(
    id="container.io-uring-refused",
    severity="info",
    problem="the container may not use io_uring",
    why="NIXL's POSIX plugin (use_uring), cuFile up to 1.11 (prefer_iouring) and fio's io_uring engine get EPERM. GDS itself "
    "does without.",
    look_at=(
        "python3 -c 'import ctypes; print(ctypes.CDLL(None).syscall(425, 1, bytes(120)))'   # -1: refused",
        "cat /proc/sys/kernel/io_uring_disabled",
    ),
    remedy=Remedy(
        text="Use libaio, or a seccomp profile that lets io_uring_setup, io_uring_enter and io_uring_register through.",
        risk="io_uring has been a way out of containers more than once",
    ),
    not_to_conclude="No direct route hangs on it. seccomp=unconfined takes away far more than this refusal.",
    source="moby pull request 46762 (Docker 25) and containerd pull request 9320 (2.0): io_uring_* taken out of the default "
    "profile; Linux Documentation/admin-guide/sysctl/kernel.rst, io_uring_disabled",
    check=check,
)

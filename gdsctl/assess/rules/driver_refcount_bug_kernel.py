from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess import p2pdma
from gdsctl.assess.rule import Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.data.limits import below, limit
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    scope = p2pdma.scope(view)
    kernel, driver = view.node.platform.kernel, view.node.nvidia_driver.version
    if scope is None or not kernel or not driver:
        return
    if below(kernel, "kernel_uvm_refcount_bug") is False and below(driver, "driver_uvm_refcount_fix"):
        yield Fail(
            subject="nvidia",
            message=f"driver {driver} on kernel {kernel} may fail to map GPU memory for P2PDMA (page reference counts)",
            evidence=seen("kernel", kernel, "/proc/sys/kernel/osrelease")
            + seen("driver", driver, "/proc/driver/nvidia/version"),
            scope=scope,
        )


RULE = Rule(
    id="driver.refcount-bug-kernel",
    severity="warning",
    problem="the driver is older than the fix that kernels of this age need",
    why="Kernels from 6.15 on count references of device pages in another way; drivers without the fix fail P2PDMA with "
    "CUDA error 1 (INVALID_VALUE), and cuFile falls back.",
    look_at=("uname -r", "cat /proc/driver/nvidia/version", "grep 'cuda p2p device address' cufile.log"),
    remedy=Remedy(
        text=f"Use driver {limit('driver_uvm_refcount_fix').value} or newer, or a kernel before 6.15.",
        needs_reboot=True,
        risk="nvidia_fs and other modules built against driver or kernel must be rebuilt",
    ),
    not_to_conclude="The boundary is drawn from reports: a driver just below it may carry the fix.",
    source=limit("driver_uvm_refcount_fix").source,
    check=check,
)

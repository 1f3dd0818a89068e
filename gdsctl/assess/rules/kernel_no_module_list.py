from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.lint_findings import ALL_ROUTES
from gdsctl.assess.rule import Cannot, Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    """What nobody captured is no reason for doubt: every kernel with loadable modules has the file."""
    platform = view.node.platform
    if view.gpuless:
        return
    if platform.module_list is False:
        option = (platform.kernel_config or {}).get("CONFIG_MODULES")
        yield Fail(
            subject="/proc/modules",
            message="/proc/modules is not there: every process that opens cuFile spins at 100 % CPU for ever",
            evidence=seen("/proc/modules", "not there", "/proc")
            + (seen("CONFIG_MODULES", option, "kernel configuration") if option else ()),
        )
    gap = view.gap("platform", "module_list")
    if platform.module_list is None and gap is not None and gap.reason in ("denied", "error"):
        yield Cannot(
            subject="/proc/modules",
            fact="whether a cuFile process may read /proc/modules is not known; one that may not spins for ever",
            settle_with=gap.settle_with,
        )


RULE = Rule(
    id="kernel.no-module-list",
    severity="critical",
    problem="there is no /proc/modules, without which libcufile hangs",
    why="libcufile looks for nvidia_peermem in /proc/modules, and reads in a loop that does not end where the file cannot be "
    "opened: cuFileDriverOpen never returns, in compat mode neither. The file is missing where the kernel was built without "
    "CONFIG_MODULES, and in sandboxes with a /proc of their own, such as gVisor.",
    look_at=("head -n 1 /proc/modules", "zgrep CONFIG_MODULES= /proc/config.gz /boot/config-$(uname -r)"),
    remedy=Remedy(
        text="Run cuFile under a kernel with CONFIG_MODULES=y, outside the sandbox, or have the sandbox show /proc/modules, "
        "an empty one too.",
        needs_reboot=True,
        risk="drivers built outside the kernel must be rebuilt for the new one",
    ),
    not_to_conclude="It is no fault of cufile.json or of the file system, and waiting longer does not help.",
    source="libcufile 1.11 to 1.20, observed: the loop over /proc/modules in cuFileDriverOpen",
    blocks=ALL_ROUTES,
    check=check,
)

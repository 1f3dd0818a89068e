from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess import p2pdma
from gdsctl.assess.rule import Cannot, Fail, Rule, Scope, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.data.limits import below, limit
from gdsctl.model.judgement import Remedy

_OPTION = "CONFIG_PCI_P2PDMA"
_SYMBOL = "pci_p2pdma_add_resource"
_USER_SPACE = "p2pdma_pgmap_ops"
_CARRY_BACK = ("rhel", "centos", "rocky", "almalinux", "ol", "fedora", "sles", "sle_hpc")  # RHEL 9.4's 5.14, SLES


def check(view: View) -> Iterator[Verdict]:
    scope = p2pdma.scope(view)
    if scope is None:
        return
    platform = view.node.platform
    option = (platform.kernel_config or {}).get(_OPTION)
    exported = (platform.symbols or {}).get(_SYMBOL)
    if exported is True or (exported is None and option == "y"):
        yield from _user_space(view, scope)
        return
    if exported is False or option == "n":
        evidence = seen(_SYMBOL, "not in the kernel", "/proc/kallsyms") if exported is False else ()
        if option is not None:
            evidence += seen(_OPTION, option, "kernel configuration")
        yield Fail(
            subject="kernel",
            message=f"the kernel {platform.kernel or ''} is built without {_OPTION}".replace("  ", " "),
            evidence=evidence,
            scope=scope,
        )
    else:
        yield Cannot(
            subject="kernel",
            fact=f"whether the kernel has {_OPTION} is not known",
            settle_with=view.settle("platform", "symbols", f"grep {_SYMBOL} /proc/kallsyms"),
            scope=scope,
        )


def _user_space(view: View, scope: Scope) -> Iterator[Verdict]:
    """The core is older (4.20) than the part that lets a process read into device pages; some distributions carry it back."""
    platform = view.node.platform
    if not platform.kernel or not below(platform.kernel, "kernel_p2pdma_userspace"):
        return
    if (platform.symbols or {}).get(_USER_SPACE) is True:
        return
    wanted = limit("kernel_p2pdma_userspace").value
    if platform.os_id in _CARRY_BACK or platform.os_id is None:
        yield Cannot(
            subject="kernel",
            fact=f"whether the kernel {platform.kernel} carries what came with Linux {wanted} for P2PDMA from user space",
            settle_with=f"grep {_USER_SPACE} /proc/kallsyms",
            scope=scope,
        )
        return
    yield Fail(
        subject="kernel",
        message=f"the kernel {platform.kernel} is older than {wanted}, which P2PDMA from user space needs",
        evidence=seen("kernel", platform.kernel, "/proc/sys/kernel/osrelease")
        + seen(_USER_SPACE, (platform.symbols or {}).get(_USER_SPACE), "/proc/kallsyms"),
        scope=scope,
    )


RULE = Rule(
    id="kernel.no-p2pdma",
    severity="error",
    problem="the kernel cannot do PCI peer-to-peer DMA",
    why="libcufile looks for pci_p2pdma_add_resource in /proc/kallsyms; where it is missing P2PDMA is off whatever "
    "cufile.json says.",
    look_at=("grep pci_p2pdma_add_resource /proc/kallsyms", "grep CONFIG_PCI_P2PDMA /boot/config-$(uname -r)"),
    remedy=Remedy(
        text="Boot a kernel with CONFIG_PCI_P2PDMA=y (6.2 or newer, or RHEL 9.4's 5.14), or use nvidia-fs.",
        needs_reboot=True,
        risk="drivers built outside the kernel must be rebuilt for the new one",
    ),
    not_to_conclude="The version alone does not tell: distributions switch the option on and off.",
    source="libcufile 1.16 to 1.20, log text 'Kernel does not support PCIP2PDMA'; GDS Troubleshooting Guide, P2PDMA",
    blocks=("p2pdma",),
    check=check,
)

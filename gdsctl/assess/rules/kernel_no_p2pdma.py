from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess import p2pdma
from gdsctl.assess.rule import Cannot, Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy

_OPTION = "CONFIG_PCI_P2PDMA"
_SYMBOL = "pci_p2pdma_add_resource"


def check(view: View) -> Iterator[Verdict]:
    scope = p2pdma.scope(view)
    if scope is None:
        return
    platform = view.node.platform
    option = (platform.kernel_config or {}).get(_OPTION)
    exported = (platform.symbols or {}).get(_SYMBOL)
    if exported is True or (exported is None and option == "y"):
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

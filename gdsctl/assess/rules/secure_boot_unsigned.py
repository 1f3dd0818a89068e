from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy

_MODULES = ("nvidia", "nvme", "rpcrdma", "mlx")


def check(view: View) -> Iterator[Verdict]:
    if view.node.platform.secure_boot is False:
        return
    for line in view.node.platform.kernel_log or ():
        if "Key was rejected" in line and any(name in line for name in _MODULES):
            yield Fail(
                subject="Secure Boot",
                message="Secure Boot refused a module that GDS needs",
                evidence=seen("kernel log", line, "dmesg")
                + seen("Secure Boot", view.node.platform.secure_boot, "EFI variable"),
            )
            return


RULE = Rule(
    id="secure-boot.unsigned",
    severity="error",
    problem="Secure Boot refuses an unsigned module",
    why="With Secure Boot on the kernel loads only modules signed with an enrolled key; a module that DKMS built is signed "
    "with the machine's own key, which must be enrolled first.",
    look_at=("mokutil --sb-state", "dmesg | grep -i 'key was rejected'"),
    remedy=Remedy(
        text="Enrol the signing key (mokutil --import, then confirm at the console), or sign the module.",
        needs_reboot=True,
    ),
    source="Linux Documentation/admin-guide/module-signing.rst",
    check=check,
)

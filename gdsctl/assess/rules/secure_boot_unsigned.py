from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy

_MODULES = ("nvidia", "nvme", "rpcrdma", "mlx")
_SIGNS = ("Key was rejected", "module with unavailable key is rejected", "unsigned module loading is restricted")


def check(view: View) -> Iterator[Verdict]:
    state = view.node.platform.secure_boot
    if state is False:
        return
    shut_out = any(
        view.node.modules[name].loaded is False for name in ("nvidia", "nvidia_fs") if name in view.node.modules
    )
    for line in reversed(view.node.platform.kernel_log or ()):
        if any(sign in line for sign in _SIGNS) and (shut_out or any(name in line for name in _MODULES)):
            yield Fail(
                subject="Secure Boot",
                message="Secure Boot refused a module that GDS needs",
                evidence=seen("kernel log", line, "dmesg")
                + (seen("Secure Boot", "on", "EFI variable") if state is not None else ()),
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
        risk="an enrolled key lets every module that it signed be loaded",
    ),
    source="Linux Documentation/admin-guide/module-signing.rst",
    check=check,
)

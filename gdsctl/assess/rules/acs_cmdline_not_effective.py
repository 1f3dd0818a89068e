from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    cmdline = view.node.platform.cmdline or ""
    asked = [word for word in cmdline.split() if "disable_acs_redir=" in word or "config_acs=" in word]
    if not asked:
        return
    still = {port: None for pair in view.pairs for port in pair.acs_redirect_at or () if pair.meet == "switch"}
    if still:
        yield Fail(
            subject=", ".join(still),
            message=f"the command line asks for ACS redirection off, but {', '.join(still)} still redirect",
            evidence=seen("command line", " ".join(asked), "/proc/cmdline")
            + tuple(e for port in still for e in seen(f"{port} redirects", "yes", "PCI config space")),
        )


RULE = Rule(
    id="acs.cmdline-not-effective",
    severity="warning",
    problem="the kernel command line's ACS setting had no effect on a port",
    why="pci=disable_acs_redir and pci=config_acs act only on ports that they name, and only where the kernel that booted "
    "knows them; a shell or GRUB that cut the text at a semicolon leaves half of it out.",
    look_at=("cat /proc/cmdline", "dmesg | grep -i acs", "sudo lspci -vvv | grep ACSCtl"),
    remedy=Remedy(
        text="Name the ports by address or vendor:device, quote the text in the boot loader's file, and look in the kernel log after the boot.",
        needs_reboot=True,
    ),
    source="Linux Documentation/admin-guide/kernel-parameters.txt, pci=disable_acs_redir, pci=config_acs",
    after=("acs.redirect-on-path",),
    check=check,
)

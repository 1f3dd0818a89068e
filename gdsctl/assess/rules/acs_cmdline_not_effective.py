from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess import acs_parameters
from gdsctl.assess.rule import Fail, Rule, Verdict
from gdsctl.assess.view import View
from gdsctl.model.judgement import Evidence, Remedy
from gdsctl.model.pci import ACS_REDIRECTING


def check(view: View) -> Iterator[Verdict]:
    """Ports on a path that redirect although an entry names them and asks for just these bits to be off."""
    found = acs_parameters.entries(view.node.platform.cmdline or "")
    on_path = dict.fromkeys(port for pair in view.pairs for port in pair.acs_redirect_at or ()) if found else {}
    ports: dict[str, str] = {}
    evidence: list[Evidence] = []
    for port in on_path:
        device = view.device(port)
        if device is None:
            continue
        on = ACS_REDIRECTING.intersection(device.acs.enabled)
        entries = [e for e in acs_parameters.asked(found, device, view.topology) if e.off & on]
        if entries:
            entry = min(entries, key=lambda e: bool(e.void))
            ports[port] = entry.void
            still = " ".join(bit for bit in device.acs.enabled if bit in entry.off & on)
            evidence += [
                Evidence(fact=f"pci={entry.parameter}=", value=entry.text, source="/proc/cmdline"),
                Evidence(fact=f"{port}, bits still on", value=still, source="PCI config space"),
            ]
    if ports:
        reasons = "; ".join(dict.fromkeys(filter(None, ports.values())))
        message = f"the command line asks for ACS redirection off at {', '.join(ports)}, and yet it is on"
        yield Fail(
            subject=", ".join(ports),
            message=f"{message}: {reasons}" if reasons else message,
            evidence=tuple(dict.fromkeys(evidence)),
        )


RULE = Rule(
    id="acs.cmdline-not-effective",
    severity="warning",
    problem="the kernel command line's ACS setting had no effect on a port",
    why="pci=disable_acs_redir and pci=config_acs act only on ports that they name, and only where the kernel that booted "
    "knows them; the last of each counts, config_acs beats disable_acs_redir, and an entry that cannot be read ends the "
    "search. A shell or GRUB that cut the text at a semicolon leaves half of it out; setpci changes ports later.",
    look_at=("cat /proc/cmdline", "dmesg | grep -i acs", "sudo lspci -vvv | grep ACSCtl"),
    remedy=Remedy(
        text="Name the ports by address or vendor:device, quote the text in the boot loader's file, and look in the kernel log after the boot.",
        needs_reboot=True,
        risk="it ends the isolation of devices handed to virtual machines",
    ),
    source="Linux Documentation/admin-guide/kernel-parameters.txt, pci=disable_acs_redir, pci=config_acs; drivers/pci/pci.c",
    after=("acs.redirect-on-path",),
    check=check,
)

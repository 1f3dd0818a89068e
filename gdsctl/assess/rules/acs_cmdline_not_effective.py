from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.errors import InputError
from gdsctl.model.judgement import Remedy
from gdsctl.model.pci import PciDevice, canonical_address
from gdsctl.parse import kernel_cmdline


def check(view: View) -> Iterator[Verdict]:
    asked = _asked(view.node.platform.cmdline or "")
    ports = dict.fromkeys(port for pair in view.pairs for port in pair.acs_redirect_at or ())
    still = [p for p in ports if (device := view.device(p)) and any(_names(entry, device) for entry in asked)]
    if still:
        yield Fail(
            subject=", ".join(still),
            message=f"the command line asks for ACS redirection off at {', '.join(still)}, and yet it is on",
            evidence=seen("pci=", ";".join(asked), "/proc/cmdline")
            + tuple(e for port in still for e in seen(f"{port} redirects", "yes", "PCI config space")),
        )


def _asked(cmdline: str) -> tuple[str, ...]:
    """The ports for which redirection is to be off, as the command line names them."""
    try:
        pci = kernel_cmdline.parse(cmdline).pci
    except InputError:
        return ()
    configured = (entry.partition("@") for entry in pci.config_acs)
    return pci.disable_acs_redir + tuple(where for flags, _, where in configured if _clears_redirection(flags))


def _clears_redirection(flags: str) -> bool:
    """Bits as digits, the last one bit 0: ReqRedir is bit 2, CmpltRedir bit 3."""
    return len(flags) >= 4 and flags[-3] == "0" and flags[-4] == "0"


def _names(entry: str, device: PciDevice) -> bool:
    """An address, or `pci:VENDOR:DEVICE` in which 0 stands for any; the end of a path `ADDRESS/DEV.FN` is not followed."""
    if entry.startswith("pci:"):
        wanted = [part.lower().lstrip("0") for part in entry.split(":")[1:3]]
        ids = [(part or "").lstrip("0") for part in (device.vendor_id, device.device_id)]
        return all(want in ("", own) for want, own in zip(wanted, ids, strict=False))
    return canonical_address(entry) == device.address


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

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gdsctl.assess.rule import Fail, Rule, Scope, Verdict, some
from gdsctl.assess.view import View, gpu_key
from gdsctl.model.judgement import Evidence, Remedy
from gdsctl.model.shell import quoted

_REDIRECT_BITS = 0x2C  # ReqRedir, CmpltRedir, EgressCtrl; all else is left as it is


def check(view: View) -> Iterator[Verdict]:
    """Only ports on the path between a GPU and a drive or NIC are ever named; those that no mount uses yet, apart."""
    blocked: set[tuple[str, str]] = set()
    slowed: set[tuple[str, str]] = set()
    ports: dict[str, None] = {}
    for gpu in view.gpus:
        for storage in view.storages:
            for pair in view.pairs_of(gpu, storage.mount):
                if pair.acs_redirect_at:
                    ports.update(dict.fromkeys(pair.acs_redirect_at))
                    chosen = blocked if pair.p2p == "blocked" else slowed
                    chosen.add((gpu_key(gpu), storage.mount.target))
    named = ", ".join(ports)
    evidence = _registers(view, ports)
    remedy = _cleared(ports)
    if blocked:
        yield Fail(
            subject=named,
            message=f"ACS sends peer traffic up to a host bridge that the kernel does not trust, at {named}",
            evidence=evidence,
            remedy=remedy,
            scope=Scope(pairs=frozenset(blocked)),
            severity="error",
        )
    if slowed:
        yield Fail(
            subject=named,
            message=f"ACS sends traffic between GPU and peer through the root complex, at {named}",
            evidence=evidence,
            remedy=remedy,
            scope=Scope(pairs=frozenset(slowed)),
            blocks=(),
        )
    yield from _without_a_mount(view, ports)


def _without_a_mount(view: View, used: Iterable[str]) -> Iterator[Fail]:
    """Ports between a GPU and drives or NICs that no data mount is on: what will be mounted there meets them."""
    gpus = {gpu.address for gpu in view.gpus}
    pairs = [pair for pair in view.pairs if pair.gpu in gpus and pair.acs_redirect_at]
    ports = dict.fromkeys(port for pair in pairs for port in pair.acs_redirect_at or ())
    for port in used:
        ports.pop(port, None)
    if ports:
        peers = tuple(dict.fromkeys(p.peer for p in pairs if not ports.keys().isdisjoint(p.acs_redirect_at or ())))
        yield Fail(
            subject=", ".join(ports),
            message=f"ACS sends traffic between GPU and peer through the root complex, at {', '.join(ports)}, on the way to "
            f"{some(peers)}, which no mount uses yet",
            evidence=_registers(view, ports),
            remedy=_cleared(ports),
            scope=Scope(pairs=frozenset()),
            blocks=(),
        )


def _registers(view: View, ports: Iterable[str]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(fact=f"ACSCtl of {port}", value="+ ".join(device.acs.enabled) + "+", source="PCI config space")
        for port in ports
        if (device := view.device(port)) is not None
    )


def _cleared(ports: Iterable[str]) -> Remedy:
    return Remedy(
        text="Clear the redirect bits of these ports only, one at a time, and look at the node after each: "
        f"{', '.join(ports)}. "
        "setpci holds until the next boot; to keep it, boot with pci=disable_acs_redir= and these ports.",
        commands=tuple(f"setpci -s {quoted(port)} ECAP_ACS+0x6.w=0:{_REDIRECT_BITS:x}" for port in ports),
        persistent=False,
        risk="clearing ACS on every bridge of a node has taken drives down; it ends the isolation of devices handed to "
        "virtual machines; GDS may work with ACS on",
    )


RULE = Rule(
    id="acs.redirect-on-path",
    severity="warning",
    otherwise={"error": "where the kernel then refuses P2PDMA between the two"},
    problem="a port between GPU and peer redirects peer-to-peer requests",
    why="Where a switch port redirects, bytes between two devices below the same switch go up to the root complex and back: "
    "slower, and for P2PDMA only allowed if the kernel trusts the host bridge.",
    look_at=("sudo lspci -vvv -s PORT | grep ACSCtl", "cat /proc/driver/nvidia-fs/bridges"),
    remedy=Remedy(
        text="Clear the redirect bits of the named ports only, one at a time; or boot with pci=disable_acs_redir= and these ports.",
        persistent=False,
        risk="clearing ACS on every bridge of a node has taken drives down",
    ),
    not_to_conclude="Any ACS bit elsewhere is no fault: only ports on the path count, and SrcValid alone redirects nothing.",
    source="PCI Express Base Specification, 6.12 Access Control Services; Linux drivers/pci/p2pdma.c",
    blocks=("p2pdma",),
    check=check,
)

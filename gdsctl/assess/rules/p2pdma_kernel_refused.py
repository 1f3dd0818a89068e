from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.kernel_log import events
from gdsctl.assess.rule import Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy

_MEANINGS = ("p2pdma-not-pci", "p2pdma-acs-redirect", "p2pdma-no-common-bridge", "p2pdma-host-bridge")
_FINE = ("bus_address", "through_host_bridge")


def check(view: View) -> Iterator[Verdict]:
    """Only where the tree says otherwise: a refusal that follows from it has a finding of its own."""
    for event in events(view, *_MEANINGS):
        mine = [pair for pair in view.pairs if event.address in (pair.gpu, pair.peer)]
        if event.address and mine and all(pair.p2p in _FINE for pair in mine):
            yield Fail(
                subject=event.address,
                message=f"the kernel refused peer-to-peer DMA of {event.address}, which its place in the PCI tree allows",
                evidence=seen("kernel log", event.text, "dmesg"),
            )
            return


RULE = Rule(
    id="p2pdma.kernel-refused",
    severity="info",
    problem="the kernel refused peer-to-peer DMA once",
    why="Linux decides for each provider and client whether requests may go from one to the other, and writes down why "
    "not. Its log holds the decision of that moment: ACS may have been changed since.",
    look_at=("dmesg | grep -i 'peer-to-peer'", "gdsctl inspect --verbose"),
    remedy=Remedy(text="Run a transfer anew, and see whether the kernel refuses again."),
    not_to_conclude="It does not say that P2PDMA is refused now.",
    source="Linux drivers/pci/p2pdma.c, calc_map_type_and_dist()",
    after=("acs.redirect-on-path", "kernel.p2pdma-host-bridge"),
    check=check,
)

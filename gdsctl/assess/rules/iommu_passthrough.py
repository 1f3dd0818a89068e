from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Verdict
from gdsctl.assess.view import View
from gdsctl.model.judgement import Evidence, Remedy


def check(view: View) -> Iterator[Verdict]:
    if view.node.iommu.state == "passthrough" and view.gpus and view.node.platform.arch != "aarch64":
        yield Fail(
            subject="IOMMU",
            message="the IOMMU is in passthrough, which works on some platforms; off is what NVIDIA recommends",
            evidence=tuple(
                Evidence(fact="IOMMU", value=line, source="sysfs, command line")
                for line in view.node.iommu.evidence[:3]
            ),
        )


RULE = Rule(
    id="iommu.passthrough",
    severity="info",
    problem="the IOMMU is on, in passthrough",
    why="In passthrough device addresses are not translated, so that peer-to-peer works; but an active IOMMU makes the kernel "
    "switch ACS on at every port that has it, and that sends peer traffic through the root complex.",
    look_at=("cat /sys/kernel/iommu_groups/*/type | sort | uniq -c", "lspci -vvv | grep ACSCtl"),
    remedy=Remedy(
        text="Nothing has to change. Where nothing needs the IOMMU, the node may be booted with it off.",
        needs_reboot=True,
        risk="devices handed to virtual machines or user-space drivers (VFIO, DPDK) need the IOMMU on",
    ),
    not_to_conclude="gdscheck prints 'Pass-through or enabled' for both states: it cannot tell them apart.",
    source="GDS Troubleshooting Guide, IOMMU; Linux drivers/pci/pci.c, pci_request_acs()",
    check=check,
)

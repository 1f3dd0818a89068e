from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess import p2pdma
from gdsctl.assess.rule import Cannot, Fail, Rule, Scope, Verdict
from gdsctl.assess.view import View, gpu_key
from gdsctl.model.judgement import Evidence, Remedy

_SWITCHES = (("dmar", "GenuineIntel", "intel_iommu=off"), ("ivhd", "AuthenticAMD", "amd_iommu=off"))


def check(view: View) -> Iterator[Verdict]:
    platform = view.node.platform
    state = view.node.iommu.state
    if state not in ("translated", "unknown") or not view.gpus or platform.arch == "aarch64":
        return
    through_bridge = frozenset(
        (gpu_key(gpu), storage.mount.target)
        for gpu in view.gpus
        for storage in view.p2pdma_storages
        if any(pair.p2p == "through_host_bridge" for pair in view.pairs_of(gpu, storage.mount))
    )
    if state == "unknown":
        if p2pdma.scope(view) is not None and through_bridge:
            yield Cannot(
                subject="IOMMU",
                fact="whether the IOMMU translates, which P2PDMA through the host bridge does not stand, is not known",
                settle_with=view.settle("iommu", "state", "cat /sys/kernel/iommu_groups/*/type"),
                scope=Scope(pairs=through_bridge),
            )
        return
    evidence = tuple(
        Evidence(fact="IOMMU", value=line, source="sysfs, command line") for line in view.node.iommu.evidence[:3]
    )
    switch = _switch(view)
    remedy = Remedy(
        text=f"Boot with iommu=pt, or, where nothing on the node needs the IOMMU, with {switch}.",
        commands=(f"gdsctl plan --emit kernel-cmdline  # iommu=pt, or {switch}",),
        needs_reboot=True,
        risk="devices handed to virtual machines or user-space drivers (VFIO, DPDK) need the IOMMU on",
    )
    if p2pdma.scope(view) is not None and through_bridge:
        yield Fail(
            subject="IOMMU",
            message="the IOMMU translates: NVIDIA asks for it off with P2PDMA, and in the field P2PDMA through the host bridge fails",
            evidence=evidence,
            remedy=remedy,
            scope=Scope(pairs=through_bridge),
            severity="error",
        )
    else:
        yield Fail(
            subject="IOMMU",
            message="the IOMMU translates: GDS is not guaranteed to work, nor to be fast",
            evidence=evidence,
            remedy=remedy,
            blocks=(),
        )


def _switch(view: View) -> str:
    """Each driver listens to its own word: the units that run tell which it is, the CPU's maker only where none is seen.

    A hypervisor may put either kind beside any CPU.
    """
    platform, units = view.node.platform, view.node.iommu.units
    for prefix, vendor, word in _SWITCHES:
        if any(unit.startswith(prefix) for unit in units):
            return word
        if not units and platform.virtualization == "none" and platform.cpu_vendor == vendor:
            return word
    return "iommu=off"


RULE = Rule(
    id="iommu.translated",
    severity="warning",
    otherwise={"error": "where P2PDMA is wanted and goes through a host bridge"},
    problem="the IOMMU translates addresses",
    why="Requests between devices that pass the root complex are translated there, which can fail and costs speed; below a "
    "common switch they do not meet the IOMMU, but an active one makes the kernel switch ACS on, and that sends them up. "
    "NVIDIA supports GDS with the IOMMU off or, on some platforms, in passthrough.",
    look_at=("cat /sys/kernel/iommu_groups/*/type | sort | uniq -c", "cat /proc/cmdline", "gdscheck -p | grep IOMMU"),
    remedy=Remedy(
        text="Boot with iommu=pt, or with the IOMMU off where nothing needs it.",
        needs_reboot=True,
        risk="devices handed to virtual machines or user-space drivers (VFIO, DPDK) need the IOMMU on",
    ),
    not_to_conclude="It is no proof of compat mode: boxes with the IOMMU on do GDS reads.",
    source="GDS Best Practices Guide and Troubleshooting Guide, IOMMU; NVIDIA/gds-nvidia-fs issue 57",
    blocks=("p2pdma",),
    check=check,
)

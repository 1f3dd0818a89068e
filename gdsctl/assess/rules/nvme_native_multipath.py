from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess import p2pdma
from gdsctl.assess.rule import Cannot, Fail, Rule, Scope, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    if p2pdma.scope(view) is None or view.node.platform.arch == "aarch64":
        return
    core = view.node.modules.get("nvme_core")
    switch = (core.parameters or {}).get("multipath") if core else None
    for storage in view.p2pdma_storages:
        if storage.direct is None or storage.direct.p2pdma_multipath:
            continue
        controllers = view.controllers(storage.mount)
        scope = Scope(mounts=frozenset({storage.mount.target}))
        behind = [nvme.name for nvme in controllers if nvme.multipath]
        if behind:
            yield Fail(
                subject=storage.mount.target,
                message=f"the drives of {storage.mount.target} sit behind native NVMe multipath, which hides P2PDMA",
                evidence=seen("behind a multipath head", ", ".join(behind), "/sys/class/nvme-subsystem")
                + (seen("nvme_core multipath", switch, "/sys/module/nvme_core/parameters/multipath") if switch else ()),
                scope=scope,
            )
        elif any(nvme.multipath is None for nvme in controllers) and switch != "N":
            yield Cannot(
                subject=storage.mount.target,
                fact="whether the drives sit behind native NVMe multipath is not known",
                settle_with="cat /sys/module/nvme_core/parameters/multipath",
                scope=scope,
            )


RULE = Rule(
    id="nvme.native-multipath",
    severity="error",
    problem="native NVMe multipath stands in P2PDMA's way",
    why="The kernel marks the path device as able to do P2PDMA, but the multipath head, which the filesystem uses, does not "
    "inherit the mark; the request is refused and cuFile falls back.",
    look_at=("cat /sys/module/nvme_core/parameters/multipath", "nvme list-subsys"),
    remedy=Remedy(
        text="Switch native multipath off at boot, and rebuild the initramfs.",
        commands=(
            "echo 'options nvme_core multipath=N' >> /etc/modprobe.d/gdsctl.conf",
            "update-initramfs -u -k all || dracut -f",
        ),
        needs_reboot=True,
        risk="drives with two ports lose their second path, and device names can change: mount by UUID",
    ),
    not_to_conclude="multipath=Y alone does no harm where a namespace has no multipath head.",
    source="GDS Troubleshooting Guide, 'P2PDMA: NVMe multipath'; Linux drivers/nvme/host/multipath.c",
    blocks=("p2pdma",),
    check=check,
)

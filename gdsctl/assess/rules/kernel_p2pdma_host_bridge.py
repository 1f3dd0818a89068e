from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess import p2pdma
from gdsctl.assess.rule import Cannot, Fail, Rule, Scope, Verdict, seen
from gdsctl.assess.view import View, gpu_key
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    if p2pdma.scope(view) is None or view.node.platform.arch == "aarch64":
        return
    blocked: list[tuple[str, str]] = []
    unsure: list[tuple[str, str]] = []
    reason = doubt = ""
    for gpu in view.gpus:
        for storage in view.p2pdma_storages:
            key = (gpu_key(gpu), storage.mount.target)
            pairs = view.pairs_of(gpu, storage.mount)
            wall = next((p for p in pairs if p.p2p == "blocked" and not p.acs_redirect_at), None)
            fog = next((p for p in pairs if p.p2p == "unknown"), None)
            if wall is not None:
                blocked.append(key)
                reason = reason or wall.p2p_reason
            elif fog is not None:
                unsure.append(key)
                doubt = doubt or fog.p2p_reason
            elif (not pairs and storage.mount.backing.kind in ("nvme", "md")) or len(pairs) < len(
                storage.mount.backing.nvme
            ):
                unsure.append(key)
                doubt = (
                    doubt or f"where GPU {gpu.index} or the drives of {storage.mount.target} are on PCI is not known"
                )
    if blocked:
        yield Fail(
            subject="kernel",
            message=f"the kernel refuses peer-to-peer between GPU and drive: {reason}",
            evidence=seen("GPU x mount pairs refused", len(blocked), "PCI topology and the kernel's host bridge list"),
            scope=Scope(pairs=frozenset(blocked)),
        )
    if unsure:
        yield Cannot(
            subject="kernel",
            fact=f"whether the kernel allows peer-to-peer between GPU and drive is not known: {doubt}",
            settle_with="sudo lspci -D -vvv",
            scope=Scope(pairs=frozenset(unsure)),
        )


RULE = Rule(
    id="kernel.p2pdma-host-bridge",
    severity="error",
    problem="GPU and drive meet only at a host bridge that the kernel does not trust with peer-to-peer",
    why="Across root ports the kernel allows peer-to-peer only on AMD Zen and on host bridges of its own list; everywhere "
    "else it refuses, since some route such requests wrongly or not at all.",
    look_at=("lspci -tv", "dmesg | grep -i p2pdma"),
    remedy=Remedy(
        text="Put drive and GPU behind one PCIe switch, or use nvidia-fs, which does not ask the kernel's list.",
        risk="moving cards needs a halt of the node",
        needs_reboot=True,
    ),
    not_to_conclude="Overriding the list is not safe: a client platform forced to route peer-to-peer corrupted data.",
    source="Linux drivers/pci/p2pdma.c, pci_p2pdma_whitelist[] and host_bridge_whitelist()",
    blocks=("p2pdma",),
    after=("kernel.no-p2pdma", "acs.redirect-on-path"),
    check=check,
)

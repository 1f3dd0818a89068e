from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Verdict, seen
from gdsctl.assess.system_mounts import is_system
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    for storage in view.storages:
        if is_system(storage.mount.target):
            continue
        if not (storage.takes_nvidia_fs or storage.takes_p2pdma or storage.takes_user_rdma):
            continue
        pairs = [pair for gpu in view.gpus for pair in view.pairs_of(gpu, storage.mount)]
        if pairs and all(pair.class_ in ("PHB", "NODE") for pair in pairs):
            yield Fail(
                subject=storage.mount.target,
                message=f"no GPU shares a root port with the devices of {storage.mount.target}: traffic crosses the root complex",
                evidence=seen("classes", ", ".join(sorted({pair.class_ for pair in pairs})), "PCI topology"),
            )


RULE = Rule(
    id="pci.cross-root",
    severity="info",
    problem="GPU and storage hang under different root ports",
    why="Peer traffic then passes the root complex, which can be slower than a switch; how much depends on the processor.",
    look_at=("lspci -tv", "nvidia-smi topo -m"),
    remedy=Remedy(text="Where there is a choice, use drives and NICs behind the GPU's own switch."),
    not_to_conclude="It is a note on speed: GDS works across root ports.",
    source="GDS Best Practices Guide, PCIe topology",
    check=check,
)

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
        far = [
            gpu.index
            for gpu in view.gpus
            if (pairs := view.pairs_of(gpu, storage.mount)) and all(pair.class_ == "SYS" for pair in pairs)
        ]
        if far:
            numbers = ", ".join(map(str, far))
            yield Fail(
                subject=storage.mount.target,
                message=f"GPU {numbers}: every device of {storage.mount.target} is on another NUMA node",
                evidence=seen("class", "SYS", "PCI topology"),
                severity="info" if len(far) < len(view.gpus) else "warning",
            )


RULE = Rule(
    id="pci.cross-socket",
    severity="warning",
    otherwise={"info": "where other GPUs are nearer"},
    problem="GPU and storage are on different NUMA nodes",
    why="The bytes cross the link between the processors, which is shared with all else and often slower than a PCIe link.",
    look_at=("nvidia-smi topo -m", "lspci -vv | grep -E '^[0-9a-f]|NUMA'"),
    remedy=Remedy(
        text="Give each NUMA node its own drives or NICs, or let dynamic routing stage through a GPU near the NIC."
    ),
    not_to_conclude="It is a note on speed, not a reason for compat mode.",
    source="GDS Overview Guide, dynamic routing; GDS Best Practices Guide",
    check=check,
)

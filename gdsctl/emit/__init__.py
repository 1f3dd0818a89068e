"""A plan as the text of one artifact. Every emitter is `emit(plan) -> Artifact`, pure, and one row here."""

from __future__ import annotations

import difflib
import importlib

from gdsctl.errors import UsageError
from gdsctl.plan.desired import Plan
from gdsctl.plan.documents import Artifact
from gdsctl.record import Record


class Emitter(Record, frozen=True, kw_only=True):
    """`module`: under gdsctl.emit; `file`: its name in --output-dir."""

    kind: str
    module: str
    file: str

    def emit(self, plan: Plan) -> Artifact:
        artifact: Artifact = importlib.import_module(f"gdsctl.emit.{self.module}").emit(plan)
        return artifact

    def applies(self, plan: Plan) -> bool:
        """Has the plan anything to say here? The others are left out of `all`."""
        answer: bool = importlib.import_module(f"gdsctl.emit.{self.module}").applies(plan)
        return answer


EMITTERS: dict[str, Emitter] = {
    row.kind: row
    for row in (
        Emitter(kind="cufile.json", module="cufile_json", file="cufile.json"),
        Emitter(kind="static-routing", module="static_routing", file="topology.json"),
        Emitter(kind="modprobe", module="modprobe", file="modprobe.conf"),
        Emitter(kind="kernel-cmdline", module="kernel_cmdline", file="kernel-cmdline"),
        Emitter(kind="acs", module="acs", file="acs.sh"),
        Emitter(kind="nvme-connect", module="nvme_connect", file="nvme-connect.sh"),
        Emitter(kind="mount", module="mount", file="mount.sh"),
        Emitter(kind="fstab", module="fstab", file="fstab"),
        Emitter(kind="systemd-mount", module="systemd_mount", file="systemd-mount"),
        Emitter(kind="nfsmount.conf", module="nfsmount_conf", file="nfsmount.conf"),
        Emitter(kind="storageclass", module="storageclass", file="storageclass.yaml"),
        Emitter(kind="pod", module="pod", file="pod.yaml"),
        Emitter(kind="gpu-operator-values", module="gpu_operator_values", file="gpu-operator-values.yaml"),
        Emitter(kind="lmcache", module="lmcache", file="lmcache.sh"),
        Emitter(kind="lmcache-bench", module="lmcache_bench", file="lmcache-bench.json"),
        Emitter(kind="steps", module="steps", file="steps.txt"),
    )
}
ALL = "all"


def chosen(kinds: list[str]) -> list[Emitter]:
    """The emitters of --emit KIND..., in the table's order; raises UsageError for a kind that is not there."""
    for kind in kinds:
        if kind not in EMITTERS and kind != ALL:
            close = difflib.get_close_matches(kind, [*EMITTERS, ALL], n=1)
            hint = f"; did you mean {close[0]}?" if close else f"; there are {', '.join(EMITTERS)} and {ALL}"
            raise UsageError(f"--emit knows no {kind!r}{hint}")
    return [row for kind, row in EMITTERS.items() if kind in kinds or ALL in kinds]


def artifacts(
    plan: Plan, emitters: list[Emitter], *, named: frozenset[str] = frozenset(EMITTERS)
) -> dict[str, Artifact]:
    """Kind -> artifact; one that has nothing to say is made only where it was named."""
    return {row.kind: row.emit(plan) for row in emitters if row.kind in named or row.applies(plan)}

from __future__ import annotations

from collections.abc import Iterator

from gdsctl.assess.rule import Fail, Rule, Verdict, seen
from gdsctl.assess.view import View
from gdsctl.model.judgement import Remedy


def check(view: View) -> Iterator[Verdict]:
    drivers = (view.node.gds.gdscheck or {}).get("drivers") or {}
    row = drivers.get("IBM Spectrum Scale")
    if isinstance(row, dict) and "p2pdma" in (row.get("modes") or ()):
        yield Fail(
            subject="IBM Spectrum Scale",
            message="gdscheck prints p2pdma for IBM Spectrum Scale, which has no P2PDMA route",
            evidence=seen("IBM Spectrum Scale", ", ".join(row.get("modes") or ()), "gdscheck -p"),
        )


RULE = Rule(
    id="gdscheck.false-positive-gpfs",
    severity="info",
    problem="gdscheck claims P2PDMA for IBM Spectrum Scale",
    why="The line follows properties.use_pci_p2pdma, not what the file system can do: Storage Scale reaches the GPU by "
    "user-space RDMA only.",
    look_at=("gdscheck -p | grep -i spectrum",),
    remedy=Remedy(text="Do not count on it; configure user-space RDMA for Storage Scale."),
    source="NVIDIA gds-diag capability notes; IBM Storage Scale documentation, GPUDirect Storage",
    check=check,
)

"""What of a judged node counts when it is compared: small, and free of names that differ from node to node."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from gdsctl.assess.assessment import Assessment
from gdsctl.assess.view import gpu_key
from gdsctl.model.judgement import Route
from gdsctl.record import Record


class Path(Record, frozen=True, kw_only=True):
    """`route` with the staging policy in brackets; "unknown" where it could not be told."""

    route: str
    ceiling_gbs: float | None = None


class State(Record, frozen=True, kw_only=True):
    """`paths`: mount -> number of the GPU -> path; `findings`: id -> number of subjects, those that can fail a gate.

    `facts`: name -> text, for what may differ without a path being another one.
    """

    host: str | None
    paths: dict[str, dict[int, Path]]
    findings: dict[str, int]
    facts: dict[str, str]

    @property
    def key(self) -> str:
        """Equal for nodes whose paths, ceilings and findings are equal."""
        paths = {
            mount: {gpu: (path.route, path.ceiling_gbs) for gpu, path in sorted(per_gpu.items())}
            for mount, per_gpu in sorted(self.paths.items())
        }
        return json.dumps([paths, sorted(self.findings.items())])


def state(assessment: Assessment) -> State:
    """A node's state. Findings count that are worse than a warning or make a route impossible."""
    node = assessment.node
    numbers = {gpu_key(gpu): gpu.index for gpu in node.gpus}
    paths: dict[str, dict[int, Path]] = {}
    for route in assessment.routes:
        shown = Path(route=_shown(route), ceiling_gbs=route.ceiling_gbs)
        paths.setdefault(route.mount, {})[numbers[route.gpu]] = shown
    grave = [f for f in assessment.findings if f.severity in ("critical", "error") or f.blocks]
    mild = [f.id for f in assessment.findings if f not in grave]
    return State(
        host=node.source.host or node.platform.hostname,
        paths=paths,
        findings=dict(sorted(Counter(finding.id for finding in grave).items())),
        facts={name: _text(value) for name, value in _facts(assessment, sorted(set(mild))).items()},
    )


def _shown(route: Route) -> str:
    return f"{route.route} ({route.dynamic_routing})" if route.dynamic_routing else route.route


def _facts(assessment: Assessment, mild: list[str]) -> dict[str, Any]:
    node = assessment.node
    platform, driver = node.platform, node.nvidia_driver
    facts: dict[str, Any] = {
        "operating system": [platform.os_id, platform.os_version],
        "kernel": platform.kernel,
        "kernel command line": platform.cmdline,
        "product": platform.product,
        "driver version": driver.version,
        "driver kind": driver.kind,
        "driver registry keys": driver.registry_dwords,
        "nvidia-fs version": node.nvidia_fs.version,
        "GDS version": node.gds.version,
        "IOMMU": node.iommu.state,
        "GPU names": [gpu.name for gpu in node.gpus],
        "GPU addresses": [gpu.address for gpu in node.gpus],
        "GPU UUIDs": [gpu.uuid for gpu in node.gpus],
        "NVMe numbering": {nvme.name: nvme.address or nvme.traddr for nvme in node.nvme},
        "NVMe models": sorted(nvme.model or "?" for nvme in node.nvme),
        "NIC names": {nic.address or "?": [nic.rdma_device, *nic.netdevs] for nic in node.nics},
        "NIC addresses": sorted(address for nic in node.nics for address in nic.ipv4),
        "warnings": mild,
        "cufile.json": assessment.config.merged,
    }
    for mount in node.mounts:
        if mount.can_hold_data:
            facts[f"source of {mount.target}"] = mount.source
            facts[f"options of {mount.target}"] = ",".join(mount.options)
    return facts


def _text(value: Any) -> str:
    if value is None:
        return "?"
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)

"""Helm values for NVIDIA's GPU Operator (as of a22dbf671, August 2026)."""

from __future__ import annotations

from typing import Any

from gdsctl.emit.yaml_stream import yaml_stream
from gdsctl.plan.desired import Plan
from gdsctl.plan.documents import Artifact


def applies(plan: Plan) -> bool:
    return plan.intent.workload is not None and bool(plan.node.gpus)


def emit(plan: Plan) -> Artifact:
    """Only what GPUDirect Storage needs; all else stays as the chart has it."""
    nvidia_fs = plan.mode == "nvidia-fs"
    rdma = any(mount.backing.transport == "rdma" for mount in plan.node_after.mounts)
    why = {
        "/driver/kernelModuleType": "nvidia-fs from 2.17.5 on and P2PDMA need the open modules; the NVIDIADriver resource "
        "refuses gds with anything but the word open",
        "/gds/enabled": "the plan's mode is nvidia-fs: the driver pod loads it"
        if nvidia_fs
        else f"the plan's mode is {plan.mode}: no nvidia-fs; pods then get neither /run/udev nor cufile.json from the "
        "toolkit and must mount both",
        "/devicePlugin/env": "adds the CDI mode gds: /dev/nvidia-fs*, /run/udev and cufile.json in each pod with a GPU",
        "/driver/rdma/enabled": "GPU memory is registered with the NIC; dma-buf is preferred to nvidia-peermem",
    }
    values: dict[str, Any] = {
        "driver": {"kernelModuleType": "open"},
        "gds": {"enabled": nvidia_fs},
        "cdi": {"enabled": True},
    }
    if nvidia_fs:
        values["devicePlugin"] = {"env": [{"name": "GDS_ENABLED", "value": "true"}]}
    if rdma:
        values["driver"]["rdma"] = {"enabled": True, "useHostMofed": True}
    shown = {pointer: text for pointer, text in why.items() if _has(values, pointer)}
    comments = [
        *(f"{pointer}: {text}" for pointer, text in shown.items()),
        "gds is part of the driver pod: with driver.enabled=false the node's own packages bring nvidia-fs",
        "neither the startup probe nor the validator looks at a path: gdsctl verify does",
    ]
    if rdma:
        comments.append(
            "useHostMofed: the node's own RDMA stack stays; VAST's client and the OFED container both replace sunrpc"
        )
    return Artifact(path="gpu-operator-values.yaml", content=yaml_stream((comments, values)), reasons=shown)


def _has(values: Any, pointer: str) -> bool:
    for part in pointer.strip("/").split("/"):
        if not isinstance(values, dict) or part not in values:
            return False
        values = values[part]
    return True

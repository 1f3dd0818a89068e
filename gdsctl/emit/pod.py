"""A pod that may go direct: the volumes, devices, capabilities and resources to merge into one's own manifest."""

from __future__ import annotations

import re
from typing import Any

from gdsctl.emit.comment import comment
from gdsctl.emit.lmcache import start
from gdsctl.emit.storageclass import dns_name
from gdsctl.emit.yaml_stream import yaml_stream
from gdsctl.plan.desired import Plan
from gdsctl.plan.documents import Artifact

_TEMPLATE = "gdsctl-gpus"
# Kubernetes gives a container no device by a hostPath, only by a device plugin, CDI or all of them (device plugins,
# kubernetes.io). NVIDIA k8s-device-plugin internal/cdi/cdi.go and container-toolkit, mode gds, name /dev/nvidia-fs*.
_PRIVILEGED = "for /dev/nvidia-fs* alone: the device cgroup lets a pod open no device of a hostPath. "
_WITHOUT = {
    False: "Drop this line and the volumes nvidia-fs*, udev and cufile where the device plugin has GDS_ENABLED=true, which adds "
    "them (--emit gpu-operator-values)",
    True: "The device plugin with GDS_ENABLED adds them without; with GPUs by a claim of the DRA driver there is no such plugin",
}


def _template(count: int) -> dict[str, Any]:
    """`resource.k8s.io/v1` came with Kubernetes 1.34."""
    request = {
        "name": "gpus",
        "exactly": {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": count},
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": _TEMPLATE},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


def _in_order(path: str) -> tuple[str | int, ...]:
    """nvidia-fs2 before nvidia-fs10."""
    return tuple(int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", path))


def applies(plan: Plan) -> bool:
    return plan.intent.workload is not None and start(plan) is not None


def emit(plan: Plan) -> Artifact:
    """One Pod that runs the server of `--emit lmcache` on a host path, and the template of its claim where it asks by one."""
    found = start(plan)
    if found is None:
        return Artifact(path="pod.yaml", content="# no mount to give to a pod\n")
    routes = {route.route for route in plan.routes_after if route.mount == found.target}
    mount = next((m for m in plan.node_after.mounts if m.target == found.target), None)
    rdma = mount is not None and mount.backing.transport == "rdma"
    claim = f"; or persistentVolumeClaim: {{claimName: {dns_name(found.target)}}}, of --emit storageclass"
    nfs = mount is not None and mount.fstype in ("nfs", "nfs4")
    comments = [
        f"data: a host path{claim if nfs else ''}",
        "merge volumes, volumeMounts, securityContext and resources into your own manifest; IMAGE is yours too",
        "/run/udev and cufile.json: cuFile refuses files without the first, and takes its settings from the second",
    ]
    volumes: list[tuple[str, str, bool]] = [
        ("data", found.target, False),
        ("udev", "/run/udev", True),
        ("cufile", "/etc/cufile.json", True),
    ]
    if "nvidia-fs" in routes:
        nodes = sorted(
            (path for path in plan.node.nvidia_fs.device_nodes or () if path.startswith("/dev/")), key=_in_order
        )
        nodes = nodes or [f"/dev/nvidia-fs{gpu.index}" for gpu in plan.node.gpus]
        volumes += [(f"nvidia-fs{index}", path, False) for index, path in enumerate(nodes)]
    security: dict[str, Any] = {"privileged": True} if "nvidia-fs" in routes else {}
    count = len(plan.node.gpus) or 1
    by_claim = plan.intent.workload is not None and plan.intent.workload.gpus_by == "resource-claim"
    resources: dict[str, Any] = {"claims": [{"name": "gpus"}]} if by_claim else {"limits": {"nvidia.com/gpu": count}}
    if rdma:
        security["capabilities"] = {"add": ["IPC_LOCK"]}
        volumes.append(("infiniband", "/dev/infiniband", False))
        comments.append(
            "RDMA: /dev/infiniband (or a resource of your RDMA device plugin), memory that may be locked, and the host's "
            "network, for rdma_dev_addr_list names IPv4 addresses that must exist inside the pod"
        )
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "gdsctl-kv"},
        "spec": {
            "hostIPC": True,
            "hostNetwork": rdma,
            **({"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": _TEMPLATE}]} if by_claim else {}),
            "containers": [
                {
                    "name": "lmcache",
                    "image": "IMAGE",
                    "command": list(found.words),
                    "resources": resources,
                    "securityContext": security,
                    "volumeMounts": [
                        {"name": name, "mountPath": path, **({"readOnly": True} if only else {})}
                        for name, path, only in volumes
                    ],
                }
            ],
            "volumes": [{"name": name, "hostPath": {"path": path}} for name, path, _ in volumes],
        },
    }
    parts: list[tuple[list[str], Any]] = [(comments, pod)]
    if by_claim:
        parts.append((["the node needs NVIDIA's DRA driver instead of its device plugin"], _template(count)))
    reasons = {f"/spec/volumes/{index}": path for index, (_, path, _) in enumerate(volumes)}
    content = yaml_stream(*parts)
    if "privileged" in security:
        why = _PRIVILEGED + _WITHOUT[by_claim]
        reasons["/spec/containers/0/securityContext/privileged"] = why
        line = "      privileged: true\n"
        content = content.replace(line, f"      {comment(why)}\n{line}", 1)
    return Artifact(path="pod.yaml", content=content, reasons=reasons)

"""A pod that may go direct: the volumes, devices, capabilities and resources to merge into one's own manifest."""

from __future__ import annotations

from typing import Any

from gdsctl.emit.lmcache import start
from gdsctl.emit.yaml_stream import yaml_stream
from gdsctl.plan.desired import Plan
from gdsctl.plan.documents import Artifact


def applies(plan: Plan) -> bool:
    return plan.intent.workload is not None and start(plan) is not None


def emit(plan: Plan) -> Artifact:
    """One Pod that runs the server of `--emit lmcache` on a host path."""
    found = start(plan)
    if found is None:
        return Artifact(path="pod.yaml", content="# no mount to give to a pod\n")
    routes = {route.route for route in plan.routes_after if route.mount == found.target}
    mount = next((m for m in plan.node_after.mounts if m.target == found.target), None)
    rdma = mount is not None and mount.backing.transport == "rdma"
    comments = [
        "merge volumes, volumeMounts, securityContext and resources into your own manifest; IMAGE is yours too",
        "/run/udev and cufile.json: cuFile refuses files without the first, and takes its settings from the second",
    ]
    volumes: list[tuple[str, str, bool]] = [
        ("data", found.target, False),
        ("udev", "/run/udev", True),
        ("cufile", "/etc/cufile.json", True),
    ]
    if "nvidia-fs" in routes:
        nodes = sorted(path for path in plan.node.nvidia_fs.device_nodes or () if path.startswith("/dev/"))
        nodes = nodes or [f"/dev/nvidia-fs{gpu.index}" for gpu in plan.node.gpus]
        volumes += [(f"nvidia-fs{index}", path, False) for index, path in enumerate(nodes)]
        comments.append(
            "/dev/nvidia-fs*: a plain mount does not lift the device cgroup's ban, hence privileged; the device plugin with "
            "GDS_ENABLED adds them without, and /run/udev and cufile.json too"
        )
    security: dict[str, Any] = {"privileged": True} if "nvidia-fs" in routes else {}
    resources: dict[str, Any] = {"nvidia.com/gpu": len(plan.node.gpus) or 1}
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
            "containers": [
                {
                    "name": "lmcache",
                    "image": "IMAGE",
                    "command": list(found.words),
                    "resources": {"limits": resources},
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
    reasons = {f"/spec/volumes/{index}": path for index, (_, path, _) in enumerate(volumes)}
    return Artifact(path="pod.yaml", content=yaml_stream((comments, pod)), reasons=reasons)

"""StorageClass and PersistentVolumeClaim of VAST's CSI driver for the intended NFS mounts.

Parameters as vast-csi 2.4.2 takes them (csi.vastdata.com; vip_pool_name, root_export, view_policy).
"""

from __future__ import annotations

import re
from typing import Any

from gdsctl.emit.yaml_stream import yaml_stream
from gdsctl.plan.desired import Plan
from gdsctl.plan.documents import Artifact
from gdsctl.plan.mounts import MountPlan

# Per node, set by the driver itself, or the kubelet's business.
_LEFT_OUT = frozenset(
    {
        "localports",
        "rw",
        "ro",
        "relatime",
        "defaults",
        "_netdev",
        "rsize",
        "wsize",
        "timeo",
        "retrans",
        "sec",
        "hard",
        "namlen",
    }
)


def _fitting(plan: Plan) -> list[MountPlan]:
    return [wish for wish in plan.mounts if wish.fstype in ("nfs", "nfs4")]


def applies(plan: Plan) -> bool:
    return plan.intent.workload is not None and bool(_fitting(plan))


def emit(plan: Plan) -> Artifact:
    """Two documents a mount. What only the storage's administrator knows is written in capitals."""
    parts: list[tuple[tuple[str, ...], Any]] = []
    for wish in _fitting(plan):
        name = dns_name(wish.target)
        _, _, export = wish.source.partition(":")
        options = [option for option in wish.options if option.partition("=")[0] not in _LEFT_OUT]
        comments = [
            f"{wish.target}: {wish.why}",
            "vip_pool_name and view_policy: ask the storage's administrator; later drivers take storagePath for root_export",
        ]
        if any(option.startswith("localports=") for option in wish.options):
            comments.append(
                "localports is left out: it holds one node's own addresses, and a StorageClass is shared by all nodes; "
                "put it in /etc/nfsmount.conf.d of each node (gdsctl plan --emit nfsmount.conf)"
            )
        parts += [
            (
                tuple(comments),
                {
                    "apiVersion": "storage.k8s.io/v1",
                    "kind": "StorageClass",
                    "metadata": {"name": name},
                    "provisioner": "csi.vastdata.com",
                    "parameters": {
                        "vip_pool_name": "VIP-POOL",
                        "view_policy": "VIEW-POLICY",
                        "root_export": export or "/",
                    },
                    "mountOptions": options,
                    "reclaimPolicy": "Retain",
                    "volumeBindingMode": "Immediate",
                    "allowVolumeExpansion": True,
                },
            ),
            (
                (),
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "metadata": {"name": name},
                    "spec": {
                        "accessModes": ["ReadWriteMany"],
                        "storageClassName": name,
                        "resources": {"requests": {"storage": "1Ti"}},
                    },
                },
            ),
        ]
    if not parts:
        return Artifact(path="storageclass.yaml", content="# no NFS mount in the plan\n")
    return Artifact(
        path="storageclass.yaml",
        content=yaml_stream(*parts),
        reasons={f"/{index * 2}": wish.why for index, wish in enumerate(_fitting(plan))},
    )


def dns_name(target: str) -> str:
    """A path as a Kubernetes name (RFC 1123 label)."""
    plain = re.sub(r"[^a-z0-9]+", "-", target.lower()).strip("-")[:50].strip("-")
    return f"gds-{plain}" if plain else "gds"

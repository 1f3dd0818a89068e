"""How to start `lmcache server` on this node: a GDS L1 where the path goes direct, a DRAM L1 above plain files elsewhere."""

from __future__ import annotations

import json

from gdsctl.emit.comment import comment
from gdsctl.model.shell import quoted
from gdsctl.plan.desired import Plan
from gdsctl.plan.documents import Artifact
from gdsctl.record import Record

PORT = 5555  # lmcache server's own default, and that of LMCacheMPConnector
L1_GIB = 64
L2_GIB = 4 * L1_GIB
SINCE = "0.5.6"  # --l1-manager (config.py of 0.5.5 lacks it)
SINCE_FS_NATIVE = "0.4.3"
_DIRECT = ("nvidia-fs", "p2pdma", "c2c", "rdma")
_CHUNK_TOKENS = 256  # lmcache server's own default


class Start(Record, frozen=True, kw_only=True):
    """`words`: the command line; `path`: where the tier lies, on the mount `target`; `direct`: is it a GDS L1."""

    words: tuple[str, ...]
    path: str
    target: str
    direct: bool
    reasons: tuple[str, ...]


def start(plan: Plan) -> Start | None:
    """The first intended mount that goes direct for all GPUs, or else the first; None without any mount."""
    targets = [wish.target for wish in plan.intent.mounts or ()]
    if not targets:
        return None
    straight = [target for target in targets if _goes_direct(plan, target)]
    target = (straight or targets)[0]
    path = f"{target.rstrip('/')}/lmcache"
    words = ["lmcache", "server", "--port", str(PORT), "--eviction-policy", "LRU", "--chunk-size"]
    size = f"{L1_GIB} GiB to begin with: gdsctl size tells how many sessions that holds"
    if straight:
        manager = {
            "type": "GDS",
            "tag": "gds",
            "size_gb": L1_GIB,
            "path": path,
            "backend": "cufile",
            "direct_io": True,
        }
        words += [str(_CHUNK_TOKENS), "--l1-manager", json.dumps(manager)]
        reasons = (
            f"{target} goes direct for every GPU: the L1 is a GDS slab, bytes go GPU <-> file",
            "the slab is emptied at each start, and takes no L2 adapter",
        )
    else:
        adapter = {"type": "fs_native", "base_path": path, "use_odirect": True, "max_capacity_gb": L2_GIB}
        words += [str(_CHUNK_TOKENS), "--l1-size-gb", str(L1_GIB), "--l2-adapter", json.dumps(adapter)]
        reasons = (
            f"{target} does not go direct for every GPU: a GDS L1 would go through host memory anyway",
            "a DRAM L1 with files below it: bytes go GPU <-> host memory <-> file, and GPUDirect Storage has no part in it",
        )
    return Start(words=tuple(words), path=path, target=target, direct=bool(straight), reasons=(*reasons, size))


def _goes_direct(plan: Plan, target: str) -> bool:
    routes = [route.route for route in plan.routes_after if route.mount == target]
    return bool(routes) and all(route in _DIRECT for route in routes)


def applies(plan: Plan) -> bool:
    return plan.intent.workload is not None and start(plan) is not None


def emit(plan: Plan) -> Artifact:
    """A script; the engine's option stands above it as a comment."""
    found = start(plan)
    if found is None:
        return Artifact(path="lmcache.sh", content=comment("no mount to keep a cache on") + "\n")
    connector = {
        "kv_connector": "LMCacheMPConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"lmcache.mp.host": "127.0.0.1", "lmcache.mp.port": PORT},
    }
    lines = ["#!/bin/bash", *map(comment, found.reasons)]
    lines += [
        comment(
            f"the options are those of LMCache {SINCE} and later: lmcache server --help tells whether yours has them"
            if found.direct
            else f"the options are those of LMCache {SINCE_FS_NATIVE} and later"
        ),
        comment(f"the engine: vllm serve MODEL --kv-transfer-config {quoted(json.dumps(connector))}"),
        "set -e",
        f"mkdir -p -- {quoted(found.path)}",
        "exec " + " ".join(quoted(word) for word in found.words),
    ]
    reasons = {str(lines.index(lines[-1]) + 1): found.reasons[0]}
    return Artifact(path="lmcache.sh", content="\n".join(lines) + "\n", reasons=reasons)

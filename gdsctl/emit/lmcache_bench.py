"""A configuration for `lmcache bench engine --config`: long documents asked twice, more of them than the upper tier holds.

Keys as LMCache 0.4.7 to 0.5.6 read them (cli/commands/bench/engine_bench); one GB there is 2^30 bytes.
"""

from __future__ import annotations

import json

from gdsctl.emit.comment import comment
from gdsctl.emit.lmcache import L1_GIB, L2_GIB, start
from gdsctl.plan.desired import Plan
from gdsctl.plan.documents import Artifact

DOCUMENT_TOKENS = 10_000
"""LMCache's own default."""


def configuration(volume_gib: float, document_tokens: int, tokens_per_gib: float | None = None) -> dict[str, object]:
    """`volume_gib`: KV cache that the documents make; without `tokens_per_gib` LMCache's server must tell it."""
    found: dict[str, object] = {"workload": "long-doc-qa"}
    if tokens_per_gib is not None:
        found["tokens_per_gb_kvcache"] = int(tokens_per_gib)
    return found | {
        "kv_cache_volume": volume_gib,
        "ldqa_document_length": document_tokens,
        "ldqa_query_per_document": 2,
        "ldqa_shuffle_policy": "tile",
        "ldqa_num_inflight_requests": 4,
    }


def text(values: dict[str, object]) -> str:
    return json.dumps(values, indent=2) + "\n"


def applies(plan: Plan) -> bool:
    return plan.intent.workload is not None and start(plan) is not None


def emit(plan: Plan) -> Artifact:
    """For the server of `--emit lmcache`; JSON, so its reasons stand beside it and not in it."""
    found = start(plan)
    if found is None:
        return Artifact(path="lmcache-bench.json", content=comment("no mount to keep a cache on") + "\n")
    volume = L1_GIB * 3 // 4 if found.direct else (L1_GIB + L2_GIB) // 2
    what = (
        f"{volume} GiB fit the slab of {L1_GIB} GiB: what the engine's own cache has lost comes from the file"
        if found.direct
        else f"{volume} GiB are more than the {L1_GIB} GiB of host memory and less than the files below: those answer"
    )
    return Artifact(
        path="lmcache-bench.json",
        content=text(configuration(volume, DOCUMENT_TOKENS)),
        reasons={
            "/kv_cache_volume": what,
            "/ldqa_shuffle_policy": "tile: each document is asked once before any is asked again, so none is still above",
            "": "lmcache bench engine --engine-url URL --lmcache-url http://127.0.0.1:8080 --config lmcache-bench.json: "
            "the server tells the tokens of a GiB (gdsctl size --format lmcache-bench writes them down)",
        },
    )

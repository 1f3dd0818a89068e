"""Writes the tables of kv-cache.md out of the rows that gdsctl judges by.

python docs/build_kv_cache.py            writes them
python docs/build_kv_cache.py --check    exit code 1 where they are not current
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gdsctl.kvcache.stack import Edge

PAGE = Path(__file__).resolve().parent / "kv-cache.md"


SERVER = "lmcache server --eviction-policy LRU --l1-size-gb 64"
ENGINE = "vllm serve m --kv-transfer-config"


def _adapter(**fields: object) -> str:
    return f"{SERVER} --l2-adapter '{json.dumps(fields)}'"


def _engine(connector: str, **extra: object) -> str:
    config = {"kv_connector": connector, "kv_connector_extra_config": extra}
    return f"{ENGINE} '{json.dumps(config)}'"


def _connector(**extra: object) -> str:
    return _engine("OffloadingConnector", **extra)


def _nixl(backend: str, device: str) -> str:
    extra = f"{{enable_nixl_storage: true, nixl_backend: {backend}, nixl_path: /kv}}"
    return f"local_cpu: false\nnixl_buffer_device: {device}\nextra_config: {extra}\n"


def _llmd(mode: str) -> str:
    return _connector(spec_name="SharedStorageOffloadingSpec", gds_mode=mode)


# The configurations that people ask about, each as a text that gdsctl reads.
CONFIGURATIONS: tuple[tuple[str, str], ...] = (
    ("LMCache server, DRAM L1, `nixl_store` GDS", _adapter(type="nixl_store", backend="GDS")),
    ("LMCache server, DRAM L1, `nixl_store_dynamic` GDS_MT", _adapter(type="nixl_store_dynamic", backend="GDS_MT")),
    ("LMCache server, DRAM L1, `nixl_native` GDS", _adapter(type="nixl_native", backend="GDS")),
    ("LMCache server, DRAM L1, `nixl_store` POSIX", _adapter(type="nixl_store", backend="POSIX")),
    ("LMCache server, DRAM L1, `fs`", _adapter(type="fs")),
    ("LMCache server, DRAM L1, `fs_native`", _adapter(type="fs_native")),
    ("LMCache server, DRAM L1, `raw_block`", _adapter(type="raw_block")),
    ("LMCache server, DRAM L1, `raw_block` with `use_uring_cmd`", _adapter(type="raw_block", use_uring_cmd=True)),
    ("LMCache server, DRAM L1, `dax`", _adapter(type="dax")),
    ("LMCache server, DRAM L1, `p2p`", _adapter(type="p2p")),
    ("LMCache server, DRAM L1, `s3`", _adapter(type="s3")),
    ("LMCache server, DRAM L1, `hf3fs`", _adapter(type="hf3fs")),
    ("LMCache server, `phx` with device_ids", _adapter(type="phx", device_ids=[0])),
    ("LMCache server, `--gds-l1-path`", f"{SERVER} --gds-l1-path /kv --gds-l1-backend cufile"),
    ("LMCache server, `--l1-manager` GDS", """lmcache server --l1-manager '{"type":"GDS","tag":"g","path":"/kv"}'"""),
    ("LMCache in-process, `gds_path`, `use_gds: true`", "local_cpu: false\ngds_path: /kv\nuse_gds: true\n"),
    ("LMCache in-process, NIXL GDS_MT, buffer on cuda", _nixl("GDS_MT", "cuda")),
    ("LMCache in-process, NIXL GDS_MT, buffer on cpu", _nixl("GDS_MT", "cpu")),
    ("LMCache in-process, NIXL OBJ, buffer on cuda", _nixl("OBJ", "cuda")),
    ("KVBM, CPU and disk", "DYN_KVBM_CPU_CACHE_GB=64\nDYN_KVBM_DISK_CACHE_GB=128\n"),
    ("KVBM, disk only", "DYN_KVBM_DISK_CACHE_GB=128\n"),
    ("FlexKV, CPU and SSD", "FLEXKV_SSD_CACHE_GB=128\n"),
    ("FlexKV, CPU and SSD, `FLEXKV_ENABLE_GDS=1`", "FLEXKV_SSD_CACHE_GB=128\nFLEXKV_ENABLE_GDS=1\n"),
    ("ModelExpress", "vllm serve m --load-format modelexpress"),
    ("ModelExpress, `MX_INSTANT_TENSOR=0`", "MX_INSTANT_TENSOR=0 vllm serve m --load-format modelexpress"),
    ("InstantTensor", "vllm serve m --load-format instanttensor"),
    (
        "InstantTensor, `INSTANTTENSOR_BACKEND=CUFILE`",
        "INSTANTTENSOR_BACKEND=CUFILE vllm serve m --load-format instanttensor",
    ),
    ("fastsafetensors, one rank", "vllm serve m --load-format fastsafetensors"),
    ("fastsafetensors, several ranks", "vllm serve m --load-format fastsafetensors --tensor-parallel-size 4"),
    (
        "fastsafetensors in SGLang, several ranks",
        "python3 -m sglang.launch_server --load-format fastsafetensors --tp 4",
    ),
    ("llm-d fs, `gds_mode: disabled`", _llmd("disabled")),
    ("llm-d fs, `gds_mode: read_only`", _llmd("read_only")),
    ("llm-d fs, `gds_mode: read_write`", _llmd("read_write")),
    ("llm-d fs, `gds_mode: bb_read_write`", _llmd("bb_read_write")),
    (
        "vLLM's own offloading, CPU and `fs`",
        _connector(spec_name="TieringOffloadingSpec", secondary_tiers=[{"type": "fs"}]),
    ),
    ("vLLM `SimpleCPUOffloadConnector`, disk", _engine("SimpleCPUOffloadConnector", kv_offload_backend="disk")),
    ("vLLM `HF3FSKVConnector`", _engine("HF3FSKVConnector")),
    ("vLLM `MooncakeStoreConnector`", _engine("MooncakeStoreConnector")),
    (
        "SGLang HiCache with nixl",
        "python3 -m sglang.launch_server --enable-hierarchical-cache --hicache-storage-backend nixl",
    ),
)


def configurations() -> str:
    """The verdict of gdsctl on each configuration, with the versions that were looked at and when."""
    from gdsctl.data import app_edges
    from gdsctl.kvcache.app import judge
    from gdsctl.model.node import Tool

    checked = {row.source: row.checked.isoformat() for row in app_edges.rows()}
    lines = ["| configuration | bytes | GDS can help | looked at | on |", "|---|---|---|---|---|"]
    for name, text in CONFIGURATIONS:
        report = judge([("f", text)], tool=Tool(name="gdsctl", version=""))
        edges = [edge for stack in report.stacks for edge in stack.edges]
        stored = [edge for edge in edges if {"file", "object"} & {edge.from_, edge.to}] or edges
        told = {
            edge.gds_helps if edge.direction == "both" else f"{edge.direction}: {edge.gds_helps}": None
            for edge in stored
        }
        answers = "; ".join(
            dict.fromkeys(f"{answer.versions}: {answer.gds_helps}" for edge in stored for answer in edge.answers)
        )
        sources = list(dict.fromkeys(source for edge in stored for source in _sources(edge)))
        cells = (
            name,
            "; ".join(dict.fromkeys(_way(edge.from_, edge.to, edge.direction, edge.staged_in) for edge in edges)),
            answers or ", ".join(told),
            "; ".join(sources),
            max(checked[source] for source in sources),
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def _sources(edge: Edge) -> tuple[str, ...]:
    return tuple(answer.source for answer in edge.answers) or (edge.source,)


def _way(start: str, end: str, direction: str, staged: str | None) -> str:
    arrow = {"both": "<->", "store": "->", "load": "->"}[direction]
    return f"{start} {arrow} {end}" + (f", staged in {staged}" if staged else "")


def edges() -> str:
    """One line a row of app_edges.toml."""
    from gdsctl.data import app_edges

    lines = [
        "| software | step | backend | holds for | bytes | through | GDS can help | source | looked at |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in app_edges.rows():
        way = _way(row.from_, row.to, row.direction, row.staged_in)
        backends = ", ".join(row.backends) or "any"
        cells = (
            row.software,
            f"`{row.shape}`",
            backends,
            row.range or "all",
            way,
            row.api,
            row.gds_helps,
            row.source,
            row.checked.isoformat(),
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def names() -> str:
    """Names that a version brought or took away."""
    from gdsctl.data import app_versions

    lines = ["| software | name | since | until | source |", "|---|---|---|---|---|"]
    lines += [
        f"| {row.of} | `{row.name}` | {row.since} | {row.until and f'before {row.until}'} | {row.source} |"
        for row in app_versions.rows()
    ]
    return "\n".join(lines)


def needs() -> str:
    """What each path needs, by the words of the diagrams."""
    from make_diagrams import guide  # type: ignore[import-not-found]  # the script beside this one

    lines = ["| path | node | container |", "|---|---|---|"]
    lines += [f"| {path['name']} | {path['node']} | {path['container']} |" for path in guide()["path"]]
    return "\n".join(lines)


def models() -> str:
    """Bytes per token of the public models that gdsctl knows by name, by its own arithmetic."""
    from gdsctl.data import app_models
    from gdsctl.kvcache.model_config import read_model_config
    from gdsctl.kvcache.size import Asked, size_of_model

    lines = ["| model | bytes per token | tokens per GiB | 32,000 tokens | one chunk of 256 |", "|---|---|---|---|---|"]
    for row in app_models.rows():
        size = size_of_model(read_model_config(json.dumps(row.config)), 1, Asked(tokens=32000))
        name = row.source.removesuffix(" config.json")
        chunk = size.chunk_bytes / (1 << 20)
        cells = (
            name,
            f"{size.bytes_per_token:,}",
            f"{size.tokens_per_gib:,}",
            f"{size.request_gib:.2f} GiB",
            f"{chunk:.4g} MiB",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def built(page: str) -> str:
    """The page with its tables as they are to be."""
    tables = {"configurations": configurations, "edges": edges, "names": names, "needs": needs, "models": models}
    for name, made in tables.items():
        table = made()
        mark = rf"(<!-- table: {name} -->\n)(.*?)(<!-- end -->)"
        page = re.sub(mark, lambda match, table=table: f"{match[1]}{table}\n{match[3]}", page, flags=re.DOTALL)  # type: ignore[misc]
    return page


def main() -> int:
    page = PAGE.read_text()
    wanted = built(page)
    if "--check" in sys.argv[1:]:
        if wanted != page:
            sys.stderr.write("not current: kv-cache.md; run python docs/build_kv_cache.py\n")
        return int(wanted != page)
    PAGE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())

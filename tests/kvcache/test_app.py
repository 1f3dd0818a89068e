"""Whether bytes go between GPU and storage: every configuration of the field, each finding with its near miss."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdsctl import pipeline
from gdsctl.assess.assessment import assess
from gdsctl.assess.rules import explained, explanation
from gdsctl.cli import run
from gdsctl.cli.app_command import lacking
from gdsctl.collect.node import collect
from gdsctl.data import app_edges
from gdsctl.data.app_findings import stories
from gdsctl.errors import InputError
from gdsctl.kvcache.app import AppReport, judge
from gdsctl.model.node import Tool
from gdsctl.render.documents import to_json
from gdsctl.render.schemas import schema
from gdsctl.source.opening import open_source

TOOL = Tool(name="gdsctl", version="0")
SERVER = "lmcache server --eviction-policy LRU --l1-size-gb 64 "
REMOTE = "python -m sglang.launch_server --model-path m --load-format remote_instance"
SGLANG_MX = f"{REMOTE} --remote-instance-weight-loader-backend modelexpress"
SEED = "".join(
    f" --remote-instance-weight-loader-seed-instance-{name}" for name in ("ip 192.0.2.1", "service-port 30000")
)
GDS_L1 = """lmcache server --eviction-policy LRU --l1-manager '{"type":"GDS","tag":"gds","size_gb":100,"path":"/mnt/nvme"}' """


def l2(text: str) -> str:
    return f"{SERVER} --l2-adapter '{text}'"


def nixl(kind: str, backend: str, **more: Any) -> str:
    params = {"file_path": "/mnt/nvme/l2", "use_direct_io": "true", "max_capacity_gb": "640"}
    return l2(json.dumps({"type": kind, "backend": backend, "backend_params": params, **more}))


def vllm(connector: str, **extra: Any) -> str:
    config = {"kv_connector": connector, "kv_role": "kv_both", "kv_connector_extra_config": extra}
    return f"vllm serve meta-llama/Llama-3.1-70B-Instruct --kv-transfer-config '{json.dumps(config)}'"


def app(*texts: str, **options: Any) -> AppReport:
    return judge([(f"f{index}", text) for index, text in enumerate(texts, 1)], tool=TOOL, **options)


def ids(report: AppReport, *severities: str) -> list[str]:
    return [f.id for f in report.findings if not severities or f.severity in severities]


# (configuration, edges as from, to, direction, staged in, can GDS help): the table of configurations in the field.
ROWS: dict[str, tuple[str, list[tuple[str, str, str, str | None, str]]]] = {
    "DRAM L1 alone": (SERVER, [("gpu", "dram", "both", None, "no")]),
    **{
        f"DRAM L1 and {kind} {backend}": (
            nixl(kind, backend, pool_size=10**9),
            [("gpu", "dram", "both", None, "no"), ("dram", "file", "both", "dram", "no")],
        )
        for kind in ("nixl_store", "nixl_store_dynamic", "nixl_native")
        for backend in ("GDS", "GDS_MT", "POSIX", "HF3FS")
    },
    "DRAM L1 and nixl_store OBJ": (
        l2('{"type":"nixl_store","backend":"OBJ","backend_params":{},"pool_size":1000000000}'),
        [("gpu", "dram", "both", None, "no"), ("dram", "object", "both", "dram", "no")],
    ),
    **{
        f"DRAM L1 and {kind}": (
            l2(f'{{"type":"{kind}","base_path":"/mnt/nvme"}}'),
            [("gpu", "dram", "both", None, "no"), ("dram", to, "both", "dram", "no")],
        )
        for kind, to in (
            ("fs", "file"),
            ("fs_native", "file"),
            ("raw_block", "file"),
            ("hf3fs", "file"),
            ("s3", "object"),
        )
    },
    "raw_block through io_uring": (
        l2('{"type":"raw_block","device_path":"/dev/nvme0n1","slot_bytes":1048576,"io_engine":"io_uring"}'),
        [("gpu", "dram", "both", None, "no"), ("dram", "file", "both", "dram", "no")],
    ),
    "raw_block by NVMe commands": (
        l2('{"type":"raw_block","device_path":"/dev/ng0n1","io_engine":"io_uring","use_uring_cmd":true}'),
        [("gpu", "dram", "both", None, "no"), ("dram", "file", "both", "dram", "no")],
    ),
    "dax": (
        l2('{"type":"dax","device_path":"/dev/dax0.0","max_dax_size_gb":100,"slot_bytes":1048576}'),
        [("gpu", "dram", "both", None, "no"), ("dram", "dram", "both", None, "no")],
    ),
    "p2p": (
        l2('{"type":"p2p","peer_mq_server_url":"tcp://b:1"}'),
        [("gpu", "dram", "both", None, "no"), ("dram", "dram", "both", None, "no")],
    ),
    "an adapter of somebody's own": (
        l2('{"type":"native_plugin","module_path":"m","class_name":"C"}'),
        [("gpu", "dram", "both", None, "no"), ("dram", "file", "both", None, "unknown")],
    ),
    "a wrapper for tests": (
        l2('{"type":"fault_inject","rate":0.1,"inner":{"type":"s3"}}'),
        [("gpu", "dram", "both", None, "no"), ("dram", "object", "both", "dram", "no")],
    ),
    "in-process raw block device": (
        "extra_config:\n  storage_plugins: [raw]\n  rust_raw_block.device_path: /dev/nvme0n1\nlocal_cpu: true\n",
        [("gpu", "dram", "both", None, "no"), ("dram", "file", "both", "dram", "no")],
    ),
    "phx": (
        l2('{"type":"phx","base_path":"/mnt/nvme","device_ids":[0]}'),
        [
            ("gpu", "dram", "both", None, "no"),
            ("dram", "file", "store", "dram", "no"),
            ("file", "gpu", "load", None, "half"),
        ],
    ),
    "phx without devices": (
        l2('{"type":"phx","base_path":"/mnt/nvme"}'),
        [
            ("gpu", "dram", "both", None, "no"),
            ("dram", "file", "store", "dram", "no"),
            ("file", "dram", "load", "dram", "no"),
        ],
    ),
    "GDS L1 by manager": (GDS_L1, [("gpu", "file", "both", None, "yes")]),
    "GDS L1 by flag": (SERVER + "--gds-l1-path /mnt/nvme", [("gpu", "file", "both", None, "yes")]),
    "GDS L1 for AMD": (SERVER + "--gds-l1-path /x --gds-l1-backend=hipfile", [("gpu", "file", "both", None, "no")]),
    "in-process GDS": (
        "local_cpu: false\ngds_path: /mnt/nvme\nuse_gds: true\n",
        [("gpu", "file", "both", None, "yes")],
    ),
    "in-process GDS switched off": (
        "local_cpu: false\ngds_path: /mnt/nvme\nuse_cufile: false\n",
        [("gpu", "file", "both", "dram", "no")],
    ),
    "in-process NIXL on GPU memory": (
        "local_cpu: false\nnixl_buffer_device: cuda\nextra_config: {enable_nixl_storage: true, nixl_backend: GDS_MT, nixl_path: /mnt/nvme}\n",
        [("gpu", "file", "both", None, "yes")],
    ),
    "in-process NIXL on host memory": (
        "local_cpu: false\nnixl_buffer_device: cpu\nextra_config: {enable_nixl_storage: true, nixl_backend: GDS, nixl_path: /mnt/nvme}\n",
        [("dram", "file", "both", "dram", "no")],
    ),
    "in-process by environment": (
        "LMCACHE_LOCAL_CPU=False LMCACHE_GDS_PATH=/mnt/nvme " + vllm("LMCacheConnectorV1"),
        [("gpu", "file", "both", None, "yes")],
    ),
    "KVBM, CPU and disk": (
        "DYN_KVBM_CPU_CACHE_GB=100\nDYN_KVBM_DISK_CACHE_GB=200\nDYN_KVBM_DISK_CACHE_DIR=/mnt/nvme\n",
        [("gpu", "dram", "both", None, "no"), ("dram", "file", "both", "dram", "no")],
    ),
    "KVBM, disk only": ("DYN_KVBM_DISK_CACHE_GB=200\n", [("gpu", "file", "both", None, "yes")]),
    "in-process NIXL on one GPU's memory": (
        "local_cpu: false\nnixl_buffer_device: cuda:0\nextra_config: {enable_nixl_storage: true, nixl_backend: GDS, nixl_path: /kv}\n",
        [("gpu", "file", "both", None, "yes")],
    ),
    "memory of another kind behind the L1": (
        l2('{"type":"cxl_peer"}') + """ --l2-adapter '{"type":"dram","max_size_gb":9}'""",
        [
            ("gpu", "dram", "both", None, "no"),
            ("dram", "dram", "both", None, "no"),
            ("dram", "dram", "both", None, "no"),
        ],
    ),
    "libblkio": (
        l2('{"type":"blkio","device_path":"/dev/nvme0n1"}'),
        [("gpu", "dram", "both", None, "no"), ("dram", "file", "both", "dram", "no")],
    ),
    "KVBM, CPU of size 0": (
        "DYN_KVBM_CPU_CACHE_GB=0\nDYN_KVBM_DISK_CACHE_GB=200\n",
        [("gpu", "file", "both", None, "yes")],
    ),
    "ModelExpress": ("vllm serve m --load-format modelexpress", [("file", "gpu", "load", None, "unknown")]),
    "ModelExpress, its GDS stage": (
        "MX_INSTANT_TENSOR=0 vllm serve m --load-format modelexpress",
        [("file", "gpu", "load", None, "yes")],
    ),
    "InstantTensor with cuFile": (
        "INSTANTTENSOR_BACKEND=CUFILE vllm serve m --load-format instanttensor",
        [("file", "gpu", "load", None, "yes")],
    ),
    "InstantTensor without": (
        "INSTANTTENSOR_BACKEND=URING,AIO vllm serve m --load-format instanttensor",
        [("file", "gpu", "load", "dram", "no")],
    ),
    "InstantTensor by default": ("vllm serve m --load-format instanttensor", [("file", "gpu", "load", "dram", "no")]),
    "fastsafetensors": ("vllm serve m --load-format fastsafetensors", [("file", "gpu", "load", None, "yes")]),
    "fastsafetensors, several ranks": (
        "vllm serve m --load-format fastsafetensors --tensor-parallel-size 2",
        [("file", "gpu", "load", None, "unknown")],
    ),
    "fastsafetensors, several ranks by -tp": (
        "vllm serve m --load-format fastsafetensors -tp 2",
        [("file", "gpu", "load", None, "unknown")],
    ),
    "fastsafetensors in SGLang, several ranks": (
        "python -m sglang.launch_server --model-path m --load-format fastsafetensors --tp 2",
        [("file", "gpu", "load", None, "yes")],  # SGLang sets nogds by enable_gds alone, not by ranks
    ),
    "fastsafetensors in SGLang, switched off": (
        """sglang serve --load-format fastsafetensors --model-loader-extra-config '{"enable_gds": false}'""",
        [("file", "gpu", "load", "dram", "no")],
    ),
    "ModelExpress behind the Model Streamer": (
        "MX_INSTANT_TENSOR=0 MX_MODEL_URI=s3://b/m vllm serve m --load-format modelexpress",
        [("file", "gpu", "load", None, "unknown")],
    ),
    # SGLang 0.5.23 and ModelExpress 0.7.0, read: its adapter for SGLang lacks InstantTensor, which vLLM's has
    "SGLang with ModelExpress": (SGLANG_MX, [("file", "gpu", "load", None, "yes")]),
    "SGLang with ModelExpress, whatever InstantTensor is told": (
        f"INSTANTTENSOR_BACKEND=URING {SGLANG_MX}",
        [("file", "gpu", "load", None, "yes")],
    ),
    "SGLang with ModelExpress behind the Model Streamer": (
        f"MX_MODEL_URI=s3://b/m {SGLANG_MX}",
        [("file", "gpu", "load", None, "unknown")],
    ),
    "SGLang with ModelExpress over TransferEngine": (
        SGLANG_MX + """ --modelexpress-config '{"transport": "transfer_engine"}'""",
        [("file", "gpu", "load", "dram", "no")],
    ),
    "SGLang with ModelExpress, its configuration in a variable": (
        SGLANG_MX + ' --modelexpress-config "$MX"',
        [("dram", "file", "both", None, "unknown")],
    ),
    "SGLang from another instance": (
        f"{REMOTE} {SEED} --remote-instance-weight-loader-send-weights-group-ports '[1,2]'",
        [("gpu", "gpu", "load", None, "no")],
    ),
    "SGLang from another instance, by NCCL without its ports": (
        f"{REMOTE} {SEED}",
        [("file", "gpu", "load", "dram", "no")],
    ),
    "SGLang from another instance by TransferEngine": (
        f"{REMOTE} {SEED} --remote-instance-weight-loader-backend transfer_engine",
        [("gpu", "gpu", "load", None, "no")],
    ),
    "llm-d fs, both ways": (
        vllm("OffloadingConnector", spec_name="SharedStorageOffloadingSpec", gds_mode="read_write"),
        [("gpu", "file", "store", None, "yes"), ("file", "gpu", "load", None, "yes")],
    ),
    "llm-d fs, reads": (
        vllm("OffloadingConnector", spec_name="SharedStorageOffloadingSpec", gds_mode="read_only"),
        [("gpu", "file", "store", "dram", "no"), ("file", "gpu", "load", None, "yes")],
    ),
    "llm-d fs, bounce buffers": (
        vllm("OffloadingConnector", spec_name="SharedStorageOffloadingSpec", gds_mode="bb_read_write"),
        [("gpu", "file", "store", "gpu", "yes"), ("file", "gpu", "load", "gpu", "yes")],
    ),
    "vLLM's own offloading": (vllm("OffloadingConnector"), [("gpu", "dram", "both", None, "no")]),
    "vLLM's own tiers": (
        vllm(
            "OffloadingConnector",
            spec_name="TieringOffloadingSpec",
            cpu_bytes_to_use=1 << 36,
            secondary_tiers=[{"type": "fs", "root_dir": "/mnt/nvme"}, {"type": "obj"}],
        ),
        [
            ("gpu", "dram", "both", None, "no"),
            ("dram", "file", "both", "dram", "no"),
            ("dram", "object", "both", "dram", "no"),
        ],
    ),
    "an offloading of somebody's own": (
        vllm("OffloadingConnector", spec_name="MySpec", spec_module_path="my.spec"),
        [("dram", "file", "both", None, "unknown")],
    ),
    "a tier of somebody's own": (
        vllm(
            "OffloadingConnector",
            spec_name="TieringOffloadingSpec",
            secondary_tiers=[{"type": "T", "module_path": "m"}],
        ),
        [("gpu", "dram", "both", None, "no"), ("dram", "file", "both", None, "unknown")],
    ),
    "vLLM's simple offloading": (vllm("SimpleCPUOffloadConnector"), [("gpu", "dram", "both", None, "no")]),
    "vLLM's simple offloading to a drive": (
        vllm("SimpleCPUOffloadConnector", kv_offload_backend="disk", disk_path="/mnt/nvme/kv"),
        [("gpu", "file", "both", "dram", "no")],
    ),
    "3FS in vLLM": (vllm("HF3FSKVConnector"), [("gpu", "file", "both", "dram", "no")]),
    "Mooncake's store in vLLM": (vllm("MooncakeStoreConnector"), [("gpu", "object", "both", None, "no")]),
    "prefill and decode": (vllm("NixlPushConnector", backends=["UCX", "GDS"]), [("gpu", "gpu", "both", None, "no")]),
    "a connector that no table knows": (vllm("TapeConnector"), [("dram", "file", "both", None, "unknown")]),
    "FlexKV by default": (vllm("FlexKVConnectorV1"), [("gpu", "dram", "both", None, "no")]),
    "FlexKV with a drive": (
        "FLEXKV_SSD_CACHE_GB=1024 FLEXKV_SSD_CACHE_DIR=/mnt/nvme " + vllm("FlexKVConnectorV1"),
        [
            ("gpu", "dram", "both", None, "no"),
            ("dram", "file", "store", "dram", "no"),
            ("file", "dram", "load", "dram", "no"),
        ],
    ),
    "FlexKV with GDS": (
        "FLEXKV_SSD_CACHE_GB=1024\nFLEXKV_SSD_CACHE_DIR=/mnt/nvme;/mnt/nvme2\nFLEXKV_ENABLE_GDS=1\n",
        [
            ("gpu", "dram", "both", None, "no"),
            ("dram", "file", "store", "dram", "no"),
            ("file", "gpu", "load", None, "yes"),
        ],
    ),
    "FlexKV by a file that is not here": (
        "FLEXKV_CONFIG_PATH=/etc/flexkv.yml " + vllm("FlexKVConnectorV1"),
        [("dram", "file", "both", None, "unknown")],
    ),
    "in-process NIXL OBJ on GPU memory": (
        "local_cpu: false\nnixl_buffer_device: cuda\nextra_config: {enable_nixl_storage: true, nixl_backend: OBJ}\n",
        [("gpu", "object", "both", None, "no")],
    ),
    "several connectors": (
        vllm("MultiConnector", connectors=[{"kv_connector": "NixlConnector"}, {"kv_connector": "OffloadingConnector"}]),
        [("gpu", "gpu", "both", None, "no"), ("gpu", "dram", "both", None, "no")],
    ),
    "SGLang HiCache with a backend of somebody's own": (
        "python3 -m sglang.launch_server --enable-hierarchical-cache --hicache-storage-backend dynamic",
        [("gpu", "dram", "both", None, "no"), ("dram", "file", "both", None, "unknown")],
    ),
    "SGLang HiCache with nixl": (
        "python3 -m sglang.launch_server --enable-hierarchical-cache --hicache-storage-backend nixl",
        [("gpu", "dram", "both", None, "no"), ("dram", "file", "both", "dram", "no")],
    ),
    "nixlbench on GPU memory": (
        "nixlbench --backend GDS --initiator_seg_type VRAM --filepath /mnt/nvme",
        [("gpu", "file", "both", None, "yes")],
    ),
    "nixlbench by default": ("nixlbench --backend GDS --filepath /x", [("dram", "file", "both", "dram", "no")]),
    "an adapter that no table knows": (
        l2('{"type":"tape"}'),
        [("gpu", "dram", "both", None, "no"), ("dram", "file", "both", None, "unknown")],
    ),
}


@pytest.mark.parametrize(
    ("text", "path", "gib"),
    [
        ('{"type":"raw_block","device_path":"/dev/nvme0n1","slot_bytes":4096,"capacity_bytes":1073741824}', "/dev/nvme0n1", 1),
        ('{"type":"dax","devices":[{"device_path":"/d0","max_dax_size_gb":3},{"device_path":"/d1","max_dax_size_gb":4}]}', "/d0", 7),
        ('{"type":"hf3fs","mount_point":"/3fs","base_paths":"a,b"}', "/3fs/a", None),
        ('{"type":"fs_native","base_path":"/kv","max_capacity_gb":640}', "/kv", 640),
    ],
)  # fmt: skip
def test_where_an_adapter_keeps_its_bytes(text: str, path: str, gib: float | None) -> None:
    tier = app(l2(text)).stacks[0].tiers[-1]
    assert (tier.path, tier.size_gib) == (path, gib)


@pytest.mark.parametrize(
    ("version", "connector", "lacks"),
    [
        ("0.22.1", {"kv_connector": "OffloadingConnector", "kv_connector_extra_config": {
            "spec_name": "TieringOffloadingSpec", "secondary_tiers": [{"type": "fs"}]}}, ["secondary tier fs"]),
        ("0.23.0", {"kv_connector": "OffloadingConnector", "kv_connector_extra_config": {
            "spec_name": "TieringOffloadingSpec", "secondary_tiers": [{"type": "fs"}]}}, []),
        ("0.16.0", {"kv_connector": "SimpleCPUOffloadConnector"}, ["SimpleCPUOffloadConnector"]),
        ("0.34.0", {"kv_connector": "P2pNcclConnector"}, ["P2pNcclConnector"]),
        ("0.16.0", {"kv_connector": "P2pNcclConnector"}, []),
    ],
)  # fmt: skip
def test_connectors_and_tiers_that_a_vllm_does_not_know(
    version: str, connector: dict[str, Any], lacks: list[str]
) -> None:
    text = json.dumps(connector, separators=(",", ":"))
    report = served(f"vllm/vllm-openai:v{version}", f"vllm serve m --kv-transfer-config '{text}'")
    told = [finding for finding in report.findings if finding.id == "app.version-lacks"]
    assert [finding.evidence[0].fact for finding in told] == lacks


def test_the_second_kvbm_keeps_its_file_in_tmp() -> None:
    """Its first release with a bypass makes /tmp/kvbm_g3_*.bin and does not look at the folder's variable."""
    connector = {"kv_connector": "DynamoConnector", "kv_connector_module_path": "MODULE"}
    text = f"DYN_KVBM_DISK_CACHE_GB=9 DYN_KVBM_DISK_CACHE_DIR=/mnt/nvme vllm serve m --kv-transfer-config '{json.dumps(connector)}'"
    paths = {
        module: app(text.replace("MODULE", module)).stacks[0].tiers[0].path
        for module in ("kvbm.v2.vllm.connector", "kvbm.vllm_integration.connector")
    }
    assert paths == {"kvbm.v2.vllm.connector": "/tmp", "kvbm.vllm_integration.connector": "/mnt/nvme"}


@pytest.mark.parametrize("name", list(ROWS))
def test_edges(name: str) -> None:
    text, expected = ROWS[name]
    report = app(text)
    edges = [edge for stack in report.stacks for edge in stack.edges]
    assert [(e.from_, e.to, e.direction, e.staged_in, e.gds_helps) for e in edges] == expected
    assert all(edge.because for edge in edges)
    if "unknown" in {edge.gds_helps for edge in edges}:
        assert report.verdict == "unknown"


def test_every_row_of_the_table_has_a_source_with_a_version_or_document() -> None:
    for row in app_edges.rows():
        assert len(row.source) > 8
        assert row.because
        assert (row.staged_in is None) or row.gds_helps in ("no", "yes")


def test_no_row_lets_gds_help_host_memory() -> None:
    """GDS moves GPU memory: a step that does not touch it, or stops in the host's, gains nothing."""
    for row in app_edges.rows():
        if row.gds_helps in ("yes", "half"):
            assert "gpu" in (row.from_, row.to), row
            assert row.staged_in != "dram", row


def test_the_published_manifest(fixtures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its GDS_MT goes host <-> file; 6000 leads through the Service to 6555; 640 GiB lie below 512."""
    path = str(fixtures / "kvcache" / "lmcache-mp-gds-mt.yaml")
    assert run(["app", path, "--format", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, schema("app"), jsonschema.Draft202012Validator)
    server = next(stack for stack in found["stacks"] if stack["software"] == "LMCache server")
    assert [(tier["type"], tier["size_gib"]) for tier in server["tiers"]] == [
        ("DRAM", 512),
        ("nixl_store_dynamic (GDS_MT)", 640),
    ]
    assert [(e["from"], e["to"], e["staged_in"], e["gds_helps"], e["path"]) for e in server["edges"]] == [
        ("gpu", "dram", None, "no", None),
        ("dram", "file", "dram", "no", "/kv/l2"),
    ]
    assert [(f["id"], f["severity"]) for f in found["findings"]] == [
        ("app.dram-staged", "error"),
        ("app.deprecated-backend", "info"),
    ]
    assert (server["version"], server["container"]) == ("0.4.7", "kv-server/server")
    lines = Path(path).read_text().splitlines()
    file, line = found["findings"][0]["subject"].rsplit(":", 1)
    assert file == path
    assert "'{" in lines[int(line) - 1]
    assert run(["app", path]) == 1
    assert "GPUDirect Storage has no part" in " ".join(capsys.readouterr().out.split())


def audited(text: str, *, example: str | None = "hgx-h100-vast") -> AppReport:
    return app_on(example, {"kv": text}) if example else judge([("kv", text)], tool=TOOL)


def app_on(example: str, files: dict[str, str]) -> AppReport:
    """As the command holds files against a node."""
    assessment = assess(collect(open_source(f"example:{example}")))
    return judge(list(files.items()), tool=TOOL, node=pipeline.report(assessment), lacking=lacking(assessment.node))


def test_the_published_manifest_in_full(fixtures: Path) -> None:
    """Each expectation with its reason. On the node /vast/kv is 172.16.1.10:/kv over RDMA, direct for all 8 GPUs."""
    text = (fixtures / "kvcache" / "lmcache-mp-gds-mt.yaml").read_text()
    report = audited(text)
    server, engine = report.stacks
    assert (server.software, server.version, engine.software, engine.version) == (
        "LMCache server",
        "0.4.7",  # the image's tag
        "vLLM",
        "0.21.0",
    )
    assert engine.edges == ()  # LMCacheMPConnector keeps nothing in the engine
    # The L2 is fed from the 512 GiB of host memory: no edge hangs on the node's route, though the volume would go direct.
    assert [edge.routes for edge in server.edges] == [None, None]
    assert {edge.gds_helps for edge in server.edges} == {"no"}
    # GDS_MT on host memory is the one fault. All else that is looked at is in order:
    # - the engine asks the Service at 6000, whose target is 6555, where the server listens;
    # - 640 GiB of L2 are more than 512 GiB of L1;
    # - a chunk of 256 tokens on 4 ranks is 256 x 192,512 / 4 = 12,320,768 bytes = 3,008 x 4,096: fit for O_DIRECT;
    # - 8 threads on 16 CPUs, and 8 x 4 pieces are below the 128 of cuFile's queue;
    # - 0.4.7 knows nixl_store_dynamic (since 0.4.4); port 20049 belongs to proto=rdma; no localports in the class.
    # GDS_MT's name is kept for compatibility in NIXL's newer guide: a remark.
    assert [(f.id, f.severity) for f in report.findings] == [
        ("app.dram-staged", "error"),
        ("app.deprecated-backend", "info"),
    ]
    assert report.verdict == "fail"


@pytest.mark.parametrize(
    ("old", "new", "id_", "severity"),
    [
        ("targetPort: 6555", "targetPort: 5555", "app.port-mismatch", "error"),
        ('"max_capacity_gb": "640"', '"max_capacity_gb": "64"', "app.pool-too-small", "warning"),
        ('"thread_count": "8"', '"thread_count": "17"', "app.thread-count", "warning"),  # 16 CPUs
        ("port=20049", "port=2009", "app.mount-port", "error"),
        ("port=20049", "port=2049", "app.mount-port", "warning"),
        ("nconnect=16", "nconnect=16, localports=172.16.1.1", "app.localports-shared", "warning"),
        ("standalone:v0.4.7", "standalone:v0.4.3", "app.version-lacks", "error"),
        ("--max-workers 8", "--max-workers 8 --chunk-size 1", "app.chunk-unaligned", "warning"),  # 48,128 bytes
    ],
)
def test_each_change_for_the_worse_is_told(old: str, new: str, id_: str, severity: str, fixtures: Path) -> None:
    text = (fixtures / "kvcache" / "lmcache-mp-gds-mt.yaml").read_text()
    assert text.count(old) == 1
    report = audited(text.replace(old, new))
    assert [(f.id, f.severity) for f in report.findings if f.id == id_] == [(id_, severity)]
    assert len(report.findings) == 3


def test_the_published_manifest_repaired_step_by_step(fixtures: Path) -> None:
    """A GDS L1 instead: then the claim's mount counts, and what the pod is not given."""
    text = (fixtures / "kvcache" / "lmcache-mp-gds-mt.yaml").read_text()
    start, end = text.index("--l2-adapter"), text.index("---", text.index("--l2-adapter"))
    manager = """--l1-manager '{"type": "GDS", "tag": "gds", "size_gb": 512, "path": "/kv/l1"}'\n"""
    gds = text[:start] + manager + text[end:]
    gds = gds.replace("--l1-size-gb 512 ", "")
    first = audited(gds)
    (edge,) = first.stacks[0].edges
    (route,) = edge.routes or ()
    # root_export /kv, and the node mounts 172.16.1.10:/kv at /vast/kv
    assert (route.mount, route.route, len(route.gpus)) == ("/vast/kv", "nvidia-fs", 8)
    assert [f.id for f in first.findings] == ["app.version-lacks", "app.pod-lacks"]  # --l1-manager came with 0.5.6
    lacks = first.findings[-1]
    # NFS: no udev; the kernel's RDMA: no /dev/infiniband, no locked memory. The device plugin may bring the nodes.
    assert (lacks.severity, [e.fact for e in lacks.evidence]) == (
        "warning",
        ["nvidia-fs.no-device-node", "container.no-cufile-json"],
    )
    assert "plan --emit pod" in lacks.remedy.text
    paths = ["/run/udev", "/etc/cufile.json", "/dev/nvidia-fs0"]
    mounts = "".join(f"\n            - {{name: v{n}, mountPath: {path}}}" for n, path in enumerate(paths))
    volumes = "".join(f"\n        - {{name: v{n}, hostPath: {{path: {path}}}}}" for n, path in enumerate(paths))
    whole = (
        gds.replace("v0.4.7", "v0.5.6")
        .replace("- {name: kv, mountPath: /kv}", "- {name: kv, mountPath: /kv}" + mounts)
        .replace("      volumes:", "      volumes:" + volumes)
        .replace("          resources:", "          securityContext: {privileged: PRIVILEGED}\n          resources:")
    )
    all_given = audited(whole.replace("PRIVILEGED", "true"))
    assert (all_given.findings, all_given.verdict) == ((), "pass")
    # a device node that a pod only mounts its device cgroup does not let be opened
    assert audited(whole.replace("PRIVILEGED", "false")).verdict == "unknown"


def test_dram_staged() -> None:
    assert ids(app(nixl("nixl_store_dynamic", "GDS_MT")), "error") == ["app.dram-staged"]
    quiet = app(nixl("nixl_store_dynamic", "POSIX"))
    assert (ids(quiet, "info"), quiet.verdict) == (["app.dram-staged"], "pass")
    assert ids(app(GDS_L1)) == []
    assert (
        ids(app(l2('{"type":"fs_native","base_path":"/x"}'))) == []
    )  # host memory and files, and nothing else claimed


def test_gds_l1_with_an_l2() -> None:
    adapter = """--l2-adapter '{"type":"fs","base_path":"/x"}' """
    assert "app.tiers-exclude-each-other" in ids(app(GDS_L1 + adapter))
    dram = """--l1-manager '{"type":"DRAM","tag":"_default","size_gb":8}' """
    assert "app.tiers-exclude-each-other" not in ids(app(GDS_L1 + dram + adapter))


def managers(*values: dict[str, Any]) -> str:
    return "lmcache server --eviction-policy LRU " + " ".join(f"--l1-manager '{json.dumps(v)}'" for v in values)


DRAM = {"type": "DRAM", "tag": "_default", "size_gb": 8}
SLAB = {"type": "GDS", "tag": "gds", "size_gb": 32, "path": "/mnt/nvme"}
DAX = {"type": "DEVDAX", "tag": "dax", "size_gb": 16, "path": "/dev/dax0.0"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (managers(DRAM, DAX, SLAB) + """ --l2-adapter '{"type":"fs","base_path":"/x","affinity_tag":"dax"}'""", ""),
        (managers(DRAM, SLAB) + """ --l2-adapter '{"type":"fs","base_path":"/x"}'""", ""),
        (
            managers(DRAM, SLAB) + """ --l2-adapter '{"type":"fs","base_path":"/x","affinity_tag":"gds"}'""",
            "no host memory",
        ),
        (managers(DAX) + """ --l2-adapter '{"type":"fs","base_path":"/x"}'""", "_default, and no L1 has it"),
        (managers(SLAB, {**SLAB, "tag": "b"}), "two GDS slabs"),
        (managers(DRAM) + " --l1-size-gb 8", "--l1-size-gb beside --l1-manager"),
        (SERVER + "--gds-l1-path /x", ""),
    ],
)
def test_tiers_that_the_server_refuses(text: str, words: str) -> None:
    """The first is the example of LMCache's own page on several managers."""
    found = [f.message for f in app(text).findings if f.id == "app.tiers-exclude-each-other"]
    assert bool(found) is bool(words)
    assert all(words in message for message in found)


@pytest.mark.parametrize(
    ("adapter", "told"),
    [
        ({"backend": "GDS_MT", "thread_count": "16"}, ""),  # 16 CPUs
        ({"backend": "GDS_MT", "thread_count": "17"}, "16 CPUs"),
        ({"backend": "GDS", "thread_count": "8"}, "passes over it"),
        ({"backend": "GDS", "mode": "mt", "thread_count": "8"}, ""),
        ({"backend": "POSIX", "thread_count": "8"}, "passes over it"),
        ({"backend": "GDS_MT"}, ""),
    ],
)
def test_threads_against_the_node(adapter: dict[str, str], told: str) -> None:
    params = {"file_path": "/vast/kv", "max_capacity_gb": "640", "use_direct_io": "true", **adapter}
    text = l2(json.dumps({"type": "nixl_store_dynamic", "backend": params.pop("backend"), "backend_params": params}))
    found = [f.message for f in audited(text).findings if f.id == "app.thread-count"]
    assert bool(found) is bool(told)
    assert all(told in message for message in found)


def test_threads_against_cufiles_queue() -> None:
    """16 threads x 8 pieces = 128 fit a queue of 128, but not one of 127."""
    params = {"file_path": "/vast/kv", "max_capacity_gb": "640", "thread_count": "16"}
    text = l2(json.dumps({"type": "nixl_store_dynamic", "backend": "GDS_MT", "backend_params": params}))
    node = pipeline.inspect(open_source("example:hgx-h100-vast"))
    for depth, wrong in ((128, False), (127, True)):
        execution = {"parallel_io": True, "max_request_parallelism": 8, "max_io_queue_depth": depth}
        config = msgspec.structs.replace(node.gds.cufile_config, merged={"execution": execution})
        changed = msgspec.structs.replace(node, gds=msgspec.structs.replace(node.gds, cufile_config=config))
        found = judge([("f", text)], tool=TOOL, node=changed).findings
        assert ("app.thread-count" in [f.id for f in found]) is wrong


def test_batches_against_cufile() -> None:
    """NIXL's GDS hands over 128 requests unless told otherwise; the node's cufile.json may take fewer."""
    node = pipeline.inspect(open_source("example:hgx-h100-vast"))
    for size, limit, wrong in ((128, None, False), (64, None, True), (64, "64", False)):
        config = msgspec.structs.replace(node.gds.cufile_config, merged={"properties": {"io_batchsize": size}})
        changed = msgspec.structs.replace(node, gds=msgspec.structs.replace(node.gds, cufile_config=config))
        params = {"file_path": "/vast/kv", "max_capacity_gb": "640"} | ({"batch_limit": limit} if limit else {})
        text = l2(json.dumps({"type": "nixl_store_dynamic", "backend": "GDS", "backend_params": params}))
        found = judge([("f", text)], tool=TOOL, node=changed).findings
        assert ("app.batch-limit" in [f.id for f in found]) is wrong


def test_pool_of_too_many_or_too_small_files() -> None:
    """2^20 files of 4 KiB are 4 GiB in pages; one more is beyond fs.nr_open; with file_size a file is a chunk."""
    assert [s for s, i in told(1 << 20) if i == "app.pool-files"] == ["warning"]
    assert [s for s, i in told((1 << 20) + 1) if i == "app.pool-files"] == ["error"]
    assert [s for s, i in told(1 << 15, file_size=str(32 << 20)) if i == "app.pool-files"] == []


def told(pool: int, **params: str) -> list[tuple[str, str]]:
    values = {"file_path": "/x", "use_direct_io": "true", **params}
    text = json.dumps({"type": "nixl_store", "backend": "POSIX", "pool_size": pool, "backend_params": values})
    return [(f.severity, f.id) for f in app(l2(text)).findings]


def test_pool_too_small() -> None:
    """128 x 4096 bytes, as the documented example has it, are 512 KiB; 8192 x 16 MiB are 128 GiB."""
    (found,) = (f for f in app(nixl("nixl_store", "POSIX", pool_size=128)).findings if f.id == "app.pool-too-small")
    assert "512 KiB" in found.message
    assert found.severity == "error"
    params = {"file_path": "/x", "use_direct_io": "true", "file_size": str(16 << 20)}
    big = json.dumps({"type": "nixl_store", "backend": "POSIX", "pool_size": 8192, "backend_params": params})
    assert "app.pool-too-small" not in ids(app(l2(big)))
    below = big.replace("8192", "1024")  # 16 GiB below 64
    assert "app.pool-too-small" in ids(app(l2(below)), "warning")
    assert "app.pool-too-small" in ids(app("DYN_KVBM_CPU_CACHE_GB=100\nDYN_KVBM_DISK_CACHE_GB=50\n"))
    assert "app.pool-too-small" not in ids(app("DYN_KVBM_CPU_CACHE_GB=50\nDYN_KVBM_DISK_CACHE_GB=100\n"))


@pytest.mark.parametrize(
    ("server", "client", "wrong"),
    [
        ("", vllm("LMCacheMPConnector"), False),  # 5555 on both sides
        ("", vllm("LMCacheMPConnector", **{"lmcache.mp.port": 6000}), True),
        ("--port 6000", vllm("LMCacheMPConnector", **{"lmcache.mp.port": 6000}), False),
        ("--port 6000", vllm("LMCacheMPConnector"), True),
        ("--port 6000", vllm("LMCacheMPConnector", **{"lmcache.mp.server_urls": "tcp://a:6000,tcp://b:6001"}), True),
        ("--port $P", vllm("LMCacheMPConnector"), False),
    ],
)
def test_port_mismatch(server: str, client: str, wrong: bool) -> None:
    report = app(SERVER + server, client)
    assert ("app.port-mismatch" in ids(report)) is wrong


def test_chunk_too_large() -> None:
    """Llama 3.1 70B: 2 x 80 x 8 x 128 x 2 = 327,680 bytes a token: 256 of them on 4 ranks are 20 MiB, on 8 ranks 10 MiB."""
    by_flag = SERVER + "--gds-l1-path /mnt/nvme "
    four = app(by_flag, vllm("LMCacheMPConnector") + " --tensor-parallel-size 4")
    (found,) = (f for f in four.findings if f.id == "app.chunk-too-large")
    assert "20 MiB" in found.message
    assert "--chunk-size 192 " in found.message  # 16 MiB / 81,920 = 204.8, in blocks of 16 tokens
    assert (four.verdict, ids(four)) == ("pass", ["app.chunk-too-large"])  # a version's limit: told, and no failure
    assert ids(app(by_flag, vllm("LMCacheMPConnector") + " --tensor-parallel-size=8")) == []
    assert "app.chunk-too-large" not in ids(app(SERVER, vllm("LMCacheMPConnector")))  # no GDS L1
    fits = app(by_flag + "--chunk-size 128", vllm("LMCacheMPConnector") + " --tensor-parallel-size 4")
    assert "app.chunk-too-large" not in ids(fits)
    assert ids(app(GDS_L1, vllm("LMCacheMPConnector") + " --tensor-parallel-size 4")) == []  # versions that split
    released = f"services:\n  a: {{image: 'lmcache/standalone:v0.4.7', command: {json.dumps(by_flag)}}}\n"
    assert ids(app(released, vllm("LMCacheMPConnector") + " --tensor-parallel-size 4")) == []


def test_chunk_unaligned() -> None:
    """9 tokens of 131,072 / 64 bytes = 2,048 are 18,432 bytes: four and a half blocks."""
    config = {
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "torch_dtype": "bfloat16",
    }
    text = json.dumps(config)
    assert "app.chunk-unaligned" in ids(app(GDS_L1 + "--chunk-size 9", text))
    assert "app.chunk-unaligned" not in ids(app(GDS_L1 + "--chunk-size 10", text))


def test_deprecated_names() -> None:
    assert "app.deprecated-backend" in ids(app(nixl("nixl_store_dynamic", "GDS_MT")))
    assert "app.deprecated-backend" not in ids(app(nixl("nixl_store_dynamic", "GDS")))
    assert "app.deprecated-backend" in ids(app("gds_path: /x\ncufile_buffer_size: 8192\n"))
    assert "app.deprecated-backend" not in ids(app("gds_path: /x\ngds_buffer_size: 8192\n"))
    strict = app("gds_path: /x\nweka_path: /x\nlocal_cpu: false\n", strict=True)
    assert strict.verdict == "fail"


def served(image: str, command: str) -> AppReport:
    return app(f"services:\n  a:\n    image: {image}\n    command: {command}\n")


FST = "vllm serve m --load-format fastsafetensors --tensor-parallel-size 2"


@pytest.mark.parametrize(
    ("image", "helps", "answers"),
    [
        ("vllm/vllm-openai:v0.15.1", "yes", []),
        ("vllm/vllm-openai:v0.17.0", "no", []),
        ("vllm/vllm-openai:v0.30.0", "no", []),
        ("vllm/vllm-openai:v0.16.0", "yes", []),  # weight_utils.py of 0.16.0: nogds = False; of 0.17.0: pg.size() > 1
        ("vllm/vllm-openai:latest", "unknown", [("vLLM before 0.17", "yes"), ("vLLM 0.17 and later", "no")]),
        ("lmcache/vllm-openai:v0.4.7", "unknown", [("vLLM before 0.17", "yes"), ("vLLM 0.17 and later", "no")]),
    ],
)
def test_a_version_decides_or_both_answers_are_given(image: str, helps: str, answers: list[tuple[str, str]]) -> None:
    report = served(image, FST)
    (edge,) = report.stacks[0].edges
    assert edge.gds_helps == helps
    assert [(a.versions, a.gds_helps) for a in edge.answers] == answers
    assert report.verdict == ("unknown" if answers else "pass")
    assert all(f"{versions}: {answer}" in edge.because for versions, answer in answers)


@pytest.mark.parametrize(
    ("image", "helps"),
    [("x/modelexpress-client:0.5.1", "yes"), ("x/modelexpress-client:0.6.0", "unknown"), ("x/y:1", "unknown")],
)
def test_model_express_before_and_after_instant_tensor(image: str, helps: str) -> None:
    (edge,) = served(image, "vllm serve m --load-format modelexpress").stacks[0].edges
    assert edge.gds_helps == helps


def test_an_old_switch_of_instant_tensor() -> None:
    """Before 0.1.9 INSTANTTENSOR_USE_CUFILE=1 chose cuFile, later versions pass over it."""
    (edge,) = app("INSTANTTENSOR_USE_CUFILE=1 vllm serve m --load-format instanttensor").stacks[0].edges
    assert edge.gds_helps == "unknown"
    assert [a.gds_helps for a in edge.answers] == ["yes", "no"]


@pytest.mark.parametrize(
    ("version", "command", "lacks"),
    [
        ("0.4.6", "--gds-l1-path /kv", ["--gds-l1-path"]),
        ("0.4.7", "--gds-l1-path /kv", []),
        ("0.4.7", "--gds-l1-path /kv --gds-l1-backend cufile", ["--gds-l1-backend"]),
        ("0.5.5", """--l1-manager '{"type":"GDS","tag":"g","size_gb":9,"path":"/kv"}' """, ["--l1-manager"]),
        ("0.5.6", """--l1-manager '{"type":"GDS","tag":"g","size_gb":9,"path":"/kv"}' """, []),
        ("0.4.3", """--l2-adapter '{"type":"nixl_store_dynamic","backend":"POSIX"}' """, ["nixl_store_dynamic"]),
        ("0.4.4", """--l2-adapter '{"type":"nixl_store_dynamic","backend":"POSIX"}' """, []),
        ("0.5.6", """--l2-adapter '{"type":"phx","base_path":"/kv"}' """, ["phx"]),
    ],
)
def test_what_a_version_does_not_know(version: str, command: str, lacks: list[str]) -> None:
    """First releases with each name, as the released wheels have it."""
    words = json.dumps(["lmcache", "server", "--eviction-policy", "LRU", "--l1-size-gb", "9", *shlex.split(command)])
    told = [f for f in served(f"lmcache/standalone:v{version}", words).findings if f.id == "app.version-lacks"]
    assert [name for f in told for name in lacks if name in f.message] == lacks
    assert len(told) == len(lacks)


def test_versions_come_from_the_image() -> None:
    text = "services:\n  a:\n    image: reg:5000/lmcache/standalone:v0.4.7@sha256:0\n    command: lmcache server --l1-size-gb 1\n"
    assert app(text).stacks[0].version == "0.4.7"
    assert app(text.replace("v0.4.7", "latest")).stacks[0].version is None


def test_a_config_file_out_of_a_config_map() -> None:
    text = """\
kind: ConfigMap
metadata: {name: c}
data:
  lmcache.yaml: |
    local_cpu: false
    gds_path: /kv
---
kind: Pod
metadata: {name: p}
spec:
  containers:
    - name: e
      command: [vllm, serve, m]
      env: [{name: LMCACHE_CONFIG_FILE, value: /etc/l/lmcache.yaml}]
      volumeMounts: [{name: c, mountPath: /etc/l}]
  volumes: [{name: c, configMap: {name: c}}]
"""
    (stack,) = app(text).stacks
    assert (stack.software, stack.container, stack.source.line) == ("LMCache in-process", "p/e", 5)


def test_broken_option_is_told_with_its_line() -> None:
    with pytest.raises(InputError, match=r"^f1:3: not valid JSON"):
        app("lmcache server \\\n --l2-adapter '{\n \"type\": }'\n")
    open_ended = app(l2('{"type": "fs", "base_path": $DIR}'))
    assert open_ended.verdict == "unknown"


def test_half_a_surrogate_pair() -> None:
    with pytest.raises(InputError, match="surrogate"):
        app(l2('{"type":"fs","base_path":"/\\ud800"}'))
    with pytest.raises(InputError, match="Unicode"):
        app('local_cpu: false\ngds_path: "/\\uD800"\n')


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.sh"
    path.write_text("echo hello\n")
    assert run(["app", str(path)]) == 4
    assert "that gdsctl knows is configured here" in capsys.readouterr().err
    path.write_text(GDS_L1 + "\n")
    assert run(["app", str(path)]) == 0
    assert "PASS" in capsys.readouterr().out
    path.write_text("vllm serve m --load-format modelexpress\n")
    assert run(["app", str(path)]) == 3
    assert f"gdsctl: unknown: {path}:1" in capsys.readouterr().err
    assert run(["app", str(path), "--live", "--snapshot", "example:hgx-h100-vast"]) == 2
    assert run(["app", str(tmp_path / "none")]) == 4


@pytest.mark.parametrize(
    ("example", "path", "route", "code"),
    [
        ("hgx-h100-vast", "/vast/kv/l1", "nvidia-fs", 0),
        ("nvme-unpatched", "/mnt/nvme", "compat", 1),
        ("hgx-h100-vast", "/nowhere", "compat", 1),  # on the root
    ],
)
def test_held_against_a_node(  # noqa: PLR0917 -- columns of the table
    example: str, path: str, route: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.sh"
    file.write_text(GDS_L1.replace("/mnt/nvme", path) + "\n")
    run(["inspect", "--snapshot", f"example:{example}", "--format", "json"])
    node = json.loads(capsys.readouterr().out)
    ended = run(["app", str(file), "--snapshot", f"example:{example}", "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, schema("app"), jsonschema.Draft202012Validator)
    routes = found["stacks"][0]["edges"][0]["routes"]
    mount = max((m["target"] for m in node["mounts"] if path.startswith(m["target"])), key=len, default=None)
    assert {r["mount"] for r in routes} == {mount}
    wanted = {r["route"] for r in node["routes"] if r["mount"] == mount}
    assert {r["route"] for r in routes} == wanted
    assert route in wanted
    assert sum(len(r["gpus"]) for r in routes) == len(node["gpus"])
    assert ended == code


CLAIMED = """\
kind: Pod
apiVersion: v1
metadata: {name: p}
spec:
  containers:
    - name: c
      command: [lmcache, server, --eviction-policy, LRU, --l1-size-gb, "9", --gds-l1-path, /kv]
      volumeMounts: [{name: kv, mountPath: /kv}]
  volumes: [{name: kv, persistentVolumeClaim: {claimName: c}}]
---
kind: PersistentVolumeClaim
metadata: {name: c}
spec: {CLAIM}
---
"""
PV = "kind: PersistentVolume\nmetadata: {name: pv1}\nspec: {SPEC}\n"


@pytest.mark.parametrize(
    ("claim", "more", "mount"),
    [
        ("volumeName: pv1", PV.replace("SPEC", "nfs: {server: 172.16.1.10, path: /kv}"), "/vast/kv"),
        ("", PV.replace("SPEC", "claimRef: {name: c}, nfs: {server: 172.16.1.10, path: /kv}"), "/vast/kv"),
        ("volumeName: pv1", PV.replace("SPEC", "local: {path: /scratch/a}"), "/scratch"),
        ("storageClassName: s", "kind: StorageClass\nmetadata: {name: s}\nparameters: {root_export: /}\n", "/vast/kv"),
        ("storageClassName: s", "kind: StorageClass\nmetadata: {name: s}\nparameters: {root_export: /k}\n", None),
        ("volumeName: pv1", PV.replace("SPEC", "nfs: {server: 172.16.1.10, path: /other}"), None),
        ("", "", None),
    ],
)
def test_a_claim_is_followed_to_a_mount(claim: str, more: str, mount: str | None) -> None:
    (edge,) = audited(CLAIMED.replace("CLAIM", claim) + more).stacks[0].edges
    assert {route.mount for route in edge.routes or ()} == {mount}


def test_a_claim_whose_volume_the_kubelet_has_mounted() -> None:
    """By the volume's name, which is a part of the path of a CSI mount."""
    node = pipeline.inspect(open_source("example:hgx-h100-vast"))
    target = "/var/lib/kubelet/pods/0f/volumes/kubernetes.io~csi/pvc-7/mount"
    moved = msgspec.structs.replace(
        node,
        mounts=tuple(
            msgspec.structs.replace(m, target=target if m.target == "/vast/kv" else m.target, source="10.0.0.1:/x")
            for m in node.mounts
        ),
        routes=tuple(
            msgspec.structs.replace(r, mount=target if r.mount == "/vast/kv" else r.mount) for r in node.routes
        ),
    )
    report = judge([("p", CLAIMED.replace("CLAIM", "volumeName: pvc-7"))], tool=TOOL, node=moved)
    assert {route.mount for route in report.stacks[0].edges[0].routes or ()} == {target}


def test_a_volume_that_the_pod_mounts_itself() -> None:
    text = CLAIMED.replace("persistentVolumeClaim: {claimName: c}", "nfs: {server: 172.16.1.10, path: /kv}")
    (edge,) = audited(text.replace("CLAIM", "")).stacks[0].edges
    assert {route.mount for route in edge.routes or ()} == {"/vast/kv"}


def test_resource_claims_stand_for_a_gpu() -> None:
    pod = CLAIMED.replace("persistentVolumeClaim: {claimName: c}", "hostPath: {path: /vast/kv}").replace("CLAIM", "")
    claimed = pod.replace("      volumeMounts", "      resources: {claims: [{name: g}]}\n      volumeMounts").replace(
        "  containers", "  resourceClaims: [{name: g, resourceClaimTemplateName: t}]\n  containers"
    )
    template = "kind: ResourceClaimTemplate\nmetadata: {name: t}\nspec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: CLASS}}]}}}\n"
    expected = {pod: True, claimed: False}  # an object that is not in the file may be anything
    no_gpu = "container.no-gpu"
    expected |= {
        claimed + template.replace("CLASS", c): c != "gpu.nvidia.com" for c in ("gpu.nvidia.com", "sw.example")
    }
    for text, missing in expected.items():
        facts = [e.fact for f in audited(text).findings if f.id == "app.pod-lacks" for e in f.evidence]
        assert (no_gpu in facts) is missing


def test_a_claim_whose_mount_is_not_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(
        "kind: Pod\nspec:\n  containers:\n"
        "    - command: [lmcache, server, --gds-l1-path, /kv]\n      volumeMounts: [{name: kv, mountPath: /kv}]\n"
        "  volumes: [{name: kv, persistentVolumeClaim: {claimName: c}}]\n"
    )
    assert run(["app", str(file), "--snapshot", "example:hgx-h100-vast"]) == 3
    assert "/kv is a persistentVolumeClaim" in capsys.readouterr().err


GIVEN = """\
services:
  kv:
    image: lmcache/standalone:v0.5.6
    runtime: nvidia
    gpus: all
    command: lmcache server --l1-manager '{"type":"GDS","tag":"gds","size_gb":100,"path":"/data"}'
    environment:
      NVIDIA_GDS: enabled
      NVIDIA_VISIBLE_DEVICES: all
    volumes:
      - /run/udev:/run/udev:ro
      - /etc/cufile.json:/etc/cufile.json:ro
      - DATA:/data
    ulimits:
      memlock: -1
"""


@pytest.mark.parametrize(
    ("data", "without", "verdict", "lacks"),
    [
        ("/vast/kv", "none", "pass", []),  # the kernel's RDMA: no /dev/infiniband
        ("/scratch", "none", "pass", []),
        ("/vast/kv", "NVIDIA_GDS:", "fail", ["container.no-nvidia-fs-device"]),
        ("/vast/kv", "runtime:", "unknown", ["nvidia-fs.no-device-node"]),
        ("/vast/kv", "/run/udev:", "pass", []),  # the toolkit brings it
        ("/vast/kv", "/etc/cufile.json:", "pass", []),
        ("/vast/kv", "memlock:", "pass", []),
    ],
)
def test_one_truth_about_a_container(  # noqa: PLR0917 -- a row's cells and fixtures
    data: str, without: str, verdict: str, lacks: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is given is as in docs/containers.md; `verify --container` comes to the same verdict."""
    lines = [line for line in GIVEN.replace("DATA", data).splitlines() if without not in line]
    text = "\n".join(line for line in lines if line.strip() != "ulimits:" or without != "memlock:")
    report = app_on("hgx-h100-vast", {"kv": text})
    assert report.verdict == verdict
    told = [e.fact for f in report.findings if f.id == "app.pod-lacks" for e in f.evidence]
    assert told == lacks
    assert all("runtime: nvidia" in f.remedy.text for f in report.findings if f.id == "app.pod-lacks")
    file = tmp_path / "compose.yaml"
    file.write_text(text)
    code = run(["verify", "--container", str(file), "--snapshot", "example:hgx-h100-vast"])
    assert (code, capsys.readouterr().out != "") == ({"pass": 0, "fail": 1, "unknown": 3}[verdict], True)


def test_what_docker_run_is_given() -> None:
    line = (
        "docker run --runtime nvidia --gpus all -e NVIDIA_GDS=enabled -v /vast/kv:/data lmcache/standalone:v0.5.6 "
        """lmcache server --l1-manager '{"type":"GDS","tag":"gds","size_gb":9,"path":"/data"}'\n"""
    )
    assert audited(line).verdict == "pass"
    found, *_ = audited(line.replace("-e NVIDIA_GDS=enabled", "")).findings
    assert (found.id, found.severity) == ("app.pod-lacks", "error")
    assert "docker run --runtime nvidia" in found.remedy.text


@pytest.mark.parametrize("id_", list(stories()))
def test_every_finding_is_explained(id_: str, capsys: pytest.CaptureFixture[str]) -> None:
    story = explanation(id_)
    assert story is not None
    assert story["why"]
    assert story["source"]
    assert id_ in explained()
    assert run(["explain", id_]) == 0
    assert id_ in capsys.readouterr().out


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
ADAPTER_KEYS = [
    "type",
    "backend",
    "backend_params",
    "pool_size",
    "base_path",
    "device_ids",
    "max_capacity_gb",
    "file_size",
]
MANAGER_KEYS = ["type", "tag", "size_gb", "path", "backend"]
CONNECTOR_KEYS = ["kv_connector", "kv_connector_extra_config", "kv_role", "connectors"]


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.sampled_from(ADAPTER_KEYS), VALUES | st.sampled_from(["nixl_store", "GDS", "phx", "fs"])),
    st.dictionaries(st.sampled_from(MANAGER_KEYS), VALUES | st.sampled_from(["GDS", "DRAM"])),
    st.dictionaries(
        st.sampled_from(CONNECTOR_KEYS), VALUES | st.sampled_from(["LMCacheMPConnector", "MultiConnector"])
    ),
)
def test_odd_options_never_end_in_another_exception(
    adapter: dict[str, Any], manager: dict[str, Any], connector: dict[str, Any]
) -> None:
    words = [shlex.quote(json.dumps(value)) for value in (adapter, manager, connector)]
    text = f"lmcache server --l2-adapter {words[0]} --l1-manager {words[1]}\nvllm serve m --kv-transfer-config {words[2]}\n"
    report = app(text)
    assert report.stacks[0].software == "LMCache server"
    jsonschema.validate(json.loads(to_json(report)), schema("app"), jsonschema.Draft202012Validator)


COMPOSE = """\
services:
  base:
    image: lmcache/standalone:v0.5.6
    env_file: [kv.env, {path: ./more.env}]
    environment: [DYN_KVBM_DISK_CACHE_DIR=/own]
    volumes: ["/mnt/nvme:/own"]
    command: idle
  a:
    extends: base
    command: ["lmcache", "server", "--l1-size-gb", "64", "--gds-l1-path", "/own/l1"]
"""


def test_a_service_upon_another_with_environment_files() -> None:
    files = {"c/compose.yml": COMPOSE, "kv.env": "DYN_KVBM_DISK_CACHE_GB=9\nDYN_KVBM_DISK_CACHE_DIR=/file\n"}
    report = judge(list(files.items()), tool=TOOL)
    assert [(s.software, str(s.source), s.container) for s in report.stacks] == [
        ("Dynamo KVBM", "c/compose.yml:4", "base"),  # where kv.env is named
        ("LMCache server", "c/compose.yml:10", "a"),
        ("Dynamo KVBM", "c/compose.yml:4", "a"),
    ]
    assert report.stacks[0].tiers[0].path == "/own"  # environment goes over env_file
    assert report.unread == ("c/compose.yml:4: ./more.env",)


@pytest.mark.parametrize(
    "text",
    [
        "set -a; source ./conf/kv.env\ndynamo-run\n",
        "docker run --env-file kv.env image:1\n",
        "[Service]\nEnvironmentFile=-/etc/kv.env\nExecStart=/bin/dynamo-run\n",
    ],
)
def test_environment_files_that_others_name(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    report = judge([("kv.env", "export DYN_KVBM_DISK_CACHE_GB='9'\n"), ("start.sh", text)], tool=TOOL)
    assert [(s.software, s.source.file) for s in report.stacks] == [("Dynamo KVBM", "start.sh")]
    with pytest.raises(InputError, match=r"start\.sh:\d: .*kv\.env was not given"):
        judge([("start.sh", text)], tool=TOOL)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (
            "modelSpec:\n- vllmConfig:\n    extraArgs:\n    - --load-format\n    - fastsafetensors\n",
            "f1:5",
        ),  # Helm values
        (
            "- hosts: gpu\n  tasks:\n  - shell: |\n      cd /x\n      vllm serve m --load-format fastsafetensors\n",
            "f1:5",
        ),
        (
            (
                "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nspec:\n  predictor:\n    model:\n"
                "      args: [--load-format, fastsafetensors]\n"
            ),
            "f1:6",
        ),
        (
            (
                "kind: RayCluster\nspec:\n  workerGroupSpecs:\n  - template:\n      spec:\n        containers:\n"
                "        - name: w\n          args: [vllm, serve, m, --load-format, fastsafetensors]\n"
            ),
            "f1:8",
        ),
    ],
)
def test_kinds_that_are_not_known(text: str, place: str) -> None:
    (stack,) = app(text).stacks
    assert (stack.software, str(stack.source)) == ("fastsafetensors", place)


def test_two_containers_of_one_anchor() -> None:
    text = """\
kind: Pod
metadata: {name: p}
spec:
  containers:
  - &one
    name: one
    command: [lmcache, server, --l1-size-gb, "64"]
  - {<<: *one, name: two}
"""
    assert [stack.container for stack in app(text).stacks] == ["p/one", "p/two"]


def test_config_maps_that_were_not_given() -> None:
    text = "kind: Pod\nspec:\n  containers:\n  - name: a\n    envFrom: [{configMapRef: {name: kv}}]\n    command: [lmcache, server]\n"
    report = app(text)
    assert report.unread == ("f1:5: configMap kv",)


@pytest.mark.parametrize(
    ("image", "option", "severity", "words"),
    [
        ("v0.5.6", "--prt 6000", "warning", "the nearest is --port"),
        ("v0.5.6", "--l1-sizegb 5", "warning", "the nearest is --l1-size-gb"),
        ("v0.5.6", "--bogus 1", "warning", "--bogus is no option of lmcache server in LMCache 0.4.1 to 0.5.6"),
        ("v0.9.0", "--bogus 1", "info", "--bogus is not known to gdsctl"),
        ("v0.5.6", "--l1-size 5", None, ""),  # argparse takes the beginning of --l1-size-gb
        ("v0.5.6", "--no-l1-use-lazy", None, ""),
    ],
)
def test_options_that_a_server_does_not_have(image: str, option: str, severity: str | None, words: str) -> None:
    report = app(f"docker run lmcache/standalone:{image} lmcache server --eviction-policy LRU {option}\n")
    told = [(f.severity, f.message) for f in report.findings if f.id == "app.unknown-option"]
    assert [s for s, _ in told] == ([severity] if severity else [])
    assert all(words in message for _, message in told)


def test_of_an_engine_only_what_looks_misspelt_is_told() -> None:
    line = "python3 -m sglang.launch_server --enable-hierarchical-cache --some-other-option 1"
    assert ids(app(line)) == []
    (found,) = app(f"{line} --hicache-storage-backnd nixl").findings
    assert (found.id, found.severity) == ("app.unknown-option", "info")
    assert "not known to gdsctl; the nearest is --hicache-storage-backend" in found.message


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("DYN_KVBM_CPU_CACHE_GB=64\nDYN_KVBM_DISK_CACHE_GB=128\n", "DYN_KVBM_DISK_CACHE_GB without"),
        (
            """python3 -m sglang.launch_server --enable-hierarchical-cache --hicache-storage-backend nixl \\
            --hicache-storage-backend-extra-config '{"plugin":{"gds":{"active":true}}}'""",
            "no setting of HiCache changes that",
        ),
    ],
)
def test_a_remedy_is_of_the_stack_itself(text: str, own: str) -> None:
    (found,) = (f for f in app(text).findings if f.id == "app.dram-staged")
    assert own in found.remedy.text
    assert "LMCache" not in found.remedy.text

"""Python scripts: calls by name through their imports, and options that are written down."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdsctl.errors import InputError
from gdsctl.kvcache.app import AppReport, judge
from gdsctl.kvcache.read import read
from gdsctl.model.node import Tool
from tests.hang import no_hang

TOOL = Tool(name="gdsctl", version="0")


def app(text: str, name: str = "s.py") -> AppReport:
    return judge([(name, text)], tool=TOOL)


GDS_FILE = "torch.cuda.gds.GdsFile"


@pytest.mark.parametrize(
    ("text", "type_", "line", "helps"),
    [
        ("import os\nimport torch\nf = torch.cuda.gds.GdsFile(p, os.O_RDWR)\n", GDS_FILE, 3, "yes"),
        ("from torch.cuda import gds as g\n\ng.GdsFile(p, 0)", GDS_FILE, 3, "yes"),
        ("from torch.cuda.gds import (\n  gds_register_buffer,\n  GdsFile as F,\n)\nwith F(p, 0): pass\n", GDS_FILE, 5, "yes"),
        ("import kvikio\nwith kvikio.CuFile('/kv/x', 'r') as f:\n  f.read(a)\n", "kvikio.CuFile", 2, "unknown"),
        (
            "import os, kvikio\nos.environ['KVIKIO_COMPAT_MODE'] = 'ON'\nkvikio.CuFile(p)\n",
            "kvikio.CuFile compat",
            3,
            "no",
        ),
        ("import cufile\nd = cufile.CuFileDriver()\n", "cufile.CuFileDriver", 2, "unknown"),
        ("from nixl._api import nixl_agent\na = nixl_agent('x')\na.create_backend('GDS_MT', {})\n", "create_backend GDS_MT", 3, "unknown"),
        (
            "from fastsafetensors import SafeTensorsFileLoader\nSafeTensorsFileLoader(pg, d, nogds=True)\n",
            "fastsafetensors.SafeTensorsFileLoader nogds",
            2,
            "no",
        ),
        (
            "import fastsafetensors as f\nf.fastsafe_open(filenames=[p], device='cuda:0', nogds=False)\n",
            "fastsafetensors.fastsafe_open",
            2,
            "yes",
        ),
        ("import instanttensor\ninstanttensor.safe_open(p, framework='pt', device=0)\n", "instanttensor.safe_open", 2, "no"),
        (
            "import os, instanttensor\nos.environ.setdefault('INSTANTTENSOR_BACKEND', 'CUFILE')\ninstanttensor.safe_open(p)\n",
            "instanttensor.safe_open cufile",
            3,
            "yes",
        ),
    ],
)  # fmt: skip
def test_interfaces_by_name(text: str, type_: str, line: int, helps: str) -> None:
    (stack,) = app(text).stacks
    (tier,), (edge,) = stack.tiers, stack.edges
    assert (stack.software, tier.type, tier.line, edge.gds_helps) == ("Python script", type_, line, helps)
    assert stack.source.line == line
    if helps != "no":
        assert "not seen" in edge.because or "named first" in edge.because  # weak evidence, and said so


TORCH = "import torch\nfrom torch.cuda.gds import GdsFile\nf = GdsFile('/kv/x', 0)\n"
FST = "from fastsafetensors import *\nimport fastsafetensors as fs\n"


@pytest.mark.parametrize(
    ("text", "helps"),
    [
        (TORCH + "f.load_storage(torch.empty(4096, device='cuda').untyped_storage())\n", "yes"),
        (TORCH + "f.load_storage(torch.empty(4096, device=f'cuda:{rank}').untyped_storage())\n", "yes"),
        (TORCH + "f.load_storage(torch.empty(4096).cuda().untyped_storage())\n", "yes"),
        (TORCH + "f.load_storage(torch.empty(4096).to('cuda:1').untyped_storage())\n", "yes"),
        (TORCH + "torch.set_default_device('cuda')\nf.load_storage(torch.empty(9).untyped_storage())\n", "yes"),
        (TORCH + "t = torch.empty(9, device=torch.device('cuda'))\n", "yes"),
        (TORCH + "d = 'cuda'\nt = torch.zeros(9, device=d)\n", "yes"),
        (TORCH + "t = torch.zeros(9, device='cuda', dtype=x).to(torch.float16)\n", "yes"),
        (TORCH + "f.load_storage(torch.empty(4096, device='cpu').untyped_storage())\n", "no"),
        (TORCH + "d = 'cpu'\nt = torch.zeros(9, device=d)\n", "no"),
        (TORCH + "t = torch.zeros(9, device=torch.device('cpu'))\n", "no"),
        (TORCH + "t = torch.empty(4096)\nf.save_storage(t.untyped_storage())\n", "no"),  # torch's default is the host
        (TORCH + "t = torch.empty(4096, pin_memory=True)\n", "no"),
        (TORCH + "t = torch.from_numpy(a)\n", "no"),
        (TORCH + "t = torch.empty(9, device='cuda')\nu = t.cpu()\n", "unknown"),
        (TORCH + "t = torch.empty(9, device=device)\n", "unknown"),
        (TORCH + "d = 'cuda'\nd = 'cpu'\nt = torch.empty(9, device=d)\n", "unknown"),
        (TORCH + "t = torch.empty(9, device='cuda' if torch.cuda.is_available() else 'cpu')\n", "unknown"),
        (TORCH.replace(", 0)", ", 0, device='cpu')"), "no"),
        ("import kvikio, numpy\nkvikio.CuFile('/x').read(numpy.empty(9))\n", "no"),
        ("import kvikio, cupy\nkvikio.CuFile('/x').read(cupy.empty(9))\n", "unknown"),
        ("a.create_backend('GDS')\na.register_memory([t], mem_type='DRAM')\na.register_memory(x, 'FILE')\n", "no"),
        ("a.create_backend('GDS')\na.register_memory([t], mem_type='VRAM')\n", "unknown"),
        (FST + "fs.SafeTensorsFileLoader(pg, 'cpu')\n", "no"),
        (FST + "fs.SafeTensorsFileLoader(pg)\n", "no"),  # device: str = "cpu"
        (FST + "fs.SafeTensorsFileLoader(pg, torch.device('cuda:0'))\n", "yes"),
        (FST + "fs.SafeTensorsFileLoader(pg, device)\n", "unknown"),
        (FST + "fs.ParallelLoader(pg, hf_weights_files=f, device='cpu')\n", "no"),
        (FST + "fs.AutoLoader(pg, files, device='cuda:0')\n", "yes"),
        ("import instanttensor\ninstanttensor.safe_open(p, backend='CUFILE', device='cpu')\n", "no"),
    ],
)
def test_memory_of_the_host_is_none_of_a_gpu(text: str, helps: str) -> None:
    report = app(text)
    (edge,) = report.stacks[0].edges
    assert edge.gds_helps == helps
    assert report.verdict == {"unknown": "unknown", "yes": "pass", "no": "fail"}[helps]
    assert [f.id for f in report.findings] == (["app.dram-staged"] if helps == "no" else [])
    assert (edge.from_ == "gpu" or edge.to == "gpu") or helps == "no"


@pytest.mark.parametrize(
    "text",
    [
        "from vllm import LLM\nLLM(model='m', device='cpu', load_format='LOADER')\n",
        "from sglang import Engine\nEngine(model_path='m', device='cpu', load_format='LOADER')\n",
        "import subprocess\nsubprocess.run(['vllm', 'serve', 'm', '--device', 'cpu', '--load-format', 'LOADER'])\n",
    ],
)
@pytest.mark.parametrize("loader", ["fastsafetensors", "instanttensor", "modelexpress", "mx"])
def test_an_engine_on_the_cpu_loads_into_host_memory(text: str, loader: str) -> None:
    report = app(text.replace("LOADER", loader))
    assert [(edge.to, edge.gds_helps) for edge in report.stacks[0].edges] == [("dram", "no")]
    assert report.verdict == "fail"


@pytest.mark.parametrize(
    "text",
    [
        "# torch.cuda.gds.GdsFile(p, 0)\n",
        '"""from torch.cuda.gds import GdsFile; GdsFile(p, 0)"""\n',
        "class GdsFile: pass\nGdsFile(p, 0)\n",  # somebody's own
        "from torch.cuda.gds import GdsFile\n",  # imported, not called
        "x.create_backend('UCX')\n",
    ],
)
def test_what_is_no_call(text: str) -> None:
    with pytest.raises(InputError, match="no KV cache"):
        app(text)


def test_an_engine_in_a_script() -> None:
    text = """\
from vllm import LLM
from vllm.config import KVTransferConfig
kv = {"spec_name": "TieringOffloadingSpec"}
llm = LLM(
    model="m", tensor_parallel_size=2, load_format="fastsafetensors",
    gpu_memory_utilization=util(),
    kv_transfer_config=KVTransferConfig(kv_connector="OffloadingConnector", kv_connector_extra_config={
        "spec_name": "SharedStorageOffloadingSpec", "gds_mode": "read_only", "threads": -1 and 2}),
)
"""
    (weights,) = app(text).stacks  # the connector's options hold an expression, so they are not written down
    assert (weights.software, weights.edges[0].gds_helps) == ("fastsafetensors", "unknown")
    plain = text.replace(', "threads": -1 and 2', "")
    engine, weights = app(plain).stacks
    assert [(e.direction, e.gds_helps) for e in engine.edges] == [("store", "no"), ("load", "yes")]
    assert (engine.source.line, weights.software) == (4, "fastsafetensors")


def test_a_program_that_a_script_starts() -> None:
    text = """\
#!/usr/bin/env python3
import os, subprocess
os.environ["DYN_KVBM_DISK_CACHE_GB"] = "9"
subprocess.run(["lmcache", "server", "--l1-size-gb", str(size), "--gds-l1-path", "/kv"], check=True)
"""
    report = judge([("start", text)], tool=TOOL)  # known by its first line
    assert [(s.software, s.source.line) for s in report.stacks] == [("Dynamo KVBM", 3), ("LMCache server", 4)]
    assert report.stacks[1].tiers[0].size_gib is None
    assert report.stacks[1].tiers[0].path == "/kv"


@pytest.mark.parametrize(("text", "line"), [("f(\n", 2), ("if x:\n  a\n b\n", 3), ("s = '''\n", 1)])
def test_broken_scripts(text: str, line: int) -> None:
    with pytest.raises(InputError, match=rf"s\.py:{line}: not valid Python"):
        read(text, "s.py")


def explained(text: str) -> None:
    """Read, or refused with a reason."""
    with contextlib.suppress(InputError):
        read(text, "s.py")


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100_000,
        "[" * 100_000,
        "f(" * 50_000 + ")" * 50_000,
        "x = " + "-" * 200_000 + "1\n",
        "a" + ".b" * 100_000 + "(1)\n",
        "f(" + "1," * 200_000 + ")\n",
        "f(g(\n" * 20_000,
        "import " + "a," * 100_000 + "b\n",
        "x = {" + "'a': {" * 50_000,
        "from x import y as\n",
        "f(]",
        "f(a=1}",
        "x = ['a', 'b')",
        "\0",
    ],
)
def test_hostile_scripts_end_soon(text: str) -> None:
    with no_hang(30):
        explained(text)


@given(st.text(alphabet="fg.()[]{},:='\"1 \n\timporas@#\\", max_size=80))
@settings(max_examples=300, deadline=None)
def test_no_other_exception(text: str) -> None:
    explained(text)

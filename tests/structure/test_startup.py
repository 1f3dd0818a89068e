"""What a run imports: start-up is guarded by names, not by a clock."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders import Machine

_RUN = """
import json, os, sys
from gdsctl.cli import run
code = run(json.loads(sys.argv[1]))
sys.stdout.flush()
os.write(2, json.dumps(sorted(sys.modules)).encode())
sys.exit(code)
"""
_NEVER = {
    "asyncio",
    "importlib.metadata",
    "jsonschema",
    "networkx",
    "psutil",
    "pydantic",
    "pynvml",
    "pyudev",
    "yaml",
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    machine = Machine()
    switch = machine.switch(machine.root_port(machine.root("0000:17", numa=0)), ports=2)
    machine.gpu(switch.down[0])
    machine.nvme(switch.down[1])
    return machine.write(tmp_path_factory.mktemp("tree"))


def _imported(*arguments: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", _RUN, json.dumps(arguments)],
        capture_output=True,
        check=True,
        text=True,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
        cwd=Path(__file__).resolve().parents[2],
    )
    assert done.stdout
    return set(json.loads(done.stderr))


def test_version_imports_next_to_nothing() -> None:
    imported = _imported("--version")
    assert not imported & (_NEVER | {"typer", "rich", "msgspec"})


def test_help_imports_no_stage() -> None:
    imported = _imported("--help")
    assert not imported & (_NEVER | {"rich", "gdsctl.pipeline", "gdsctl.collect", "gdsctl.assess.rules"})


def test_inspect_json_of_a_tree_imports_no_live_library_and_no_terminal(tree: Path) -> None:
    imported = _imported("inspect", "--format", "json", "-S", str(tree))
    assert not imported & (_NEVER | {"rich", "gdsctl.render.terminal", "gdsctl.source.live", "gdsctl.source.archive"})
    # Parsers of what people paste: a bare tree holds none of it.
    assert not imported & {f"gdsctl.parse.{name}" for name in ("gdscheck", "lspci", "nccl_topo", "nvidia_smi_topo")}
    assert not imported & {"gdsctl.plan", "gdsctl.emit"}

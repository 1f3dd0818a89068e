"""The benchmark of a KV cache's tiers runs at a tiny scale, and its picture shows what was measured."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = "benchmarks/kv_cache.py"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SCRIPT, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_a_tiny_run(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    sizes = ("--sessions", 4, "--chunks", 2, "--chunk", "64k", "--requests", 6, "--prefill-tokens-per-s", 5120)
    ran = run(work, *sizes, "--json", tmp_path / "f.json", "--svg", tmp_path / "f.svg")
    if "Invalid argument" in ran.stderr:
        pytest.skip("no O_DIRECT here")
    assert ran.returncode == 0, ran.stderr
    assert list(work.iterdir()) == []
    found = json.loads((tmp_path / "f.json").read_text())
    assert found["working_set_bytes"] == 4 * 2 * 65536
    alone, *others = found["rows"]
    assert [row["threads"] for row in others] == [1, 2, 4, 8] * 3
    assert {row["lost_share"] for row in others} == {alone["lost_share"]}  # the same requests in each run
    assert all(row["seconds"]["p50"] <= row["seconds"]["p90"] <= row["seconds"]["p99"] for row in found["rows"])
    # a request that lost both of its chunks computes 512 tokens anew: 0.1 s at 5,120 tokens/s
    assert alone["seconds"]["p99"] == pytest.approx(0.1, abs=0.05)
    # two looks at a transfer are 10 ms apart
    assert all(row["seconds"]["p99"] >= 0.01 for row in others if row["layout"] == "nixl_store_dynamic")


def test_the_picture_is_that_of_the_figures(tmp_path: Path) -> None:
    assert run("--draw", "benchmarks/kv_cache.json", "--svg", tmp_path / "f.svg").returncode == 0
    drawn = (tmp_path / "f.svg").read_text()
    assert drawn == (ROOT / "docs" / "kv-cache-probe.svg").read_text()
    rows = json.loads((ROOT / "benchmarks" / "kv_cache.json").read_text())["rows"]
    titles = [element.text for element in ET.fromstring(drawn).iter("{http://www.w3.org/2000/svg}title")]  # noqa: S314 -- ours
    assert titles == [
        f"{row['layout']}, {row['threads']} threads, {name}: {value:g} s"
        for row in rows
        for name, value in row["seconds"].items()
    ]

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_tables_are_current() -> None:
    ran = subprocess.run([sys.executable, "docs/build_kv_cache.py", "--check"], cwd=ROOT, check=False)
    assert ran.returncode == 0
    page = (ROOT / "docs" / "kv-cache.md").read_text()
    assert "| Qwen/Qwen3-235B-A22B-FP8 | 192,512 | 5,577 | 5.74 GiB | 47 MiB |" in page  # 32,000 x 192,512 / 2^30
    # The rows of the field by hand: a DRAM L1 has no edge from GPU to storage, whatever NIXL's backend is called.
    assert (
        "| LMCache server, DRAM L1, `nixl_store_dynamic` GDS_MT | gpu <-> dram; dram <-> file, staged in dram | no |"
        in page
    )
    assert "| LMCache server, `--gds-l1-path` | gpu <-> file | yes |" in page
    assert "| fastsafetensors, several ranks | file -> gpu | vLLM before 0.17: yes; vLLM 0.17 and later: no |" in page

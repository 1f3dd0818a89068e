"""Writes the tables of kv-cache.md out of the rows that gdsctl judges by.

python docs/build_kv_cache.py            writes them
python docs/build_kv_cache.py --check    exit code 1 where they are not current
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parent / "kv-cache.md"


def edges() -> str:
    """One line a row of app_edges.toml."""
    from gdsctl.data import app_edges

    lines = ["| software | step | backend | bytes | through | GDS can help | source |", "|---|---|---|---|---|---|---|"]
    for row in app_edges.rows():
        arrow = {"both": "<->", "store": "->", "load": "->"}[row.direction]
        way = f"{row.from_} {arrow} {row.to}" + (f", staged in {row.staged_in}" if row.staged_in else "")
        backends = ", ".join(row.backends) or "any"
        cells = (row.software, f"`{row.shape}`", backends, way, row.api, row.gds_helps, row.source)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
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
    for name, table in (("edges", edges()), ("models", models())):
        mark = rf"(<!-- table: {name} -->\n)(.*?)(<!-- end -->)"
        page = re.sub(mark, lambda match, table=table: f"{match[1]}{table}\n{match[3]}", page, flags=re.DOTALL)  # type: ignore[misc]
    return page


def main() -> int:
    page = PAGE.read_text()
    wanted = built(page)
    if "--check" in sys.argv[1:]:
        return int(wanted != page)
    PAGE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())

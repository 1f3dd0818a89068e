"""The report of `size` for people."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gdsctl.kvcache.size import Size
from gdsctl.render.safe_text import safe


def size_report(size: Size) -> RenderableType:
    """One figure a row, and last how they were worked out."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _rows(size):
        table.add_row(Text(name), Text(value))
    lines = [Text(f"  {safe(step)}") for step in size.formula.split("; ")]
    notes = [Text(f"- {safe(note)}") for note in size.notes]
    return Group(table, Text(""), Text("How", style="bold underline"), *lines, *notes)


def _rows(size: Size) -> list[tuple[str, str]]:
    rows = [("bytes per token", f"{size.bytes_per_token:,.10g}"), ("tokens per GiB", f"{size.tokens_per_gib:,.10g}")]
    if size.bytes_per_token_per_gpu != size.bytes_per_token:
        rows.insert(1, ("  of them on one GPU", f"{size.bytes_per_token_per_gpu:,.10g}"))
    if size.windowed_bytes_per_token is not None:
        rows.append(("bytes per token past the window", f"{size.windowed_bytes_per_token:,.10g}"))
    ranks = size.bytes_per_token_per_gpu != size.bytes_per_token
    rows.append(
        (
            f"one chunk ({size.chunk_tokens} tokens{', one rank' if ranks else ''})",
            f"{size.chunk_bytes:,} bytes ({size.chunk_bytes / (1 << 20):.4g} MiB)",
        )
    )
    if size.request_gib is not None:
        rows += [("one request", f"{size.request_gib:.2f} GiB"), ("  its chunk files", f"{size.chunk_files:,}")]
    if size.windowed_request_gib is not None:
        rows.append(("  where windows are used", f"{size.windowed_request_gib:.2f} GiB"))
    if size.sessions is not None:
        rows += [
            ("sessions that fit", f"{size.sessions:,} ({size.sessions_exact:.2f})"),
            ("  chunk files, so inodes", f"{size.volume_chunk_files:,}"),
        ]
    if size.sessions_in_l1 is not None:
        rows.append(("  of them in the memory tier", f"{size.sessions_in_l1:,}"))
    if size.fetch_seconds is not None:
        rows.append(("time to fetch", f"{size.fetch_seconds:.3g} s"))
    if size.recompute_seconds is not None:
        rows.append(("time to compute anew", f"{size.recompute_seconds:.3g} s"))
    if size.break_even_bandwidth_gbs is not None:
        rows.append(("fetching wins from", f"{size.break_even_bandwidth_gbs:.3g} GB/s"))
    if size.break_even_prefill_tokens_per_s is not None:
        rows.append(("computing anew wins from", f"{size.break_even_prefill_tokens_per_s:,.0f} tokens/s"))
    return rows

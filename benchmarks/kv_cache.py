"""A KV cache's tiers at small scale: host memory alone against host memory above files, in the layouts of LMCache's adapters.

    python benchmarks/kv_cache.py DIR [--sessions 16] [--chunks 16] [--chunk 2M] [--l1 0.5] [--requests 40]
                                      [--prefill-tokens-per-s 8000] [--json FILE] [--svg FILE]
    python benchmarks/kv_cache.py --draw FILE --svg FILE

All sessions are stored once; then requests come one at a time for sessions drawn at random. A request ends when all chunks
of its session lie in the engine's buffer. The upper tier holds `--l1` of the working set, least recently used out first.
What it has lost is read from files with O_DIRECT (measured), or, without a lower tier, computed anew: chunk tokens at the
prefill rate that is given (added, not measured; there is no GPU here). 1, 2, 4 and 8 threads read.

Layouts: `fs_native` has one file and one read a chunk. `nixl_store_dynamic` has the same file and one request, for NIXL
merges neighbouring pages, but asks for its end every 10 ms. `nixl_store` after some churn has a chunk's pages of 4 KiB
scattered, so each is a request (NIXL merges neighbours only).
"""

from __future__ import annotations

import argparse
import json
import math
import mmap
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from html import escape
from typing import Any

THREADS = (1, 2, 4, 8)
CHUNK_TOKENS = 256
PAGE = 4096
POLL_SECONDS = 0.01  # LMCache nixl_store_dynamic_l2_adapter.py: asyncio.sleep between two looks at a transfer
PERCENTILES = (50, 90, 99)
Read = Callable[[str, memoryview], None]


def read_whole(path: str, view: memoryview) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    try:
        if os.preadv(descriptor, [view], 0) != len(view):
            raise OSError(f"{path}: short read")
    finally:
        os.close(descriptor)


def fs_native(pool: ThreadPoolExecutor, wanted: list[tuple[str, memoryview]], threads: int) -> None:
    del threads
    list(pool.map(read_whole, *zip(*wanted, strict=True)))


def nixl_store_dynamic(pool: ThreadPoolExecutor, wanted: list[tuple[str, memoryview]], threads: int) -> None:
    del threads
    posted = [pool.submit(read_whole, path, view) for path, view in wanted]
    ended = False
    while not ended:
        ended = all(future.done() for future in posted)
        time.sleep(POLL_SECONDS)
    for future in posted:
        future.result()


def nixl_store_pages(pool: ThreadPoolExecutor, wanted: list[tuple[str, memoryview]], threads: int) -> None:
    for path, view in wanted:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
        pages = list(range(0, len(view), PAGE))
        random.Random(path).shuffle(pages)  # noqa: S311 -- an order, not a secret

        def part(offsets: list[int], descriptor: int = descriptor, view: memoryview = view) -> None:
            for offset in offsets:
                os.preadv(descriptor, [view[offset : offset + PAGE]], offset)

        try:
            list(pool.map(part, [pages[start::threads] for start in range(threads)]))
        finally:
            os.close(descriptor)


LAYOUTS = {
    "fs_native": fs_native,
    "nixl_store_dynamic": nixl_store_dynamic,
    "nixl_store, scattered pages": nixl_store_pages,
}


def touched(size: int) -> memoryview:
    """Page-aligned memory whose pages are there, as pinned memory's are."""
    memory = mmap.mmap(-1, size)
    for at in range(0, size, PAGE):
        memory[at] = 1
    return memoryview(memory)


class Host:
    """The upper tier: as many chunks as fit, page-aligned, least recently used out first."""

    def __init__(self, chunks: int, chunk_bytes: int) -> None:
        whole = touched(chunks * chunk_bytes)
        self._free = [whole[at : at + chunk_bytes] for at in range(0, chunks * chunk_bytes, chunk_bytes)]
        self._held: OrderedDict[int, memoryview] = OrderedDict()

    def get(self, chunk: int) -> memoryview | None:
        if chunk in self._held:
            self._held.move_to_end(chunk)
        return self._held.get(chunk)

    def put(self, chunk: int) -> memoryview:
        view = self._free.pop() if self._free else self._held.popitem(last=False)[1]
        self._held[chunk] = view
        return view


def run(folder: str, asked: argparse.Namespace, name: str | None, threads: int) -> dict[str, Any]:
    """Seconds of each request, for one layout (None: no lower tier)."""
    total = asked.sessions * asked.chunks
    host = Host(max(int(total * asked.l1), asked.chunks), asked.chunk)
    engine = touched(asked.chunks * asked.chunk)
    for chunk in range(total):
        host.put(chunk)
    order = random.Random(7)  # noqa: S311 -- the same requests in each run
    seconds: list[float] = []
    lost = 0
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(asked.requests):
            session = order.randrange(asked.sessions)
            begun = time.perf_counter()
            views: list[memoryview] = []
            wanted: list[tuple[str, memoryview]] = []
            for chunk in range(session * asked.chunks, (session + 1) * asked.chunks):
                view = host.get(chunk)
                if view is None:
                    view = host.put(chunk)
                    wanted.append((os.path.join(folder, f"{chunk:06d}.kv"), view))
                views.append(view)
            if wanted and name is not None:
                LAYOUTS[name](pool, wanted, threads)
            for at, view in enumerate(views):
                engine[at * asked.chunk : (at + 1) * asked.chunk] = view
            spent = time.perf_counter() - begun
            if name is None:
                spent += len(wanted) * CHUNK_TOKENS / asked.prefill_tokens_per_s
            elif any(view[0] != chunk % 251 for chunk, view in _first_bytes(wanted)):
                raise OSError("a chunk came back changed")
            lost += len(wanted)
            seconds.append(spent)
    return {
        "layout": name or "no lower tier",
        "threads": threads,
        "lost_share": round(lost / (asked.requests * asked.chunks), 3),
        "seconds": {f"p{p}": round(percentile(seconds, p), 6) for p in PERCENTILES},
        "mean_seconds": round(statistics.fmean(seconds), 6),
    }


def _first_bytes(wanted: list[tuple[str, memoryview]]) -> list[tuple[int, memoryview]]:
    return [(int(os.path.basename(path)[:6]), view) for path, view in wanted]


def percentile(values: list[float], percent: int) -> float:
    """Nearest rank: the least value that `percent` of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(math.ceil(percent / 100 * len(ordered)) - 1, 0)]


def measure(folder: str, asked: argparse.Namespace) -> dict[str, Any]:
    own = tempfile.mkdtemp(prefix="kv-cache-", dir=folder)
    try:
        block = mmap.mmap(-1, asked.chunk)
        begun = time.perf_counter()
        for chunk in range(asked.sessions * asked.chunks):
            block[:PAGE] = bytes([chunk % 251]) * PAGE
            descriptor = os.open(os.path.join(own, f"{chunk:06d}.kv"), os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o600)
            os.pwritev(descriptor, [block], 0)
            os.close(descriptor)
        stored = time.perf_counter() - begun
        rows = [run(own, asked, None, 1)]
        rows += [run(own, asked, name, threads) for name in LAYOUTS for threads in THREADS]
    finally:
        shutil.rmtree(own, ignore_errors=True)
    size = asked.sessions * asked.chunks * asked.chunk
    return {
        "chunk_bytes": asked.chunk,
        "chunks_of_a_session": asked.chunks,
        "working_set_bytes": size,
        "l1_share": asked.l1,
        "requests": asked.requests,
        "prefill_tokens_per_s": asked.prefill_tokens_per_s,
        "store_gbs": round(size / stored / 1e9, 3),
        "cpus": os.cpu_count(),
        "rows": rows,
    }


# --- the plot ----------------------------------------------------------------------------------------------------------

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 860, 420, 70, 60, 60
_COLOURS = {"p50": "#4477aa", "p90": "#ccbb44", "p99": "#ee6677"}


def draw(found: dict[str, Any]) -> str:
    """Percentiles of a request on a logarithmic axis, one group of bars for each layout and number of threads."""
    rows = found["rows"]
    values = [value for row in rows for value in row["seconds"].values()]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    inner = _HEIGHT - _TOP - _BOTTOM
    step = (_WIDTH - _LEFT - 20) / len(rows)

    def y(value: float) -> float:
        return round(_TOP + inner * (high - math.log10(value)) / (high - low), 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        _said(_LEFT, 20, "Seconds until a session's KV cache is with the engine", size=14),
        _said(_LEFT, 38, _caption(found)),
    ]
    for power in range(low, high + 1):
        at = y(10.0**power)
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - 20}" y1="{at}" y2="{at}" stroke="#ddd"/>')
        parts.append(_said(_LEFT - 8, at + 4, f"{10.0**power:g} s", anchor="end"))
    last = ""
    for index, row in enumerate(rows):
        left = _LEFT + index * step
        for place, (name, value) in enumerate(row["seconds"].items()):
            wide = round(step / 4, 1)
            x = round(left + step / 8 + place * wide, 1)
            tall = round(_HEIGHT - _BOTTOM - y(value), 1)
            parts.append(
                f'<rect x="{x}" y="{y(value)}" width="{wide}" height="{tall}" fill="{_COLOURS[name]}">'
                f"<title>{escape(row['layout'])}, {row['threads']} threads, {name}: {value:g} s</title></rect>"
            )
        under = "computed anew" if row["layout"] == "no lower tier" else str(row["threads"])
        parts.append(_said(left + step / 2, _HEIGHT - _BOTTOM + 16, under, anchor="middle", size=10))
        if row["layout"] != last:
            last = row["layout"]
            shown = "L1 alone" if last == "no lower tier" else f"L1 and {last}: threads"
            parts.append(_said(left + 2, _HEIGHT - _BOTTOM + 36, shown, size=11))
    for place, (name, colour) in enumerate(_COLOURS.items()):
        parts.append(f'<rect x="{_WIDTH - 170 + place * 50}" y="10" width="10" height="10" fill="{colour}"/>')
        parts.append(_said(_WIDTH - 156 + place * 50, 20, name))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _caption(found: dict[str, Any]) -> str:
    share = found["rows"][0]["lost_share"]
    return (
        f"{found['chunks_of_a_session']} chunks of {found['chunk_bytes'] / 2**20:g} MiB a session, working set "
        f"{found['working_set_bytes'] / 2**20:g} MiB, L1 {found['l1_share']:.0%} of it, {share:.0%} of the chunks lost; "
        f"prefill {found['prefill_tokens_per_s']:g} tokens/s (given), {found['cpus']} CPUs"
    )


def _said(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12) -> str:
    return f'<text x="{round(x, 1)}" y="{round(y, 1)}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'


def bytes_of(text: str) -> int:
    number, unit = text[:-1], text[-1:].upper()
    return int(number) << {"K": 10, "M": 20, "G": 30}[unit] if unit in "KMG" else int(text)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--sessions", type=int, default=16)
    parser.add_argument("--chunks", type=int, default=16)
    parser.add_argument("--chunk", type=bytes_of, default=2 << 20)
    parser.add_argument("--l1", type=float, default=0.5)
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--prefill-tokens-per-s", type=float, default=8000)
    parser.add_argument("--json")
    parser.add_argument("--svg")
    parser.add_argument("--draw", metavar="FILE", help="draw what an earlier run found")
    asked = parser.parse_args(arguments)
    if (asked.folder is None) == (asked.draw is None):
        parser.error("one of DIR and --draw FILE is wanted")
    if asked.draw is not None:
        with open(asked.draw, encoding="utf-8") as file:
            found = json.load(file)
    else:
        found = measure(asked.folder, asked)
    if asked.json:
        with open(asked.json, "w", encoding="utf-8") as file:
            file.write(json.dumps(found, indent=2) + "\n")
    if asked.svg:
        with open(asked.svg, "w", encoding="utf-8") as file:
            file.write(draw(found))
    for row in found["rows"]:
        shown = "  ".join(f"{name} {value * 1e3:9.2f} ms" for name, value in row["seconds"].items())
        print(f"{row['layout']:28} {row['threads']} threads  lost {row['lost_share']:.0%}  {shown}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

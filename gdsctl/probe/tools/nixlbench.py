"""nixlbench (ai-dynamo/nixl 1.4, benchmark/nixlbench: README.md and src/utils/utils.cpp for options and table)."""

from __future__ import annotations

import re

from gdsctl.errors import UsageError
from gdsctl.probe.report import Latency
from gdsctl.probe.tools.tool import GivenAFile, Mode, Place, Side, Told, ToolError, Work, find, last_line

_PLACES = ("/usr/local/nixlbench/bin/nixlbench", "/opt/nixlbench/bin/nixlbench")
_HEAD = "Block Size (B)"
_SHARE_BEFORE = 16  # a run of so many blocks is preceded by one that is not counted


class Nixlbench(GivenAFile):
    """It moves the same blocks over and over, a batch of --iodepth for each thread, and counts them, not seconds."""

    name = "nixlbench"
    modes: tuple[Mode, ...] = (
        Mode(name="POSIX", what="libaio into host memory, O_DIRECT"),
        Mode(name="GDS", what="NIXL's GDS plugin: batches of cuFile, GPU memory", gpu=True, cufile=True),
        Mode(name="GDS_MT", what="NIXL's GDS_MT plugin: cuFile in threads, GPU memory", gpu=True, cufile=True),
    )

    def default(self, work: Work) -> str:
        return "GDS" if work.gpus else "POSIX"

    def program(self) -> str:
        return find("nixlbench", _PLACES)

    def require(self, program: str, mode: Mode, work: Work) -> None:  # noqa: ARG002 -- the protocol's
        if work.mixed:
            raise UsageError("nixlbench does not mix reads and writes")
        if work.seconds is not None:
            raise UsageError("nixlbench counts blocks, not seconds: take --size without --duration")
        if len(work.gpus) > 1 or work.gpus not in ((), (0,)):
            raise UsageError("nixlbench takes the first GPU; choose it by CUDA_VISIBLE_DEVICES")
        if work.block_bytes & (work.block_bytes - 1):
            raise UsageError("nixlbench takes blocks of a power of two")

    def command(self, program: str, mode: Mode, work: Work, place: Place) -> tuple[str, ...]:
        rounds = _rounds(work)
        options = {
            "backend": mode.name,
            "initiator_seg_type": "VRAM" if mode.gpu else "DRAM",
            "op_type": work.directions[0].upper(),
            "filenames": place.path,
            "num_files": 1,
            "storage_enable_direct": "true",
            "total_buffer_size": work.each_bytes * work.threads,
            "start_block_size": work.block_bytes,
            "max_block_size": work.block_bytes,
            "start_batch_size": work.iodepth,
            "max_batch_size": work.iodepth,
            "num_threads": work.threads,
            "num_iter": rounds,
            "warmup_iter": max(work.threads, rounds // _SHARE_BEFORE // work.threads * work.threads),
            "large_blk_iter_ftr": 1,
        }
        if work.shuffled:
            options |= {"randomize_location_mode": "blockaligned", "randomize_location_mode_seed": work.seed + 1}
        return (program, *(f"--{name}={value}" for name, value in options.items()))

    def parse(self, output: str, results: str, work: Work) -> Told:  # noqa: ARG002 -- the protocol's
        lines = output.splitlines()
        at = next((at for at, line in enumerate(lines) if line.startswith(_HEAD)), None)
        if at is None:
            raise ToolError(f"nixlbench tells no result: {last_line(output) or 'it printed nothing'}")
        names = re.split(r" {2,}", lines[at].strip())
        rows = [line.split() for line in lines[at + 1 :] if re.match(r"\d+\s", line)]
        row = next((dict(zip(names, values, strict=True)) for values in rows if len(values) == len(names)), None)
        if row is None or int(row[_HEAD]) != work.block_bytes:
            raise ToolError("nixlbench tells no result for this block size")
        blocks = _rounds(work) * work.iodepth
        gbs = float(row["B/W (GB/Sec)"])
        if not gbs:
            raise ToolError("nixlbench tells a throughput of 0")
        alone = work.iodepth == 1
        latency = Latency(mean=float(row["Avg Lat. (us)"]), p99=float(row["P99 Tx (us)"]) if alone else None)
        side = Side(direction=work.directions[0], bytes=blocks * work.block_bytes, blocks=blocks, latency_us=latency)
        notes = [f"nixlbench moves the same {work.iodepth * work.threads} blocks over and over: a drive may keep them"]
        notes.append("bytes are those that were ordered, seconds what its throughput makes of them")
        return Told(seconds=side.bytes / gbs / 1e9, sides=(side,), notes=tuple(notes))


def _rounds(work: Work) -> int:
    """Batches of all threads together; as many for each, else it takes more than it was told."""
    return max(1, work.size_bytes // (work.block_bytes * work.iodepth * work.threads)) * work.threads

"""NVIDIA's gdsio, by the usage that it prints (1.6 to 1.16) and the output in the GDS getting started guide, section 2."""

from __future__ import annotations

import re

from gdsctl.errors import UsageError
from gdsctl.probe.report import Latency
from gdsctl.probe.tools.execute import execute
from gdsctl.probe.tools.tool import Mode, Place, Side, Told, ToolError, Work, find, last_line

_PLACES = ("/usr/local/cuda*/gds/tools/gdsio", "/usr/local/gds/tools/gdsio")
_LINE = re.compile(
    r"IoType: (?P<type>\w+) XferType: (?P<xfer>\w+) Threads: \d+ (?:IoDepth: \d+ )?"
    r"DataSetSize: (?P<kib>\d+)/\d+\(KiB\) IOSize: \d+(?:-\d+-\d+)?\(KiB\) Throughput: [\d.]+ GiB/sec, "
    r"Avg_Latency: (?P<us>[\d.]+) usecs ops: (?P<ops>\d+) total_time (?P<seconds>[\d.]+) secs"
)
_VERSION = re.compile(r"gdsio version ?: ?([\w.]+)")
_TYPES = {"read": "0", "write": "1", "randread": "2", "randwrite": "3"}
_KIB = 1024


class Gdsio:
    """A file for each thread (-D), as its guide has it. Its files are written by itself, since it names them."""

    name = "gdsio"
    makes_files = True
    modes: tuple[Mode, ...] = (
        Mode(name="0", what="storage to GPU: cuFileRead and cuFileWrite", gpu=True, cufile=True),
        Mode(name="1", what="storage to host memory"),
        Mode(name="2", what="storage to host memory to GPU", gpu=True),
        Mode(name="3", what="storage to host memory to GPU, copies in a stream", gpu=True),
        Mode(name="4", what="storage to page cache to host memory to GPU", gpu=True),
        Mode(name="5", what="storage to GPU: cuFileReadAsync and cuFileWriteAsync", gpu=True, cufile=True),
        Mode(name="6", what="storage to GPU: cuFileBatchIOSubmit", gpu=True, cufile=True),
        Mode(name="7", what="storage to GPU: batches in a stream", gpu=True, cufile=True),
    )

    def default(self, work: Work) -> str:
        if not work.gpus:
            return "1"
        return "6" if work.iodepth > 1 else "0"

    def program(self) -> str:
        return find("gdsio", _PLACES)

    def version(self, program: str) -> str | None:
        """Printed above its usage."""
        found = _VERSION.search(execute([program, "-h"], limit_s=30).stdout)
        return found[1] if found else None

    def require(self, program: str, mode: Mode, work: Work) -> None:  # noqa: ARG002 -- the protocol's
        if work.mixed:
            raise UsageError("gdsio does not mix reads and writes")
        if len(work.gpus) > 1:
            raise UsageError("gdsio takes one GPU on its command line")
        if work.block_bytes % _KIB:
            raise UsageError("gdsio takes blocks of whole KiB")
        if work.iodepth > 1 and mode.name not in ("6", "7"):
            raise UsageError(f"gdsio's transfer type {mode.name} moves one block at a time; take more --threads, or 6")
        if work.iodepth > 1 and work.threads > 1:
            raise UsageError("gdsio's batches run in one thread; take --threads 1")

    def layout(self, program: str, work: Work, place: Place) -> tuple[str, ...]:
        return (*self._command(program, "1", work, place), "-I", "1")

    def command(self, program: str, mode: Mode, work: Work, place: Place) -> tuple[str, ...]:
        more = ["-I", _TYPES[work.rw]]
        if work.seconds is not None:
            more += ["-T", str(max(1, round(work.seconds)))]
        if work.shuffled:
            more += ["-k", str(work.seed)]
        if mode.cufile and not work.registered:
            more.append("-b")
        return (*self._command(program, mode.name, work, place), *more)

    def _command(self, program: str, xfer: str, work: Work, place: Place) -> tuple[str, ...]:
        """In a batch each of -w entries has a file of its own, too."""
        workers = work.threads * work.iodepth
        each = work.size_bytes // workers // work.block_bytes * work.block_bytes
        return (
            *(program, "-D", place.folder or place.path, "-d", str((work.gpus or (0,))[0])),
            *("-w", str(workers), "-s", f"{each // _KIB}K", "-i", f"{work.block_bytes // _KIB}K", "-x", xfer),
        )

    def parse(self, output: str, results: str, work: Work) -> Told:  # noqa: ARG002 -- the protocol's
        found = _LINE.search(output)
        if found is None:
            raise ToolError(f"gdsio tells no result: {last_line(output) or 'it printed nothing'}")
        if found["type"].lower() != work.rw:
            raise ToolError(f"gdsio tells of {found['type']}, not of {work.rw}")
        side = Side(
            direction=work.directions[0],
            bytes=int(found["kib"]) * _KIB,
            blocks=int(found["ops"]),
            latency_us=Latency(mean=float(found["us"])),
        )
        return Told(
            seconds=float(found["seconds"]), sides=(side,), notes=("gdsio tells the mean latency, no percentiles",)
        )

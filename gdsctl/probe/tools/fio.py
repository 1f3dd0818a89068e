"""fio (axboe/fio, HOWTO.rst and stat.c; JSON as of 3.33 to 3.41)."""

from __future__ import annotations

from typing import Any

import msgspec

from gdsctl.errors import UndecidedError, UsageError
from gdsctl.probe.report import Latency
from gdsctl.probe.tools.execute import execute
from gdsctl.probe.tools.tool import GivenAFile, Mode, Place, Side, Told, ToolError, Work, find

_HUGE_PAGE = 2 << 20
"""Where its buffers begin, so that a malloc that asks for huge pages gives whole ones: as our own engine has them."""
_PERCENTILES = {"p50": "50.000000", "p90": "90.000000", "p99": "99.000000", "p99_9": "99.900000"}


class Fio(GivenAFile):
    name = "fio"
    modes: tuple[Mode, ...] = (
        Mode(name="psync", what="pread and pwrite, O_DIRECT"),
        Mode(name="io_uring", what="io_uring, O_DIRECT"),
        Mode(name="libaio", what="libaio, O_DIRECT"),
        Mode(name="libcufile", what="cuFileRead and cuFileWrite (cuda_io=cufile)", gpu=True, cufile=True),
        Mode(name="libcufile-posix", what="O_DIRECT into host memory and cudaMemcpy (cuda_io=posix)", gpu=True),
    )

    def default(self, work: Work) -> str:
        if work.gpus:
            return "libcufile"
        return "io_uring" if work.iodepth > 1 else "psync"

    def program(self) -> str:
        return find("fio")

    def require(self, program: str, mode: Mode, work: Work) -> None:
        engine = mode.name.removesuffix("-posix")
        engines = execute([program, "--enghelp"], limit_s=30).stdout.split()
        if engine not in engines:
            raise UndecidedError(f"fio here is built without {engine}; settle with: fio --enghelp")
        if work.iodepth > 1 and (mode.name == "psync" or mode.gpu):
            raise UsageError(f"fio's {engine} moves one block at a time; take more --threads, or another mode")

    def command(self, program: str, mode: Mode, work: Work, place: Place) -> tuple[str, ...]:
        """Threads, since its processes would leave our process group, and GPUs admit few processes."""
        engine = mode.name.removesuffix("-posix")
        options = {
            "name": "gdsctl",
            "filename": place.path,
            "ioengine": engine,
            "direct": 1,
            "rw": work.rw,
            "bs": work.block_bytes,
            "size": work.each_bytes,
            "offset_increment": work.each_bytes,
            "numjobs": work.threads,
            "iodepth": work.iodepth,
            "randseed": work.seed + 1,
            "fallocate": "none",
            "lat_percentiles": 1,
            "clat_percentiles": 0,
            "percentile_list": "50:90:99:99.9",
            "output-format": "json",
            "iomem_align": _HUGE_PAGE,
        }
        if work.mixed:
            options["rwmixread"] = work.read_percent
        if mode.gpu:
            options |= {"gpu_dev_ids": ":".join(map(str, work.gpus or (0,)))}
            options |= {"cuda_io": "cufile" if mode.cufile else "posix"}
        if work.seconds is not None:
            options["runtime"] = f"{max(1, round(work.seconds * 1000))}ms"
        said = tuple(f"--{name}={value}" for name, value in options.items())
        return (
            program,
            *said,
            "--thread",
            "--group_reporting",
            *(["--time_based"] if work.seconds is not None else []),
        )

    def parse(self, output: str, results: str, work: Work) -> Told:  # noqa: ARG002 -- the protocol's
        start = output.find("{")
        try:
            document: Any = msgspec.json.decode(output[start : output.rfind("}") + 1] if start >= 0 else "")
            (job,) = document["jobs"]
            if job["error"]:
                raise ToolError(f"fio: error {job['error']}")
            sides = tuple(self._side(job, direction) for direction in work.directions)
            seconds = max(job[direction]["runtime"] for direction in work.directions) / 1e3
            version = str(document["fio version"]).removeprefix("fio-")
            cpu_seconds = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1e3
        except (msgspec.DecodeError, LookupError, TypeError, ValueError) as error:
            raise ToolError(f"fio's output is not the JSON that it should be: {error!r}") from error
        return Told(seconds=seconds, sides=sides, version=version, cpu_seconds=round(cpu_seconds, 6))

    def _side(self, job: Any, direction: Any) -> Side:
        found, times = job[direction], job[direction]["lat_ns"]
        told = {"min": times["min"], "mean": times["mean"], "max": times["max"]}
        for ours, theirs in _PERCENTILES.items():  # the middle of a bucket may be beyond the greatest value in it
            value = times.get("percentile", {}).get(theirs)
            told[ours] = None if value is None else min(value, times["max"])
        latency = Latency(
            **{name: None if value is None else round(float(value) / 1e3, 3) for name, value in told.items()}
        )
        blocks = int(found["total_ios"])
        return Side(
            direction=direction,
            bytes=int(found["io_bytes"]),
            blocks=blocks,
            latency_us=latency if blocks else Latency(),
        )

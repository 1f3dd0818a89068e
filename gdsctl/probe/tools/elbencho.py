"""elbencho (breuner/elbencho 3.1: ProgArgs.cpp for the options, Statistics.cpp and LatencyHistogram.cpp for the JSON)."""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec

from gdsctl.errors import UsageError
from gdsctl.probe.engine import Direction
from gdsctl.probe.report import Latency
from gdsctl.probe.tools.tool import GivenAFile, Mode, Place, Side, Told, ToolError, Work, find

_RANGE = re.compile(r"([\d.]+)-([\d.]+)us")
_PERCENTS = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99_9": 99.9}


class Elbencho(GivenAFile):
    name = "elbencho"
    modes: tuple[Mode, ...] = (
        Mode(name="direct", what="pread and pwrite, or libaio for a queue, O_DIRECT"),
        Mode(name="cufile", what="cuFileRead and cuFileWrite (--cufile)", gpu=True, cufile=True),
        Mode(name="staged", what="O_DIRECT into host memory and cudaMemcpy (--gpuids alone)", gpu=True),
    )

    def default(self, work: Work) -> str:
        return "cufile" if work.gpus else "direct"

    def program(self) -> str:
        return find("elbencho")

    def require(self, program: str, mode: Mode, work: Work) -> None:  # noqa: ARG002 -- the protocol's
        if mode.cufile and work.iodepth > 1:
            raise UsageError("elbencho's --cufile moves one block at a time; take more --threads")

    def command(self, program: str, mode: Mode, work: Work, place: Place) -> tuple[str, ...]:
        """A mixed run is a write phase of which a share is read."""
        said = [program, "--read" if work.directions == ("read",) else "--write", "--direct", "--nolive"]
        said += ["--threads", str(work.threads), "--block", str(work.block_bytes)]
        said += ["--size", str(work.each_bytes * work.threads), "--iodepth", str(work.iodepth)]
        said += ["--lat", "--lathisto", "--jsonfile", place.results]
        if work.shuffled:
            said.append("--rand")
        if work.mixed:
            said += ["--rwmixpct", str(work.read_percent)]
        if work.seconds is not None:
            said += ["--infloop", "--timelimit", str(max(1, round(work.seconds)))]
        if mode.gpu:
            said += ["--gpuids", ",".join(map(str, work.gpus or (0,)))]
        if mode.cufile:
            said += ["--cufile", *(["--gdsbufreg"] if work.registered else [])]
        return (*said, place.path)

    def parse(self, output: str, results: str, work: Work) -> Told:  # noqa: ARG002 -- the protocol's
        """A line of JSON for each phase; ours has one. Where a direction has no bytes it is left out of the file."""
        try:
            document: Any = msgspec.json.decode(results.strip().splitlines()[-1])
            last = document["last_done"]
            seconds = int(last["elapsed_time_ms"]) / 1e3
            version = str(document["config"]["version"])
            times = last.get("latency", {}).get("IO", {})
            histogram = times.get("histogram")  # with a mixed run the reads' lies in it, and the writes' is not JSON
            reads = histogram.get("rwmix_read") if isinstance(histogram, dict) else None
            sides: tuple[Side, ...]
            if work.mixed:
                sides = (
                    self._side("read", last.get("rwmix_read", {}), times.get("rwmix_read", {}), reads, work),
                    self._side("write", last, times, histogram, work),
                )
            else:
                sides = (self._side(work.directions[0], last, times, histogram, work),)
        except (msgspec.DecodeError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise ToolError(f"elbencho's result file is not the JSON that it should be: {error!r}") from error
        note = "elbencho's percentiles are the upper ends of buckets that are a fifth wide"
        return Told(seconds=seconds, sides=sides, version=version, notes=(note,))

    def _side(self, direction: Direction, found: Any, times: Any, histogram: Any, work: Work) -> Side:
        moved = int(found.get("bytes", 0))
        told = {ours: times.get(theirs) for ours, theirs in (("min", "min_us"), ("mean", "avg_us"), ("max", "max_us"))}
        known = {name: None if value is None else float(value) for name, value in told.items()}
        return Side(
            direction=direction,
            bytes=moved,
            blocks=math.ceil(moved / work.block_bytes),
            latency_us=Latency(**known, **_percentiles(histogram, known["max"])),
        )


def _percentiles(histogram: Any, most: float | None) -> dict[str, float | None]:
    """Of a list of ranges with counts, ascending; none where the tool left them out or the range was exceeded."""
    if not isinstance(histogram, list):
        return {}
    buckets = []
    for entry in histogram:
        match = _RANGE.fullmatch(entry["range"])
        if match is None:
            return {}
        buckets.append((float(match[2]), int(entry["count"])))
    total = sum(count for _, count in buckets)
    found: dict[str, float | None] = {}
    for name, percent in _PERCENTS.items():
        seen = 0
        for upper, count in buckets:
            seen += count
            if seen >= math.ceil(total * percent / 100):
                found[name] = upper if most is None else min(upper, most)
                break
    return found

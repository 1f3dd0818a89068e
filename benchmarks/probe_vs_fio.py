"""gdsctl probe against fio: the same file system, block size, threads, queue depth, O_DIRECT; ratios only.

    python benchmarks/probe_vs_fio.py DIR [--pairs 5] [--seconds 3] [--size 1G] [--blocks 64k,1M] [--rw read]

Runs come in pairs, each beginning with the other tool in turn, so that a drift of the machine meets both. Printed is the
median over the pairs of probe/fio, for throughput and for CPU seconds per GB (user and system, with all threads,
children and the kernel's io_uring workers), with the least and the greatest in brackets. Above 1 the probe is faster, or
costs more CPU. fio's CPU is that of its process as wait4 tells it, less what the same command costs for one block: its
own usr_cpu and sys_cpu leave out io_uring's workers. fio: psync for a depth of 1, else io_uring; `--thread`.

The probe's buffers lie on huge pages, which fio's do not by default, and a virtual disk may give several times as much for
that. So fio gets them, too (glibc's malloc on transparent huge pages, aligned); `--fio-memory default` leaves it as it is.
Writes of both go to a file of the run's own, reserved but never written: a file that has been written takes fewer bytes a
second on some disks.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from typing import Any, NamedTuple

BLOCKS = ("4k", "64k", "1M", "16M")
LOADS = ((1, 1), (4, 1), (16, 1), (1, 4), (1, 16))


class Case(NamedTuple):
    rw: str
    block: str
    threads: int
    depth: int


class Figures(NamedTuple):
    gbs: float
    cpu_per_gb: float


def probe(folder: str, case: Case, size: str, seconds: float) -> Figures:
    command = [
        *(sys.executable, "-m", "gdsctl", "probe", folder, "--engine", "posix", "--format", "json"),
        *("--rw", case.rw, "--bs", case.block, "--threads", str(case.threads), "--iodepth", str(case.depth)),
        *("--size", size, "--duration", str(seconds)),
    ]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return Figures(found["throughput_gbs"], found["cpu_seconds_per_gb"])


HUGE = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""glibc 2.35: malloc asks for transparent huge pages."""


def fio(folder: str, case: Case, size: str, seconds: float) -> Figures:
    """Its own regions for each thread, as the probe has them: offset_increment."""
    part = bytes_of(size) // case.threads // bytes_of(case.block) * bytes_of(case.block)
    file = os.path.join(folder, "fio.data")
    if case.rw == "write":
        with contextlib.suppress(FileNotFoundError):
            os.unlink(file)
    elif not os.path.exists(file):
        lay_out(file, size)
    command = [
        *("fio", "--name=pair", f"--filename={file}", "--direct=1", "--thread", "--group_reporting"),
        f"--ioengine={'psync' if case.depth == 1 else 'io_uring'}",
        *(f"--rw={case.rw}", f"--bs={case.block}", f"--numjobs={case.threads}", f"--iodepth={case.depth}"),
        *(f"--size={part}", f"--offset_increment={part}", "--output-format=json", "--iomem_align=2M"),
    ]
    _, idle = measured([*command, f"--io_size={case.block}"])
    if case.rw == "write":
        os.unlink(file)
    document, cpu = measured([*command, "--time_based", f"--runtime={round(1000 * seconds)}ms"])
    side = document["jobs"][0][case.rw]
    return Figures(side["bw_bytes"] / 1e9, (cpu - idle) / (side["io_bytes"] / 1e9))


def measured(command: list[str]) -> tuple[Any, float]:
    """(the document, CPU seconds of the process)."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return json.loads(said), usage.ru_utime + usage.ru_stime


def lay_out(file: str, size: str) -> None:
    command = ["fio", "--name=lay", f"--filename={file}", "--rw=write", "--bs=1M", f"--size={size}", "--direct=1"]
    subprocess.run([*command, "--end_fsync=1", "--output=/dev/null"], check=True)


def bytes_of(text: str) -> int:
    return int(text[:-1]) * {"k": 1 << 10, "M": 1 << 20, "G": 1 << 30}[text[-1]]


def pair(folder: str, case: Case, size: str, seconds: float, *, probe_first: bool) -> tuple[Figures, Figures]:
    """(the probe's, fio's)."""
    if probe_first:
        return probe(folder, case, size, seconds), fio(folder, case, size, seconds)
    other = fio(folder, case, size, seconds)
    return probe(folder, case, size, seconds), other


def told(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):5.2f} [{min(ratios):.2f}-{max(ratios):.2f}]"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder")
    options.add_argument("--pairs", type=int, default=5)
    options.add_argument("--seconds", type=float, default=3.0)
    options.add_argument("--size", default="1G")
    options.add_argument("--blocks", default=",".join(BLOCKS))
    options.add_argument("--rw", default="read,write")
    options.add_argument("--fio-memory", choices=("huge", "default"), default="huge")
    chosen = options.parse_args()
    if shutil.which("fio") is None:
        print("fio is not installed", file=sys.stderr)
        return 3
    if chosen.fio_memory == "huge":
        os.environ.update(HUGE)
    folder = tempfile.mkdtemp(prefix="probe-vs-fio-", dir=chosen.folder)
    blocks, sides = chosen.blocks.split(","), chosen.rw.split(",")
    cases = [Case(rw, block, threads, depth) for rw in sides for block in blocks for threads, depth in LOADS]
    print(f"{'':32}{'throughput':24}CPU per GB")
    try:
        for case in cases:
            pairs = [
                pair(folder, case, chosen.size, chosen.seconds, probe_first=bool(number % 2))
                for number in range(chosen.pairs)
            ]
            speed = told([ours.gbs / theirs.gbs for ours, theirs in pairs])
            cost = told([ours.cpu_per_gb / theirs.cpu_per_gb for ours, theirs in pairs])
            name = f"{case.rw} {case.block} threads {case.threads} depth {case.depth}"
            print(f"{name:32}{speed:24}{cost}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

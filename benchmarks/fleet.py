"""Times `gdsctl diff` over many snapshots beside what it takes only to read the same archives, and prints ratios.

    python benchmarks/fleet.py [--nodes 200] [--output benchmarks/fleet.md]

The snapshots are the shipped examples, each under another host name, with other serials and other addresses, and one
in fifty with a broken mount option; so no two files are equal. CPU time counts, not the clock: it does not depend on
how many processes run, nor on what else the machine does. The aim is 1,000 snapshots a minute, memory flat.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

from run import GDSCTL, PYTHON, machine

EXAMPLES = Path(__file__).resolve().parent.parent / "gdsctl" / "examples"
LARGEST = "hgx-h100-vast"
_READ = """
import sys, tarfile
for path in sys.argv[1:]:
    with tarfile.open(path) as archive:
        for member in archive:
            if member.isreg():
                archive.extractfile(member).read()
"""
_UUID = re.compile(rb"GPU-[0-9a-f]{8}")


class Used(NamedTuple):
    """`seconds` of CPU in all processes, `clock` seconds, and the most MiB that one of them held."""

    seconds: float
    clock: float
    mib: float


def variant(example: Path, number: int, place: Path) -> None:
    """The example as node `gpuNNNN`."""
    host = b"gpu%04d" % number
    with tarfile.open(example) as archive, tarfile.open(place, "w:gz", compresslevel=6) as out:
        for member in archive:
            if not member.isreg():
                out.addfile(member)
                continue
            content = archive.extractfile(member).read()
            if member.name == "manifest.json":
                content = re.sub(rb'"host": "[^"]*"', b'"host": "' + host + b'"', content)
            elif member.name.endswith(("hostname", "nvml.json", "/information")) or "commands/" in member.name:
                content = _UUID.sub(b"GPU-%08x" % number, content)
            elif number % 50 == 49 and member.name.endswith("mountinfo"):
                content = content.replace(b"proto=rdma", b"proto=tcp").replace(b",data=ordered", b"")
            member.size = len(content)
            out.addfile(member, io.BytesIO(content))


def used(argv: list[str], codes: tuple[int, ...] = (0,)) -> Used:
    """A command in an interpreter of its own, which tells what its children used: ours are not to blur it."""
    code = (
        "import json, os, resource, subprocess, sys, time\n"
        "started = time.perf_counter()\n"
        "ended = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(ended, used.ru_utime + used.ru_stime, time.perf_counter() - started, used.ru_maxrss / 1024)"
    )
    told = subprocess.run([PYTHON, "-c", code, *argv], capture_output=True, text=True, check=True).stdout
    ended, seconds, clock, mib = told.split()[-4:]
    if int(ended) not in codes:
        raise SystemExit(f"{' '.join(argv[:3])} ... ended with {ended}")
    return Used(float(seconds), float(clock), float(mib))


def measure(folder: Path, nodes: int) -> list[str]:
    examples = sorted(EXAMPLES.glob("*.tar.gz"))
    rows = []
    for title, chosen in (("all examples in turn", examples), (LARGEST, [EXAMPLES / f"{LARGEST}.tar.gz"])):
        paths = [str(folder / f"{title.split()[0]}-{number}.tar.gz") for number in range(nodes)]
        for number, path in enumerate(paths):
            variant(chosen[number % len(chosen)], number, Path(path))
        half = used([GDSCTL, "diff", *paths[: nodes // 2]], (0, 1, 3))
        whole = used([GDSCTL, "diff", *paths], (0, 1, 3))
        peer = used([PYTHON, "-c", _READ, *paths])
        each = (whole.seconds - half.seconds) / (nodes - nodes // 2)
        rows.append(
            f"| {title} | {nodes} | {whole.seconds:.1f} | {whole.clock:.1f} | {1000 * each:.0f} | "
            f"{1000 * each / len(os.sched_getaffinity(0)):.0f} | {whole.seconds / peer.seconds:.2f} | "
            f"{half.mib:.0f} | {whole.mib:.0f} |"
        )
        for path in paths:
            os.unlink(path)
    return [
        (
            "| snapshots | nodes | CPU s | clock s | ms each | s for 1,000 here, nothing else running | "
            "CPU / tarfile reading the same | MiB of the largest process at half | at all |"
        ),
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
        *rows,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("fleet.md"))
    parser.add_argument("--nodes", type=int, default=200)
    arguments = parser.parse_args()
    head = ["# A fleet", "", "Written by `python benchmarks/fleet.py`.", "", machine(), ""]
    with tempfile.TemporaryDirectory() as folder:
        text = "\n".join([*head, *measure(Path(folder), arguments.nodes)]) + "\n"
    sys.stdout.write(text)
    arguments.output.write_text(text)


if __name__ == "__main__":
    main()

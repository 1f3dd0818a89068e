"""Times gdsctl beside lstopo, lspci and the bare interpreter, in one run on one machine, and prints ratios.

    python benchmarks/run.py [--output benchmarks/results.md] [--largest 10000] [--repeat 7]

Start-up and 300 functions: the best of `--repeat` runs each, taken in turn so that a busy moment hits all alike.
Growth: one run a size. Nothing is asserted: a table is for people to read, and machines differ.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import trees

PYTHON = sys.executable
GDSCTL = str(Path(sys.executable).with_name("gdsctl"))


@dataclass
class Run:
    """A command, and the best it did: `seconds` of wall time, `peak_mib` of memory."""

    title: str
    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)
    seconds: float = float("inf")
    peak_mib: float = 0.0

    def once(self) -> None:
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | self.env
        started = time.perf_counter()
        process = subprocess.Popen(self.argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
        _, status, used = os.wait4(process.pid, 0)
        taken = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{' '.join(self.argv)} ended with {process.returncode}")
        self.seconds = min(self.seconds, taken)
        self.peak_mib = max(self.peak_mib, used.ru_maxrss / 1024)


def compare(runs: list[Run], repeat: int) -> None:
    for _ in range(repeat + 1):  # the first round warms the caches and counts only if it was the best
        for run in runs:
            run.once()


def inspect(tree: Path, title: str) -> Run:
    return Run(title, [GDSCTL, "inspect", "--format", "json", "--snapshot", str(tree)])


def lspci_dump(tree: Path, place: Path) -> Path:
    """The tree's functions as `lspci -xxxx` prints them, which lspci reads back with -F."""
    lines = []
    for function in sorted((tree / "sys/bus/pci/devices").iterdir()):
        config = (function / "config").read_bytes()
        lines.append(f"{function.name} Device")
        lines += (f"{offset:02x}: {config[offset : offset + 16].hex(' ')}" for offset in range(0, len(config), 16))
        lines.append("")
    place.write_text("\n".join(lines))
    return place


def measure(work: Path, *, largest: int, repeat: int) -> list[str]:
    small = trees.node(work / "300", functions=300)
    nothing = Run("python -c pass", [PYTHON, "-c", "pass"])
    libraries = Run("python -c 'import typer, rich'", [PYTHON, "-c", "import typer, rich"])
    version = Run("gdsctl --version", [GDSCTL, "--version"])
    usage = Run("gdsctl --help", [GDSCTL, "--help"])
    ours = inspect(small, "gdsctl inspect, 300 functions")
    runs = [nothing, libraries, version, usage, ours]
    lstopo = lspci = None
    if found := shutil.which("lstopo"):
        lstopo = Run("lstopo --of xml, 300 functions", [found, "--of", "xml"], {"HWLOC_FSROOT": str(small)})
        runs.append(lstopo)
    if found := shutil.which("lspci"):
        lspci = Run("lspci -vvv, 300 functions", [found, "-vvv", "-F", str(lspci_dump(small, work / "dump.txt"))])
        runs.append(lspci)
    compare(runs, repeat)

    lines = ["| run | ms |", "|---|---:|"]
    lines += [f"| {run.title} | {run.seconds * 1000:.0f} |" for run in runs]
    lines += ["", "| ratio | value | aim |", "|---|---:|---:|"]
    lines += [
        _ratio("gdsctl --version / python -c 'import typer, rich'", version.seconds / libraries.seconds, "1.5"),
        _ratio("gdsctl --help / python -c 'import typer, rich'", usage.seconds / libraries.seconds, ""),
    ]
    if lstopo:
        aim = 2 * lstopo.seconds + nothing.seconds
        lines.append(_ratio("inspect / (2 x lstopo + python -c pass)", ours.seconds / aim, "1"))
        aim = 2 * lstopo.seconds + libraries.seconds
        lines.append(_ratio("inspect / (2 x lstopo + python -c 'import typer, rich')", ours.seconds / aim, ""))
    if lspci:
        lines.append(_ratio("inspect / lspci -vvv", ours.seconds / lspci.seconds, ""))
    return [*lines, "", *growth(work, largest)]


def growth(work: Path, largest: int) -> list[str]:
    lines = ["| node | seconds | ms a function | MiB | JSON MiB |", "|---|---:|---:|---:|---:|"]
    sizes = [size for size in (300, 1000, 3000, 10000) if size <= largest]
    nodes = [(f"{size} functions, 8 GPUs", {"functions": size}) for size in sizes]
    nodes.append(("64 GPUs x 256 drives", {"functions": 800, "gpus": 64, "drives": 256}))
    for title, shape in nodes:
        tree = trees.node(work / title, **shape)
        functions = len(list((tree / "sys/bus/pci/devices").iterdir()))
        run = inspect(tree, title)
        run.once()
        with open(work / "out.json", "wb") as output:
            subprocess.run(run.argv, stdout=output, check=True)
            written = output.tell()
        each = run.seconds / functions * 1000
        size = written / (1 << 20)
        # A child starts with its parent's peak: no smaller one can be seen.
        floor = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        peak = f"{run.peak_mib:.0f}" if run.peak_mib > floor + 1 else f"at most {floor:.0f}"
        lines.append(f"| {title} | {run.seconds:.2f} | {each:.2f} | {peak} | {size:.1f} |")
        shutil.rmtree(tree)
    return lines


def _ratio(title: str, value: float, aim: str) -> str:
    return f"| {title} | {value:.2f} | {aim} |"


def machine() -> str:
    model = ""
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        model = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), "")
    busy = os.getloadavg()[0]
    return (
        f"Python {platform.python_version()}, Linux {platform.release().split('-')[0]}, "
        f"{os.cpu_count()} CPUs ({model or platform.machine()}), load {busy:.1f} at the start"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("results.md"))
    parser.add_argument("--largest", type=int, default=10000, help="most PCI functions of the growth table")
    parser.add_argument("--repeat", type=int, default=7)
    arguments = parser.parse_args()
    head = ["# Benchmarks", "", "Written by `python benchmarks/run.py`.", "", machine(), ""]
    with tempfile.TemporaryDirectory() as work:
        lines = [*head, *measure(Path(work), largest=arguments.largest, repeat=arguments.repeat)]
    text = "\n".join(lines) + "\n"
    sys.stdout.write(text)
    arguments.output.write_text(text)


if __name__ == "__main__":
    main()

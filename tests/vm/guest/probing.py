"""Run in the guest by the checkout's own interpreter: `gdsctl probe` on real file systems, watched by the kernel.

    python -m tests.vm.guest.probing PART, which is one of

    paths KIND...        what the probe says of each file system, and what the kernel counted meanwhile
    faults [NAME...]     the storage fails under a running probe (faults.py)
    ratios KIND PAIRS    against fio
    kills KIND COUNT     signals at random moments, and as soon as a file of the probe has a name

Writes /ctl/out/PART.jsonl, a line each, as soon as it is known. File systems: filesystems.sh.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec

from gdsctl import pipeline
from gdsctl.cli import main as gdsctl
from gdsctl.cli import probe as _early  # noqa: F401 -- imported once, before the forks
from gdsctl.probe import probe as _once  # noqa: F401
from gdsctl.probe.verdict import Observed, PathTaken, judge
from gdsctl.source.live import LiveSource

HERE = Path(__file__).resolve().parent
OUT = Path("/ctl/out")
PAGES = Path("/sys/kernel/tracing/events/filemap/mm_filemap_add_to_page_cache")
PAGE = resource.getpagesize()


def bash(script: str, *, check: bool = True) -> str:
    done = subprocess.run(
        ["bash", "-euc", f". {HERE}/filesystems.sh\n{script}"], capture_output=True, text=True, check=False
    )
    if check and done.returncode:
        raise RuntimeError(f"{script}: {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


def keep(part: str, row: dict[str, Any]) -> None:
    with (OUT / f"{part}.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")


class Run:
    """One `gdsctl probe` in a forked child, so that its imports are paid for once; its exit is its own.

    Where a verdict is reached, what it was judged by is left in `observed`.
    """

    def __init__(self, *arguments: str, user: int = 0, node: Any = None) -> None:
        """`node`: what inspect said a moment ago, so that it is not asked again."""
        self.arguments = arguments
        self.folder = Path(tempfile.mkdtemp())
        self.started = time.monotonic()
        self.code: int | None = None
        self.process = os.fork()
        if not self.process:
            os.setpgid(0, 0)
            if user:
                self.folder.chmod(0o777)
                os.setgroups([])
                os.setresgid(user, user, user)
                os.setresuid(user, user, user)
            for number, name in ((1, "out"), (2, "err")):
                descriptor = os.open(self.folder / name, os.O_WRONLY | os.O_CREAT, 0o666)
                os.dup2(descriptor, number)
                os.close(descriptor)
            _judged_into(self.folder / "observed")
            if node is not None:
                mock.patch("gdsctl.pipeline.inspect", return_value=node).start()
            code = 99
            (self.folder / "begun").touch()
            try:
                gdsctl(["probe", "--engine", "posix", "--format", "json", *arguments])
            except SystemExit as end:
                code = int(end.code or 0)
            finally:
                sys.stdout.flush()
                os._exit(code)
        while not (self.folder / "begun").exists():
            time.sleep(0.001)

    def ended(self, within_s: float) -> bool:
        """Exit codes as a shell gives them: 128 + the signal's number for a killed one."""
        until = time.monotonic() + within_s
        while self.code is None and time.monotonic() < until:
            process, status = os.waitpid(self.process, os.WNOHANG)
            if process:
                code = os.waitstatus_to_exitcode(status)
                self.code = 128 - code if code < 0 else code
                self.seconds = time.monotonic() - self.started
            else:
                time.sleep(0.02)
        return self.code is not None

    def _text(self, name: str) -> str:
        with contextlib.suppress(FileNotFoundError):
            return (self.folder / name).read_text()
        return ""

    @property
    def said(self) -> str:
        return self._text("err").strip()

    @property
    def document(self) -> dict[str, Any] | None:
        return json.loads(text) if (text := self._text("out")) else None

    @property
    def observed(self) -> Any:
        return json.loads(text) if (text := self._text("observed")) else None


def _judged_into(path: Path) -> None:
    def judged(seen: Observed) -> PathTaken:
        path.write_bytes(msgspec.json.encode(seen))
        return judge(seen)

    mock.patch("gdsctl.probe.probe.judge", judged).start()


def pages_added() -> int:
    """Bytes on the devices in _TRACED that entered the page cache since the last call, as the kernel traces it."""
    text = (PAGES / "hist").read_text()
    found = sum(
        int(hits) * PAGE << int(order or 0)
        for device, order, hits in re.findall(r"s_dev: +(\d+)(?:, order: +(\d+))? *\} hitcount: +(\d+)", text)
        if int(device) in _TRACED
    )
    field = _fields()
    (PAGES / "trigger").write_text(f"!hist:keys={field}")
    (PAGES / "trigger").write_text(f"hist:keys={field}")
    return found


_TRACED: set[int] = set()


def _fields() -> str:
    return "s_dev,order" if "order" in (PAGES / "format").read_text() else "s_dev"


def trace() -> None:
    (PAGES / "trigger").write_text(f"hist:keys={_fields()}")
    pages_added()


def vmstat() -> dict[str, int]:
    return {k: int(v) for k, v in (line.split() for line in Path("/proc/vmstat").read_text().splitlines())}


def left(folder: str) -> list[str]:
    """Files of the probe or of NFS's silly rename, here."""
    try:
        names = os.listdir(folder)
    except OSError as error:
        return [f"? {error.strerror}"]
    return [name for name in names if name.startswith((".gdsctl", ".nfs"))]


def processes() -> list[int]:
    """Ours that still live, zombies left aside."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                command = (entry / "cmdline").read_bytes()
                if b"guest.probing" in command or (
                    b"guest/probing" in command and stat[0] != "Z" and int(entry.name) != os.getppid()
                ):
                    found.append(int(entry.name))
    return found


SIZE = "48M"
LOADS = {
    "write": ("--rw", "write", "--bs", "1M", "--verify"),
    "write queue": ("--rw", "write", "--bs", "256k", "--iodepth", "8", "--verify"),
    "randread": ("--rw", "randread", "--bs", "64k", "--threads", "4", "--verify"),
}


def paths(kinds: tuple[str, ...]) -> None:
    trace()
    for kind in kinds:
        row: dict[str, Any] = {"kind": kind, "kernel": os.uname().release}
        try:
            bash(f"make {kind}")
        except RuntimeError as error:
            keep("paths", {**row, "failed": str(error)})
            bash(f"drop {kind}", check=False)
            continue
        folder = f"/mnt/{kind}"
        _TRACED.clear()
        _TRACED.update(_kernel_device(path) for path in (folder, "/mnt/below") if os.path.ismount(path))
        stored = Path(folder, "there")
        bash(
            f"dd if=/dev/urandom of={stored} bs=1M count=48 oflag=direct || dd if=/dev/urandom of={stored} bs=1M count=48"
        )
        loads = {name: (folder, *arguments) for name, arguments in LOADS.items()}
        loads["existing"] = (str(stored), "--allow-existing", "--rw", "read", "--bs", "256k", "--iodepth", "8")
        began = time.monotonic()
        node = pipeline.inspect(LiveSource())
        row["inspect_s"] = round(time.monotonic() - began, 2)
        for name, arguments in loads.items():
            pages_added()
            before = vmstat()
            run = Run(*arguments, "--size", SIZE, node=None if name == "existing" else node)
            ended = run.ended(120)
            after = vmstat()
            keep(
                "paths",
                {
                    **row,
                    "load": name,
                    "code": run.code if ended else "still running",
                    "said": run.said,
                    "document": run.document,
                    "observed": run.observed,
                    "pages_bytes": pages_added(),
                    "vmstat": {k: after[k] - before[k] for k in ("nr_dirtied", "nr_written", "pgpgin", "pgpgout")},
                    "left": left(folder),
                    "seconds": round(time.monotonic() - run.started, 2),
                },
            )
        bash(f"drop {kind}", check=False)


def _kernel_device(path: str) -> int:
    """The file system's own number (stat tells another of a btrfs), as the kernel holds it: 12 bits of major, 20 of minor."""
    number = bash(f"findmnt -no MAJ:MIN {path} | tail -1")
    major, minor = number.strip().split(":")
    return int(major) << 20 | int(minor)


SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def kills(kind: str, count: int) -> None:
    """Half of them at a moment drawn from a whole run's time, half as soon as the server, or the disk, shows a name."""
    bash(f"make {kind}")
    folder = f"/mnt/{kind}"
    names = "/srv" if kind.startswith("nfs") else folder
    chosen = random.Random(kind)  # noqa: S311 -- must repeat, need not be secret
    arguments = (folder, "--size", "8M", "--bs", "256k", "--threads", "2")
    node = pipeline.inspect(LiveSource())
    whole = Run(*arguments, "--rw", "read", node=node)
    if not whole.ended(120) or whole.code:
        raise RuntimeError(whole.said)
    for number in range(count):
        how, rw = SIGNALS[number % 3], ("read", "write")[number // 3 % 2]
        free = os.statvfs(names).f_bfree
        more = ("--iodepth", "4") if number % 4 == 0 else ()
        if number % 5 == 4:
            rw, more = "kv-cache", ()
        run = Run(*arguments, *(("--workload", rw) if rw == "kv-cache" else ("--rw", rw)), *more, node=node)
        named = number % 2 == 1 and (names != folder or rw == "kv-cache")  # else the file never has a name
        if named:
            until = time.monotonic() + 20
            while time.monotonic() < until and not left(names) and not run.ended(0):
                pass
            after = time.monotonic() - run.started
        else:
            after = chosen.uniform(0, whole.seconds)
            run.ended(after)
        seen = left(names)
        with contextlib.suppress(ProcessLookupError):
            os.kill(run.process, how)
        ended = run.ended(30)
        gone = None
        until = time.monotonic() + 15
        while time.monotonic() < until:
            remains, alive = left(names), processes()
            if not remains and not alive:
                gone = round(time.monotonic() - run.started - run.seconds, 2) if ended else None
                break
            time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.process, signal.SIGKILL)
        for name in left(names):
            bash(f"rm -rf {names}/{name}", check=False)
        keep(
            "kills",
            {
                "kind": kind,
                "signal": how.name,
                "rw": rw,
                "when": "named" if named else "random",
                "after_s": round(after, 3),
                "of_s": round(whole.seconds, 3),
                "seen": seen,
                "code": run.code if ended else "still running",
                "said": run.said,
                "gone_after_s": gone,
                "left": remains,
                "alive": alive,
                "blocks_lost": free - os.statvfs(names).f_bfree,
            },
        )
    bash(f"drop {kind}", check=False)


def ratios(kind: str, pairs: int) -> None:
    """As benchmarks/probe_vs_fio.py compares, with fewer imports: the probe by fio, throughput and CPU per GB."""
    from benchmarks import probe_vs_fio as against

    bash(f"make {kind}")
    folder, size, seconds = f"/mnt/{kind}", "192M", 2.0
    node = pipeline.inspect(LiveSource())

    def ours(folder: str, case: Any, size: str, seconds: float) -> Any:
        run = Run(
            *(folder, "--rw", case.rw, "--bs", case.block, "--threads", str(case.threads)),
            *("--iodepth", str(case.depth), "--size", size, "--duration", str(seconds)),
            node=node,
        )
        if not run.ended(120) or run.document is None:
            raise RuntimeError(run.said)
        return against.Figures(run.document["throughput_gbs"], run.document["cpu_seconds_per_gb"])

    against.probe = ours
    for rw in ("read", "write"):
        for block in ("64k", "1M"):
            for threads, depth in against.LOADS:
                case = against.Case(rw, block, threads, depth)
                found = [against.pair(folder, case, size, seconds, probe_first=bool(n % 2)) for n in range(pairs)]
                keep("ratios", {"kind": kind, **case._asdict(), "pairs": [[*a, *b] for a, b in found]})
    bash(f"drop {kind}", check=False)


if __name__ == "__main__":
    part, *rest = sys.argv[1:]
    if part == "paths":
        paths(tuple(rest))
    elif part == "kills":
        kills(rest[0], int(rest[1]))
    elif part == "ratios":
        ratios(rest[0], int(rest[1]))
    else:
        from tests.vm.guest.faults import faults

        faults(tuple(rest))

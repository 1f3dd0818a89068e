#!/usr/bin/env python3
"""Run in the guest by the checkout's own interpreter: what gdsctl says of the machine, and what other tools say.

    examine.py NAME [--inspect] [--nobody]

Writes /ctl/out/NAME/: root.tar.gz (gdsctl snapshot) and oracle/*; with --inspect also root.json, what the live machine
gave; with --nobody the same as a user without rights (nobody.tar.gz, nobody.json).
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from gdsctl.cli import run

NOBODY = 65534
COMMANDS = {
    "lspci.txt": "lspci -D -vvv -nn",
    "lstopo.xml": "lstopo-no-graphics --of xml --whole-io -",
    "findmnt.json": "findmnt -J -o TARGET,SOURCE,FSTYPE,OPTIONS,MAJ:MIN",
    "nvme-list-subsys.json": "nvme list-subsys -o json",
    "rdma-link.json": "rdma -j link",
    "ip-addr.json": "ip -j addr",
    "lsblk.json": "lsblk -J -o NAME,TYPE,MOUNTPOINT,PKNAME",
    "dmesg.txt": "dmesg --notime",
    "numactl.txt": "numactl --hardware",
}
FILES = (
    "/proc/self/mountstats",
    "/proc/driver/nvidia-fs/bridges",
    "/proc/driver/nvidia-fs/peer_distance",
    "/proc/cmdline",
)


def gdsctl(out: Path, who: str, *, live: bool, user: int = 0) -> None:
    """In a child, so that root's rights are given up there only; imports are paid for once."""
    child = os.fork()
    if child == 0:
        if user:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
        code = run(["snapshot", str(out / f"{who}.tar.gz")])
        if live and code == 0:
            code = run(["inspect", "--format", "json", "--output", str(out / f"{who}.json")])
        os._exit(code)
    _, status = os.waitpid(child, 0)
    if status:
        sys.exit(f"examine.py: gdsctl as {who} ended with {os.waitstatus_to_exitcode(status)}")


def main(name: str, *options: str) -> None:
    out = Path("/ctl/out", name)
    (out / "oracle").mkdir(parents=True)
    for file, command in COMMANDS.items():
        said = subprocess.run(command.split(), capture_output=True, check=False)
        if said.returncode == 0:
            (out / "oracle" / file).write_bytes(said.stdout)
    for path in filter(os.path.exists, FILES):
        (out / "oracle" / os.path.basename(path)).write_bytes(Path(path).read_bytes())
    live = "--inspect" in options
    gdsctl(out, "root", live=live)
    if "--nobody" in options:
        own = Path("/tmp/nobody")
        own.mkdir()
        os.chown(own, NOBODY, NOBODY)
        gdsctl(own, "nobody", live=live, user=NOBODY)
        for made in own.iterdir():
            shutil.copy(made, out)


main(*sys.argv[1:])

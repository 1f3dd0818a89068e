"""The machines that the suite boots: one boot each, with all that is asked of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.vm import gdsvm

ROOT = Path(__file__).resolve().parents[2]
GUEST = f"/host{Path(__file__).resolve().parent}/guest"

# Python and the checkout lie below folders that only root may enter on some hosts.
_OPEN = "for d in /root /home; do chmod o+x $d 2>/dev/null; done\n"
_PORTS = "$(lspci -Dn | awk '$2 ~ /^0604/ {print $1}')"
_NVIDIA = "insmod /ctl/extra/nvidia.ko\ninsmod /ctl/extra/nvidia-fs.ko\n"


class Machine(NamedTuple):
    """`script`: bash, run in the guest as root, with `examine` and `$GDSCTL` at hand."""

    topology: str
    script: str
    iommu: str = "off"
    kernel: str = "6.1"
    append: str = ""
    cpu: str = ""
    mem_mib: int = 2048
    timeout_s: int = 900


def _set_acs(word: str) -> str:
    return f"for d in {_PORTS}; do setpci -s $d ECAP_ACS+6.w={word} 2>/dev/null || true; done\n"


_P2PDMA = f"""
examine acs
python3 {GUEST}/p2pdma.py /ctl/out/acs/p2pdma.json
{_set_acs("0000")}
examine cleared
python3 {GUEST}/p2pdma.py /ctl/out/cleared/p2pdma.json
{_set_acs("0001")}
examine srcvalid
python3 {GUEST}/p2pdma.py /ctl/out/srcvalid/p2pdma.json
"""

MACHINES = {
    # IOMMU x ACS. The script of `plan --emit acs` runs in acs-on.
    "acs-on": Machine(
        "switches_acs",
        f"""{_NVIDIA}
bash {GUEST}/storage.sh
examine before --inspect --nobody
$GDSCTL plan --mode p2pdma --emit acs >/ctl/out/acs.sh || [ $? -eq 1 ]  # 1: this kernel has no P2PDMA
sh /ctl/out/acs.sh >/ctl/out/acs.log 2>&1
echo $? >/ctl/out/acs.rc
examine cleared
sh /ctl/out/acs.sh --undo >>/ctl/out/acs.log 2>&1
lspci -D -vvv -nn >/ctl/out/undone.txt
""",
        iommu="on",
    ),
    "acs-pt": Machine("switches_acs", f"{_NVIDIA}\nexamine before\n", iommu="pt"),
    "acs-off": Machine("switches_acs", f"{_NVIDIA}\nexamine before\n{_set_acs('001d')}\nexamine set\n", iommu="off"),
    # The first switch's first two ports by path, the second switch's by address; the rest keeps its redirection.
    "acs-cmdline": Machine(
        "switches_acs",
        "examine before\n",
        iommu="on",
        append="pci=disable_acs_redir=20:00.0/00.0/00.0;20:00.0/00.0/01.0;pci:1b36:000c;82:03.0",
    ),
    "config-acs": Machine(
        "p2pmem",
        "examine before\n",
        iommu="on",
        kernel="trixie-bpo",
        append="pci=disable_acs_redir=pci:0:0,config_acs=xx0xxxx@22:00.0;xxx01x1@20:00.0/00.0/01.0;1111@nonsense;xx00xx@22:02.0",
    ),
    "far": Machine("far", "examine before\n"),
    "cascade": Machine("cascade", "examine before\n"),
    "flat": Machine("flat", "examine before\n"),
    "multipath": Machine("multipath", "examine before\n"),
    "rdma": Machine("switches_acs", f"bash {GUEST}/rdma.sh\nexamine before\n", iommu="pt"),
    # The kernel's own verdict: needs CONFIG_PCI_P2PDMA. Family 25 is Zen, whose host bridges the kernel trusts.
    "p2pdma-off": Machine("p2pmem", _P2PDMA, iommu="off", kernel="trixie-bpo"),
    "p2pdma-pt": Machine("p2pmem", _P2PDMA, iommu="pt", kernel="trixie-bpo"),
    "p2pdma-on": Machine("p2pmem", _P2PDMA, iommu="on", kernel="trixie-bpo"),
    "p2pdma-zen": Machine("p2pmem", _P2PDMA, iommu="on", kernel="trixie-bpo", cpu="family=25"),
}

_SERVED = "nfs3-tcp nfs3-rdma nfs4-tcp nfs4-rdma nvmeof-tcp nvmeof-rdma"
_LOCAL = "xfs ext4 ext4-journal ext3 btrfs btrfs-nodatacow btrfs-compress f2fs tmpfs 9p"
_STACKED = "overlay raid0 raid1 dm-linear dm-crypt loop loop-direct"


def _probe(script: str, kernel: str = "6.1") -> Machine:
    return Machine("drives", script, kernel=kernel, mem_mib=3072, timeout_s=2400)


# `gdsctl probe` on real file systems, and while they fail. Twenty minutes each under emulation.
PROBES = {
    "probe-local": _probe(f"probing paths {_LOCAL}"),
    "probe-stacked": _probe(f"probing paths {_STACKED}"),
    "probe-served": _probe(f"probing paths {_SERVED}"),
    "probe-new": _probe(
        "probing paths xfs ext3 ext4-journal btrfs btrfs-compress tmpfs overlay raid0 nvmeof-loop nfs4-rdma",
        "trixie-bpo",
    ),
    "probe-faults": _probe("probing faults"),
    "probe-kills": _probe("probing kills xfs 50; probing kills nfs4-tcp 50; probing kills nfs3-rdma 20"),
    "probe-ratios": _probe("for k in xfs raid0 nfs4-rdma nvmeof-rdma; do probing ratios $k 1; done"),
}


def missing() -> str | None:
    """Why no machine can be booted here; None where it can."""
    if os.geteuid() != 0:
        return "needs root"
    if not (gdsvm.CACHE / "root.img").exists():
        return f"nothing prepared in {gdsvm.CACHE}: run tests/vm/setup.sh 6.1 trixie-bpo"
    absent = [
        k
        for k in sorted({m.kernel for m in MACHINES.values()})
        if not (gdsvm.CACHE / "kernels" / k / "version").exists()
    ]
    return f"kernel {', '.join(absent)} is not prepared: run tests/vm/setup.sh {' '.join(absent)}" if absent else None


def boot(name: str, out: Path) -> None:
    """Boot the machine, run its script, leave results in `out`. Raises AssertionError where the guest fails."""
    machine = (MACHINES | PROBES)[name]
    python = Path(sys.executable)
    home = Path(os.path.realpath(python)).parents[1]
    command = f"""set -e
{_OPEN}
GDSCTL="{python} -m gdsctl"
export PYTHONPATH={ROOT} PYTHONDONTWRITEBYTECODE=1
probing() {{ {python} -m tests.vm.guest.probing "$@"; }}
examine() {{ {python} {GUEST.removeprefix("/host")}/examine.py "$@"; }}
{machine.script}"""
    binds = [argument for path in dict.fromkeys((home, Path(sys.prefix), ROOT)) for argument in ("--bind", str(path))]
    options = {
        "--topology": machine.topology,
        "--iommu": machine.iommu,
        "--kernel": machine.kernel,
        "--append": machine.append,
        "--cpu": machine.cpu,
        "--out": str(out),
        "--mem": str(machine.mem_mib),
        "--timeout": os.environ.get("GDSVM_TIMEOUT", str(machine.timeout_s)),
    }
    arguments = [word for option in options.items() for word in option]
    for _ in range(2):  # under load an emulated guest now and then sleeps for ever before its first process
        done = subprocess.run(
            [sys.executable, "-m", "tests.vm.gdsvm", "-v", *arguments, *binds, "--", command],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != gdsvm.FAILED:
            break
    assert done.returncode == 0, f"{name} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}"
    (out / "boot.log").write_text(done.stdout + done.stderr)


if __name__ == "__main__":  # python -m tests.vm.machines OUT [NAME...]: boot and keep the results
    for _name in sys.argv[2:] or MACHINES:
        _out = Path(sys.argv[1], _name)
        _out.mkdir(parents=True, exist_ok=True)
        boot(_name, _out)
        print((_out / "boot.log").read_text().splitlines()[-1])

"""Boot a throw-away QEMU guest with a chosen PCIe topology and run one command in it.

    python -m tests.vm.gdsvm [options] -- CMD...        CMD is run by bash, as root, in the guest

The command's output and exit status become this program's own. Exit status 125:
the guest did not boot or did not finish in time (see the console log it names).
The host's files are at /host in the guest (read-only); --bind PATH also puts one
of them at its own path. What the guest writes to /ctl/out comes back in --out.
Run setup.sh first. Only the standard library is used.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TextIO

from tests.vm import topologies

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("GDSVM_CACHE", "/var/cache/gdsvm"))
FAILED = 125


def kvm_usable() -> bool:
    """True if /dev/kvm runs ordinary guests. Under kvm_pvm alone (nested, no VT-x or SVM) they hang."""
    return os.access("/dev/kvm", os.R_OK | os.W_OK) and any(
        Path("/sys/module", m).exists() for m in ("kvm_intel", "kvm_amd")
    )


def share(tag: str, path: Path | str, addr: str, ro: bool = False) -> list[str]:
    return [
        "-fsdev",
        f"local,id={tag},path={path},security_model=none,multidevs=remap{',readonly=on' if ro else ''}",
        "-device",
        f"virtio-9p-pci,fsdev={tag},mount_tag={tag},bus=pcie.0,addr={addr},disable-legacy=on,multifunction=on",
    ]


def qemu_args(opts: argparse.Namespace, ctl: Path, topo: topologies.Topology) -> list[str]:
    kernel = CACHE / "kernels" / opts.kernel
    kvm = opts.accel == "kvm" or (opts.accel == "auto" and kvm_usable())
    opts.accel = "kvm" if kvm else "tcg"
    half = opts.mem // 2
    cmdline = f"root=LABEL=gdsroot ro console=ttyS0 quiet panic=-1 {topo.cmdline} {opts.append}"
    machine = f"""
        -nodefaults -no-user-config -no-reboot -display none
        -M q35,sata=off,smbus=off,usb=off{",kernel-irqchip=split" if kvm else ""}
        -accel {"kvm" if kvm else "tcg,thread=multi"}
        -cpu {"host,-arch-capabilities" if kvm else "max,-la57"}{f",{opts.cpu}" if opts.cpu else ""}
        -smp 2,sockets=2,cores=1 -m {opts.mem}M
        -object memory-backend-memfd,id=m0,size={half}M,share=on
        -object memory-backend-memfd,id=m1,size={half}M,share=on
        -numa node,nodeid=0,cpus=0,memdev=m0 -numa node,nodeid=1,cpus=1,memdev=m1
        -serial file:{ctl}/console.log -monitor unix:{ctl}/monitor,server,nowait
    """
    root = f"""
        -drive file={CACHE}/root.img,format=raw,if=none,id=root,snapshot=on
        -device virtio-blk-pci,drive=root,bus=pcie.0,addr=1c.0,disable-legacy=on
    """
    return [
        *("qemu-system-x86_64", *machine.split()),
        *("-kernel", f"{kernel}/vmlinux", "-initrd", f"{kernel}/initrd.img", "-append", cmdline),
        *topo.args,  # before the fixed devices, so that an IOMMU comes first
        *root.split(),
        *share("ctl", ctl, "1d.0"),
        *share("host", "/", "1d.1", ro=True),
        *share("modules", f"{kernel}/modules", "1d.2", ro=True),
    ]


def copy_new(src: Path, sink: TextIO, pos: int) -> int:
    """Pass on what was added to src since pos; return the new position."""
    if not src.exists():
        return pos
    with src.open("rb") as f:
        f.seek(pos)
        data = f.read()
    sink.buffer.write(data)
    sink.flush()
    return pos + len(data)


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--topology", default="switches", choices=sorted(topologies.ALL))
    p.add_argument(
        "--iommu",
        default="off",
        choices=["none", "off", "pt", "on"],
        help="none: no IOMMU device; off, pt, on: Intel IOMMU and its kernel parameters",
    )
    p.add_argument("--kernel", default="6.1", help="a kernel that setup.sh prepared")
    p.add_argument("--accel", default="auto", choices=["auto", "kvm", "tcg"])
    p.add_argument("--mem", type=int, default=2048, metavar="MIB")
    p.add_argument("--cpu", default="", metavar="PROPERTIES", help="for QEMU's -cpu, e.g. family=25")
    p.add_argument("--append", default="", help="more kernel parameters")
    p.add_argument("--bind", action="append", default=[], metavar="PATH")
    p.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="for guest/init, e.g. GDSVM_UDEV=no"
    )
    p.add_argument("--out", type=Path, help="folder for what the guest leaves in /ctl/out")
    p.add_argument("--timeout", type=float, default=180)
    p.add_argument("--boot-timeout", type=float, default=120, help="until the command starts")
    p.add_argument("--print-qemu", action="store_true", help="print the QEMU command and stop")
    p.add_argument("-v", "--verbose", action="store_true", help="print times on stderr")
    p.add_argument("cmd", nargs="+")
    opts = p.parse_args()

    ctl = Path(tempfile.mkdtemp(prefix="gdsvm."))
    keep = False
    topo = topologies.Topology(ctl, opts.iommu)
    try:
        topologies.ALL[opts.topology](topo)
        args = qemu_args(opts, ctl, topo)
        if opts.print_qemu:
            print(" ".join(args))
            return 0
        shutil.copy(HERE / "guest/init", ctl / "init")
        shutil.copy(CACHE / "kernels" / opts.kernel / "config", ctl / "config")
        (ctl / "overlay").write_text("".join(topo.overlays))
        if (extra := CACHE / "kernels" / opts.kernel / "extra").is_dir():
            shutil.copytree(extra, ctl / "extra")
        (ctl / "out").mkdir()
        (ctl / "cmd").write_text(" ".join(opts.cmd) + "\n")
        (ctl / "binds").write_text("".join(f"{b}\n" for b in opts.bind))
        (ctl / "env").write_text("".join(f"{e}\n" for e in opts.env))

        start = time.monotonic()
        qemu = subprocess.Popen(args, stdin=subprocess.DEVNULL, pass_fds=topo.fds)
        pos = [0, 0]
        timed_out = False
        while True:
            ended = qemu.poll() is not None
            pos[0] = copy_new(ctl / "stdout", sys.stdout, pos[0])
            pos[1] = copy_new(ctl / "stderr", sys.stderr, pos[1])
            if ended:
                break
            if (ctl / "done").exists():  # all is written: spare the 4 s of an orderly shutdown
                qemu.kill()
            waited = time.monotonic() - start
            if waited > opts.timeout or (waited > opts.boot_timeout and not (ctl / "ready").exists()):
                timed_out = True
                qemu.kill()
                qemu.wait()
            time.sleep(0.03)
        if opts.verbose:
            up = [(ctl / n).read_text().strip() if (ctl / n).exists() else "-" for n in ("ready", "done")]
            peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
            print(
                f"gdsvm: {opts.accel} {opts.kernel} {opts.topology} iommu={opts.iommu}: total {time.monotonic() - start:.1f} s, "
                f"guest ready at {up[0]} s, done at {up[1]} s, QEMU peak {peak} MiB",
                file=sys.stderr,
            )
        if opts.out:
            shutil.copytree(ctl / "out", opts.out, dirs_exist_ok=True)
            shutil.copy(ctl / "console.log", opts.out / "console.log")
        if not (ctl / "rc").exists():
            keep = True
            print(
                f"gdsvm: {'no result in time' if timed_out else 'guest ended without a result'}; "
                f"console: {ctl}/console.log",
                file=sys.stderr,
            )
            return FAILED
        return int((ctl / "rc").read_text())
    finally:
        topo.close()
        if not keep:
            shutil.rmtree(ctl, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())

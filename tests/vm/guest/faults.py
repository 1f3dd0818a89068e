"""The storage fails under a running probe: the message, the exit code, and what stays. Used by probing.py."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

from gdsctl import pipeline
from gdsctl.source.live import LiveSource
from tests.vm.guest.probing import Run, bash, keep, left, processes

NOBODY = 65534
READ = ("--rw", "read", "--bs", "256k", "--size", "48M", "--duration", "25")
WRITE = ("--rw", "write", "--bs", "256k", "--size", "48M", "--duration", "25")
QUEUE = ("--iodepth", "8")
FOUR = ("--threads", "4")
ONCE = ("--rw", "write", "--bs", "64k", "--size", "400M")
CHECKED = ("--bs", "64k", "--size", "16M", "--verify")

_GONE = "echo 1 >/sys/bus/pci/devices/$(address {0})/remove"
_BACK = 'umount -l /mnt/xfs 2>/dev/null || true; echo 1 >/sys/bus/pci/rescan; for _ in $(seq 600); do [ -b "$(disk {0})" ] && break; sleep 0.1; done'


class Fault(NamedTuple):
    """`kind`: of filesystems.sh. In bash: `before` the probe starts, what `happens` while it moves blocks, and what
    `mends` it. `path`: below the mount. `options`: more of the NFS mount.
    """

    kind: str
    probe: tuple[str, ...]
    happens: str = ""
    before: str = ""
    mends: str = ""
    user: int = 0
    path: str = ""
    options: str = ""
    patience_s: float = 60.0


_DD = "dd if=/dev/urandom of=/mnt/xfs/there bs=1M count=48 oflag=direct 2>/dev/null"
_THERE = ("--allow-existing", *READ)

FAULTS = {
    # device-mapper
    "error, read": Fault("faulty-xfs", READ, "becomes error"),
    "error, write": Fault("faulty-xfs", WRITE, "becomes error"),
    "error, read, queue": Fault("faulty-xfs", READ + QUEUE, "becomes error"),
    "error, write, 4 threads": Fault("faulty-ext4", WRITE + FOUR, "becomes error"),
    "error before it starts": Fault("faulty-ext4", READ, before="becomes error"),
    "writes dropped": Fault("faulty-xfs", ("--rw", "write", *CHECKED), before="becomes flakey '0 1000 1 drop_writes'"),
    "reads corrupted": Fault("faulty-xfs", (*READ, "--verify"), "becomes flakey '0 1000 5 corrupt_bio_byte 700 r 7 0'"),
    "300 ms late": Fault("faulty-xfs", (*READ[:-1], "8"), "becomes delay 300"),
    "no answer, read": Fault(
        "faulty-xfs", READ, "dmsetup suspend --nolockfs --noflush faulty", mends="dmsetup resume faulty"
    ),
    "no answer, write, 2 threads": Fault(
        "faulty-xfs",
        (*WRITE, "--threads", "2"),
        "dmsetup suspend --nolockfs --noflush faulty",
        mends="dmsetup resume faulty",
    ),
    # space
    "full": Fault("xfs", WRITE, before="fill /mnt/xfs 40"),
    "full meanwhile, no fallocate": Fault(
        "ext3",
        ONCE,
        "dd if=/dev/zero of=/mnt/ext3/fill bs=4M 2>/dev/null || true",
        before="dd if=/dev/zero of=/mnt/ext3/filled bs=4M count=110 conv=fsync 2>/dev/null",
    ),
    "full meanwhile, NFS": Fault("nfs3-tcp", ONCE, "fill /srv 1"),
    "quota": Fault("xfs-quota", WRITE, before="quota /mnt/xfs-quota", user=NOBODY),
    "quota, NFS": Fault("nfs3-tcp", ONCE, before="quota /srv", user=NOBODY),
    # file system
    "read-only": Fault("ext4", WRITE, before="mount -o remount,ro /mnt/ext4"),
    "read-only meanwhile": Fault("ext4", WRITE, "mount -o remount,errors=remount-ro /mnt/ext4; fs_error /mnt/ext4"),
    "shut down, read": Fault("xfs", READ, "xfs_io -x -c shutdown /mnt/xfs"),
    "shut down, write": Fault("xfs", WRITE, "xfs_io -x -c shutdown /mnt/xfs"),
    "shut down, write, queue": Fault("ext4", WRITE + QUEUE, "xfs_io -x -c shutdown /mnt/ext4"),
    "unmounted lazily": Fault("xfs", (*WRITE[:-1], "6"), "umount -l /mnt/xfs"),
    "existing file truncated": Fault("xfs", _THERE, "truncate -s 1M /mnt/xfs/there", before=_DD, path="/there"),
    "existing file truncated, queue": Fault(
        "xfs", _THERE + QUEUE, "truncate -s 100000 /mnt/xfs/there", before=_DD, path="/there"
    ),
    "existing file deleted": Fault("xfs", (*_THERE[:-1], "6"), "rm /mnt/xfs/there", before=_DD, path="/there"),
    # drives
    "drive removed, read": Fault("xfs", READ, _GONE.format("PLAIN"), mends=_BACK.format("PLAIN")),
    "drive removed, write, 4 threads": Fault("xfs", WRITE + FOUR, _GONE.format("PLAIN"), mends=_BACK.format("PLAIN")),
    "member of RAID 0 removed, read, queue": Fault(
        "raid0", READ + QUEUE, _GONE.format("RAIDB"), mends=_BACK.format("RAIDB")
    ),
    "member of RAID 1 removed, write": Fault(
        "raid1", (*WRITE[:-1], "8"), _GONE.format("RAIDB"), mends=_BACK.format("RAIDB")
    ),
    # NVMe over Fabrics
    "namespace disabled": Fault(
        "nvmeof-rdma",
        READ,
        "echo 0 >$target/subsystems/$nqn/namespaces/1/enable",
        mends="echo 1 >$target/subsystems/$nqn/namespaces/1/enable",
    ),
    "disconnected": Fault("nvmeof-tcp", WRITE, "nvme disconnect -n $nqn >/dev/null"),
    "target gone": Fault(
        "nvmeof-tcp", READ, "rm $target/ports/1/subsystems/*", mends="nvme disconnect -n $nqn >/dev/null"
    ),
    # NFS
    "server stopped, soft": Fault(
        "nfs4-tcp", WRITE, "rpc.nfsd 0", options=",soft,timeo=10,retrans=1", mends="rpc.nfsd --rdma=20049 8"
    ),
    "server stopped, hard": Fault("nfs3-rdma", READ, "rpc.nfsd 0", mends="rpc.nfsd --rdma=20049 8; sleep 8"),
    "server stopped, hard, 2 threads": Fault(
        "nfs4-tcp", (*WRITE, "--threads", "2"), "rpc.nfsd 0", mends="rpc.nfsd --rdma=20049 8; sleep 8"
    ),
    "server restarted": Fault("nfs3-tcp", (*WRITE[:-1], "12"), "rpc.nfsd 0; sleep 1; rpc.nfsd --rdma=20049 8"),
    "unmounted by force": Fault(
        "nfs3-tcp",
        WRITE,
        "rpc.nfsd 0; sleep 2; umount -f /mnt/nfs3-tcp || true; umount -f /mnt/nfs3-tcp || true",
        mends="rpc.nfsd --rdma=20049 8",
    ),
    "deleted on the server": Fault("nfs3-tcp", READ, "rm -f /srv/.nfs*"),
    "deleted on the server, NFS 4": Fault("nfs4-rdma", WRITE, "rm -f /srv/.nfs* /srv/.gdsctl*"),
    "export withdrawn": Fault("nfs3-rdma", WRITE, "exportfs -ua; exportfs -f", mends="exportfs -ra"),
}


def faults(names: tuple[str, ...]) -> None:
    for name in names or tuple(FAULTS):
        fault = FAULTS[name]
        try:
            keep("faults", {"fault": name, "kind": fault.kind, "probe": fault.probe, **_meet(fault)})
        except Exception as error:  # noqa: BLE001 -- told, and the next one is tried
            keep("faults", {"fault": name, "kind": fault.kind, "failed": repr(error)})
        bash(f"drop {fault.kind}; dmsetup remove_all --force", check=False)


def _meet(fault: Fault) -> dict[str, object]:
    bash(f"export OPTIONS={fault.options}; make {fault.kind}")
    folder = f"/mnt/{fault.kind}"
    Path(folder).chmod(0o1777)
    node = pipeline.inspect(LiveSource())
    if fault.before:
        bash(fault.before)
    direction = "write" if "write" in fault.probe else "read"
    before = _moved(folder, direction)
    run = Run(folder + fault.path, *fault.probe, node=node, user=fault.user)
    happened = None
    if fault.happens:
        until = time.monotonic() + 60
        while _moved(folder, direction) - before < 4 << 20 and not run.ended(0.02) and time.monotonic() < until:
            pass
        if run.ended(0):
            raise RuntimeError(f"ended before anything happened: {run.code} {run.said}")
        bash(fault.happens)
        happened = time.monotonic()
    by_itself = run.ended(fault.patience_s)
    after = round(time.monotonic() - (happened or run.started), 1)
    state = _state(run.process) if not by_itself else None
    if fault.mends:
        bash(fault.mends, check=False)
    ended = run.ended(40)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(run.process, signal.SIGKILL)
    time.sleep(1)
    document = run.document
    return {
        "code": run.code if ended else "still running",
        "said": run.said,
        "after_s": after,
        "by_itself": by_itself,
        "state": state,
        "verdict": document and [document["path_taken"]["verdict"], document["path_taken"]["confidence"]],
        "verify": document and document["verify"],
        "latency_us": document and document["latency_us"],
        "left": left(folder),
        "left_on_server": left("/srv") if fault.kind.startswith("nfs") else [],
        "alive": processes(),
        "fault_files": [path.name for path in Path("/tmp").glob("gdsctl-fault-*")],
    }


def _moved(folder: str, direction: str) -> int:
    """Bytes by O_DIRECT on the NFS mount, or of all NVMe disks."""
    column = 2 if direction == "read" else 6
    if "nfs" in folder:
        found = 0
        here = False
        for line in Path("/proc/self/mountstats").read_text().splitlines():
            if line.startswith("device "):
                here = f" on {folder} " in line
            elif here and "bytes:" in line:
                found += int(line.split()[1:][2 if direction == "read" else 3])
        return found
    return sum(int(path.read_text().split()[column]) << 9 for path in Path("/sys/block").glob("nvme*/stat"))


def _state(process: int) -> str:
    with contextlib.suppress(OSError):
        tasks = Path(f"/proc/{process}/task").iterdir()
        return "".join((task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks)
    return "?"

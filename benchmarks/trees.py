"""Made-up nodes of any size as trees that gdsctl and hwloc read alike."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.builders import CR, RR, Machine, Part

_PORTS_PER_ROOT = 24
_LEAVES_PER_SWITCH = 4
_FUNCTIONS_PER_BUS = 248  # 31 slots of eight
_CPUS_PER_SOCKET = 8


def node(folder: Path, *, functions: int, gpus: int = 8, drives: int = 8) -> Path:
    """Two sockets; GPUs and drives in turn behind switches of four; NICs with virtual functions fill up the count.

    Each drive carries a mounted xfs. Every fourth switch redirects peer traffic.
    """
    machine = Machine()
    ports = _root_ports(machine)
    leaves = [kind for turn in range(max(gpus, drives)) for kind in _turn(machine, turn, gpus, drives)]
    for start in range(0, len(leaves), _LEAVES_PER_SWITCH):
        acs = RR | CR if start % (4 * _LEAVES_PER_SWITCH) == 0 else 0
        switch = machine.switch(next(ports), ports=_LEAVES_PER_SWITCH, acs=acs)
        for port, leaf in zip(switch.down, leaves[start:], strict=False):
            leaf(port)
    while (lacking := functions - len(machine.parts)) > 1:
        _nic(machine, next(ports), min(lacking - 2, _FUNCTIONS_PER_BUS - 1))
    machine.write(folder)
    _processors(folder)
    _files(folder, {"proc/cmdline": "quiet\n", "proc/sys/kernel/osrelease": "6.8.0-60-generic\n", "proc/modules": ""})
    _drives(machine, folder)
    return folder


def _root_ports(machine: Machine) -> Iterator[Part]:
    """Ports of two sockets in turn; a full pair of roots is followed by another."""
    domain = 0
    while True:
        pair = [machine.root(f"{domain + socket:04x}:00", numa=socket) for socket in (0, 1)]
        for _ in range(_PORTS_PER_ROOT):
            for root in pair:
                yield machine.root_port(root)
        domain += 2


def _turn(machine: Machine, turn: int, gpus: int, drives: int) -> list[Callable[[Part], Part]]:
    return [machine.gpu] * (turn < gpus) + [machine.nvme] * (turn < drives)


def _nic(machine: Machine, port: Part, virtual: int) -> None:
    last = physical = machine.nic(port)
    for _ in range(virtual):
        beside = {} if last.function == 7 else {"beside": last}
        ids = ("15b3", "101e")
        last = machine.add(port, "endpoint", "020700", ids, physfn=physical, driver="mlx5_core", **beside)


def _processors(folder: Path) -> None:
    """Enough of /sys/devices/system/cpu for hwloc to take the tree for a machine."""
    count = 2 * _CPUS_PER_SOCKET
    files = {"online": f"0-{count - 1}\n", "possible": f"0-{count - 1}\n", "present": f"0-{count - 1}\n"}
    for cpu in range(count):
        socket = cpu // _CPUS_PER_SOCKET
        package = ((1 << _CPUS_PER_SOCKET) - 1) << socket * _CPUS_PER_SOCKET
        files |= {
            f"cpu{cpu}/topology/physical_package_id": f"{socket}\n",
            f"cpu{cpu}/topology/core_id": f"{cpu % _CPUS_PER_SOCKET}\n",
            f"cpu{cpu}/topology/core_siblings": f"{package:08x}\n",
            f"cpu{cpu}/topology/package_cpus": f"{package:08x}\n",
            f"cpu{cpu}/topology/thread_siblings": f"{1 << cpu:08x}\n",
            f"cpu{cpu}/topology/core_cpus": f"{1 << cpu:08x}\n",
        }
    _files(folder / "sys/devices/system/cpu", files)
    for socket in (0, 1):
        package = ((1 << _CPUS_PER_SOCKET) - 1) << socket * _CPUS_PER_SOCKET
        _files(folder / f"sys/devices/system/node/node{socket}", {"cpumap": f"{package:08x}\n"})


def _drives(machine: Machine, folder: Path) -> None:
    """An NVMe controller, its namespace and a mount for each drive."""
    mounts = []
    for number, part in enumerate(machine.disks):
        function = (folder / "sys/bus/pci/devices" / part.address).resolve()
        home = function / f"nvme/nvme{number}"
        _files(home, {"transport": "pcie\n", "address": f"{part.address}\n", "model": "A drive\n", "numa_node": "0\n"})
        disk = home / f"nvme{number}n1"
        _files(disk, {"size": "1000000\n", "dev": f"259:{number}\n", "queue/logical_block_size": "512\n"})
        for link, target in (
            (f"sys/class/nvme/nvme{number}", home),
            (f"sys/class/block/{disk.name}", disk),
            (f"sys/block/{disk.name}", disk),
        ):
            place = folder / link
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(os.path.relpath(target, place.parent))
        mounts.append(f"{30 + number} 1 259:{number} / /mnt/{number} rw - xfs /dev/{disk.name} rw\n")
    _files(folder, {"proc/self/mountinfo": "".join(mounts)})


def _files(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

"""Is this a container, and what of the host does it see?"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from gdsctl.collect.reader import Reader
from gdsctl.model.software import Container
from gdsctl.parse.nvidia_fs_proc import parse_devcount
from gdsctl.parse.platform_text import parse_memlock
from gdsctl.source.base import Missing

UNLIMITED_BYTES = 2**63 - 1
"""What stands for no limit: as many bytes as a signed 64-bit number can count."""

# Files that a container's manager leaves in it: docker and podman (their source), Kubernetes service account volumes.
_MARKERS = (
    ("/var/run/secrets/kubernetes.io", "kubernetes"),
    ("/run/secrets/kubernetes.io", "kubernetes"),
    ("/run/.containerenv", "podman"),
    ("/.dockerenv", "docker"),
)
# Parts of cgroup paths and of an overlay root's lowerdir that name the manager.
_TRACES = (
    ("kubepods", "kubernetes"),
    ("libpod", "podman"),
    ("/var/lib/containers/", "podman"),
    ("/docker/", "docker"),
    ("/docker-", "docker"),
    ("/lxc", "lxc"),
    ("io.containerd", "unknown"),
)
_ROOT = re.compile(
    r"^\d+ \d+ \S+ (?P<root>\S+) / (?P<options>\S+) .*?- (?P<fstype>\S+) (?P<source>\S+) ?(?P<super>\S*)"
)
_GPU_NODE = re.compile(r"nvidia\d+")
_CAP_IPC_LOCK = 14  # linux/capability.h
_LONGEST_STATUS = 1 << 16
SETTLE_IO_URING = "python3 -c 'import ctypes; print(ctypes.CDLL(None, use_errno=True).syscall(425, 1, bytes(120)))'"
"""io_uring_setup(2): a number of 0 or more is a ring, -1 a refusal."""
_SETTLE = "systemd-detect-virt --container"


def collect(reader: Reader) -> Container:
    """What the process that reads sees of its container; kind None where neither yes nor no is certain."""
    kind, evidence = _kind(reader)
    host = reader.source.ask("host")
    seen = Container(
        kind=kind,
        has_udev_db=_stands(reader, "/run/udev/data", "has_udev_db"),
        has_cufile_json=_stands(reader, "/etc/cufile.json", "has_cufile_json"),
        memlock_bytes=_memlock(reader, host),
        evidence=evidence,
    )
    if kind in (None, "none"):  # what follows is a container's; a node's own devices tell of containers on it
        nodes = _rdma_nodes(reader)
        return msgspec.structs.replace(seen, rdma_nodes=None if isinstance(nodes, Missing) else nodes)
    nodes = _rdma_nodes(reader)
    if isinstance(nodes, Missing):
        reader.gap("container", "rdma_nodes", nodes, settle_with="ls /dev/infiniband")
    return msgspec.structs.replace(
        seen,
        has_gpu_nodes=_gpu_nodes(reader),
        has_sysfs=_stands(reader, "/sys/bus/pci/devices", "has_sysfs"),
        nvidia_fs_nodes=_nvidia_fs_nodes(reader),
        rdma_nodes=None if isinstance(nodes, Missing) else nodes,
        ipc_lock=_ipc_lock(reader),
        io_uring=_io_uring(reader),
        toolkit_gds=_toolkit(host),
    )


def _kind(reader: Reader) -> tuple[str | None, tuple[str, ...]]:
    found: list[tuple[str, str]] = []
    unseen: list[Missing] = []
    for path, kind in _MARKERS:
        stands = reader.source.exists(path)
        if stands is True:
            found.append((kind, f"{path} exists"))
        elif isinstance(stands, Missing):
            unseen.append(stands)
    for path in ("/proc/1/cgroup", "/proc/self/cgroup"):
        text = reader.text(path)
        if not isinstance(text, Missing):
            found += [(kind, f"{path} names {trace.strip('/')}") for trace, kind in _TRACES if trace in text]
    root = _root(reader)
    if root and root["fstype"] == "overlay":
        found += [
            (kind, f"the root file system's layers lie under {trace.strip('/')}")
            for trace, kind in _TRACES
            if trace in root["super"]
        ]
    if found:
        ranked = [
            kind for kind in ("kubernetes", "podman", "docker", "lxc", "unknown") if kind in {k for k, _ in found}
        ]
        return ranked[0], tuple(dict.fromkeys(words for _, words in found))
    if root and root["root"] == "/" and root["source"].startswith("/dev/"):
        return "none", (f"the root file system is {root['fstype']} on {root['source']}",)
    if root and root["fstype"] != "overlay" and not unseen:
        return "none", (f"no container manager's files, and the root file system is {root['fstype']}",)
    if root and root["fstype"] == "overlay":
        words = "the root file system is an overlay: a container, or a node without disks"
        reader.gap("container", "kind", "unsupported", detail=words, settle_with=_SETTLE)
        return None, (words,)
    reader.gap("container", "kind", unseen[0] if unseen else "absent", settle_with=_SETTLE)
    return None, ()


def _root(reader: Reader) -> dict[str, str] | None:
    """The mount at `/`, from proc(5) mountinfo; of several the last one counts."""
    text = reader.text("/proc/self/mountinfo")
    if isinstance(text, Missing):
        return None
    rows = [match for line in text.splitlines() if len(line) < 65536 and (match := _ROOT.match(line))]
    return rows[-1].groupdict() if rows else None


def _stands(reader: Reader, path: str, field: str) -> bool | None:
    stands = reader.source.exists(path)
    if isinstance(stands, Missing):
        reader.gap("container", field, stands, detail=path, settle_with=f"ls -d {path}")
        return None
    return stands


def _gpu_nodes(reader: Reader) -> bool | None:
    names = reader.source.names("/dev")
    if isinstance(names, Missing):
        reader.gap("container", "has_gpu_nodes", names, settle_with="ls /dev/nvidia[0-9]*")
        return None
    return any(_GPU_NODE.fullmatch(name) for name in names)


def _nvidia_fs_nodes(reader: Reader) -> int | None:
    """Devcount of nvidia-fs, which is the host's in every container; None where it is not loaded."""
    text = reader.value("/proc/driver/nvidia-fs/devcount")
    return parse_devcount(text) if text is not None else None


def _rdma_nodes(reader: Reader) -> tuple[str, ...] | Missing:
    names = reader.source.names("/dev/infiniband")
    if isinstance(names, Missing):
        return () if names.status == "absent" else names
    return tuple(sorted(names))


def _status(reader: Reader, name: str, field: str) -> str | None:
    """A row of /proc/self/status, proc_pid_status(5)."""
    text = reader.text("/proc/self/status")
    if isinstance(text, Missing):
        reader.gap("container", field, text, settle_with=f"grep {name}: /proc/self/status")
        return None
    rows = (line.partition(":") for line in text[:_LONGEST_STATUS].splitlines())
    value = next((value.strip() for key, sign, value in rows if sign and key == name), None)
    if value is None:
        reader.gap("container", field, "unsupported", detail=f"no row {name} in /proc/self/status")
    return value


def _ipc_lock(reader: Reader) -> bool | None:
    value = _status(reader, "CapEff", "ipc_lock")
    if value is None:
        return None
    if re.fullmatch(r"[0-9a-fA-F]{1,32}", value):
        return bool(int(value, 16) >> _CAP_IPC_LOCK & 1)
    reader.gap("container", "ipc_lock", "error", detail="CapEff is no mask", settle_with="capsh --print")
    return None


def _io_uring(reader: Reader) -> bool | None:
    """The sysctl forbids it to all where it is 2; without a seccomp filter (mode 0) nothing else does."""
    if reader.value("/proc/sys/kernel/io_uring_disabled") == "2":
        return False
    mode = _status(reader, "Seccomp", "io_uring")
    if mode == "0":
        return True
    if mode is not None:
        words = "a seccomp filter is on: whether it lets io_uring_setup through does not show"
        reader.gap("container", "io_uring", "unsupported", detail=words, settle_with=SETTLE_IO_URING)
    return None


def _toolkit(host: Any) -> bool | None:
    environment = host.get("toolkit_environment") if isinstance(host, dict) else None
    return environment.get("NVIDIA_GDS") == "enabled" if isinstance(environment, dict) else None


def _memlock(reader: Reader, host: Any) -> int | None:
    """The soft limit on locked memory; of the reading process's own kind, since limits(5) come with the login."""
    limits = host.get("memlock_bytes") if isinstance(host, dict) else None
    if isinstance(limits, dict) and "soft" in limits:
        soft = limits["soft"]
        if soft is None or soft == "unlimited" or (isinstance(soft, int) and soft < 0):
            return UNLIMITED_BYTES
        if isinstance(soft, int):
            return soft
    text = reader.text("/proc/self/limits")
    limit = None if isinstance(text, Missing) else parse_memlock(text)
    if limit:
        return UNLIMITED_BYTES if limit.soft_bytes is None else limit.soft_bytes
    why = text if isinstance(text, Missing) else Missing(status="error", detail="no row for locked memory")
    reader.gap("container", "memlock_bytes", why, settle_with="ulimit -l")
    return None

"""Containers told from hosts, and the cases in which neither is certain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gdsctl.collect import container
from gdsctl.collect.reader import Reader
from gdsctl.source.base import Missing

Machine = Callable[..., Reader]

HOST_ROOT = "25 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
OVERLAY = "501 400 0:52 / / rw,relatime master:1 - overlay overlay rw,lowerdir={layers},upperdir=/x/u,workdir=/x/w\n"


def gaps(reader: Reader) -> Any:
    return {(gap.section, gap.field): gap.reason for gap in reader.gaps}


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"/.dockerenv": "", "/proc/1/cgroup": "0::/\n"}, "docker"),
        ({"/run/.containerenv": "", "/proc/1/cgroup": "0::/\n"}, "podman"),
        ({"/run/secrets/kubernetes.io/serviceaccount/token": "", "/.dockerenv": ""}, "kubernetes"),
        ({"/proc/1/cgroup": "11:memory:/kubepods/besteffort/pod1234/abcd\n"}, "kubernetes"),
        ({"/proc/1/cgroup": "0::/system.slice/docker-0123.scope\n"}, "docker"),
        ({"/proc/1/cgroup": "0::/lxc.payload.web\n"}, "lxc"),
        ({"/proc/self/mountinfo": OVERLAY.format(layers="/var/lib/docker/overlay2/l/ABC")}, "docker"),
        (
            {"/proc/self/mountinfo": OVERLAY.format(layers="/var/lib/containerd/io.containerd.snapshotter.v1")},
            "unknown",
        ),
        ({"/proc/self/mountinfo": HOST_ROOT, "/proc/1/cgroup": "0::/init.scope\n"}, "none"),
    ],
)
def test_kind(machine: Machine, files: Any, kind: Any) -> None:
    reader = machine(files)
    found = container.collect(reader)
    assert found.kind == kind
    assert found.evidence
    assert ("container", "kind") not in gaps(reader)


def test_an_overlay_root_alone_is_not_certain(machine: Machine) -> None:
    reader = machine({"/proc/self/mountinfo": OVERLAY.format(layers="/rofs")})
    assert container.collect(reader).kind is None
    assert gaps(reader)["container", "kind"] == "unsupported"


def test_nothing_captured_is_unknown_not_none(machine: Machine) -> None:
    reader = machine({})
    found = container.collect(reader)
    assert (found.kind, found.has_udev_db, found.has_cufile_json, found.memlock_bytes) == (None,) * 4
    assert set(gaps(reader)) == {
        ("container", "kind"),
        ("container", "has_udev_db"),
        ("container", "has_cufile_json"),
        ("container", "memlock_bytes"),
    }


def test_denied_run_is_a_gap(machine: Machine, denied: OSError) -> None:
    reader = machine({"/run": denied, "/proc/self/mountinfo": HOST_ROOT})
    assert container.collect(reader).has_udev_db is None
    assert gaps(reader)["container", "has_udev_db"] == "denied"


def test_what_the_process_sees(machine: Machine) -> None:
    reader = machine({"/run/udev/data/b259:0": "E:ID_FS_TYPE=xfs\n", "/etc/hostname": "n1\n"})
    found = container.collect(reader)
    assert found.has_udev_db is True
    assert found.has_cufile_json is False


@pytest.mark.parametrize(
    ("host", "limits", "expected"),
    [
        ({"memlock_bytes": {"soft": 65536, "hard": 65536}}, None, 65536),
        ({"memlock_bytes": {"soft": -1, "hard": -1}}, None, container.UNLIMITED_BYTES),
        ({"memlock_bytes": {"soft": "unlimited", "hard": "unlimited"}}, None, container.UNLIMITED_BYTES),
        (Missing(status="not_captured"), "Max locked memory         8388608              8388608              bytes\n", 8388608),
        (Missing(status="not_captured"), "Max locked memory         unlimited            unlimited            bytes\n", 2**63 - 1),
    ],
)  # fmt: skip
def test_memlock(machine: Machine, host: Any, limits: Any, expected: Any) -> None:
    files = {"/proc/self/limits": limits} if limits else {"/proc/version": "Linux"}
    assert container.collect(machine(files, answers={"host": host})).memlock_bytes == expected


STATUS = "Name:\tcat\nCapEff:\t{caps}\nSeccomp:\t{mode}\n"
IN_DOCKER = {"/.dockerenv": "", "/proc/1/cgroup": "0::/\n"}


def test_what_a_container_has(machine: Machine) -> None:
    files = IN_DOCKER | {
        "/proc/self/status": STATUS.format(caps="00000000a80465fb", mode="0"),  # docker's default set, IPC_LOCK added
        "/proc/driver/nvidia-fs/devcount": "16\n",
        "/dev/nvidia0": "",
        "/dev/infiniband/uverbs0": "",
        "/dev/infiniband/rdma_cm": "",
        "/sys/bus/pci/devices/0000:00:00.0/class": "0x060000\n",
    }
    reader = machine(files, answers={"host": {"toolkit_environment": {"NVIDIA_GDS": "enabled"}}})
    found = container.collect(reader)
    assert (found.has_gpu_nodes, found.has_sysfs, found.nvidia_fs_nodes) == (True, True, 16)
    assert found.rdma_nodes == ("rdma_cm", "uverbs0")
    assert (found.ipc_lock, found.io_uring, found.toolkit_gds) == (True, True, True)


@pytest.mark.parametrize(
    ("files", "io_uring", "ipc_lock", "unknown"),
    [
        ({"/proc/self/status": STATUS.format(caps="00000000a80425fb", mode="2")}, None, False, {"io_uring"}),
        (
            {
                "/proc/self/status": STATUS.format(caps="00000000a80425fb", mode="2"),
                "/proc/sys/kernel/io_uring_disabled": "2\n",
            },
            False,
            False,
            set(),
        ),
        ({"/proc/self/status": STATUS.format(caps="zz", mode="0")}, True, None, {"ipc_lock"}),
        ({"/proc/self/status": "\0" * 300}, None, None, {"io_uring", "ipc_lock"}),
        ({}, None, None, {"io_uring", "ipc_lock"}),
    ],
)
def test_seccomp_and_capabilities(
    machine: Machine, files: Any, io_uring: Any, ipc_lock: Any, unknown: set[str]
) -> None:
    reader = machine(IN_DOCKER | files)
    found = container.collect(reader)
    assert (found.io_uring, found.ipc_lock) == (io_uring, ipc_lock)
    assert unknown == {field for _, field in gaps(reader)} & {"io_uring", "ipc_lock"}


def test_what_cannot_be_read_in_a_container_is_a_gap(machine: Machine, denied: OSError) -> None:
    reader = machine(IN_DOCKER | {"/dev": denied, "/sys": denied})
    found = container.collect(reader)
    assert (found.has_gpu_nodes, found.has_sysfs, found.rdma_nodes, found.toolkit_gds) == (None,) * 4
    assert {("container", "has_gpu_nodes"), ("container", "has_sysfs"), ("container", "rdma_nodes")} <= set(
        gaps(reader)
    )


def test_a_host_is_not_asked_what_containers_lack(machine: Machine) -> None:
    reader = machine({"/proc/self/mountinfo": HOST_ROOT, "/dev/infiniband/uverbs0": ""})
    found = container.collect(reader)
    assert (found.kind, found.has_gpu_nodes, found.io_uring, found.rdma_nodes) == ("none", None, None, ("uverbs0",))
    assert not {"has_gpu_nodes", "has_sysfs", "rdma_nodes", "io_uring", "ipc_lock"} & {f for _, f in gaps(reader)}

"""What docker, podman, OCI, CDI, compose and Kubernetes write, field by field; and what nobody would write."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from gdsctl.container.given import Bind, Given
from gdsctl.container.read import UNLIMITED_BYTES, read
from gdsctl.errors import InputError

INSPECTED: dict[str, Any] = {
    "Id": "4f1c0de",
    "Name": "/kv",
    "Mounts": [
        {"Type": "bind", "Source": "/mnt/nvme", "Destination": "/data", "Mode": "", "RW": True},
        {"Type": "volume", "Name": "c", "Source": "/var/lib/docker/volumes/c/_data", "Destination": "/cache"},
        {"Type": "tmpfs", "Source": "", "Destination": "/scratch"},
    ],
    "HostConfig": {
        "Runtime": "runc",
        "Privileged": False,
        "CapAdd": ["CAP_IPC_LOCK"],
        "SecurityOpt": ["seccomp=unconfined"],
        "Devices": [
            {"PathOnHost": "/dev/nvidia-fs0", "PathInContainer": "/dev/nvidia-fs0", "CgroupPermissions": "rwm"}
        ],
        "DeviceRequests": [{"Driver": "", "Count": -1, "DeviceIDs": None, "Capabilities": [["gpu"]], "Options": {}}],
        "Ulimits": [{"Name": "memlock", "Hard": -1, "Soft": -1}],
        "Tmpfs": {"/run": "rw"},
    },
    "Config": {"Image": "example/kv:1", "Env": ["PATH=/bin", "NVIDIA_GDS=enabled", "CUFILE_ENV_PATH_JSON=/etc/c.json"]},
}


def only(value: Any, path: str = "f.json") -> Given:
    (found,) = read(value if isinstance(value, str) else json.dumps(value, indent=1), path)
    return found


def changed(**host: Any) -> list[dict[str, Any]]:
    return [{**INSPECTED, "HostConfig": {**INSPECTED["HostConfig"], **host}}]


def test_docker_inspect() -> None:
    found = only([INSPECTED])
    assert (found.name, found.kind, found.image) == ("kv", "docker", "example/kv:1")
    assert found.binds == (
        Bind(target="/data", source="/mnt/nvme"),
        Bind(target="/cache", source="/var/lib/docker/volumes/c/_data"),
        Bind(target="/scratch", kind="tmpfs"),
        Bind(target="/run", kind="tmpfs"),
    )
    assert found.devices == ("/dev/nvidia-fs0",)
    assert found.env["CUFILE_ENV_PATH_JSON"] == "/etc/c.json"
    assert (found.gpus, found.ipc_lock, found.io_uring, found.memlock_bytes) == (True, True, True, UNLIMITED_BYTES)
    # --gpus goes by a hook; NVIDIA_GDS is read by NVIDIA's runtime alone, and this container's is runc.
    assert (found.toolkit, found.gds) == (False, False)
    assert only([{**INSPECTED, "HostConfig": {**INSPECTED["HostConfig"], "Runtime": "nvidia"}}]).gds is True


def test_tabs_and_pairs_of_surrogates_are_json_too() -> None:
    text = json.dumps([INSPECTED | {"Name": "/\U0001f680kv"}], indent="\t")
    assert "\\ud83d" in text
    assert only(text).name == "\U0001f680kv"


@pytest.mark.parametrize(
    ("host", "gpus"),
    [
        ({"DeviceRequests": None}, False),
        ({"DeviceRequests": None, "Runtime": "nvidia"}, None),
        ({"DeviceRequests": None, "Runtime": ""}, None),
        ({"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}]}, True),
    ],
)
def test_gpus_of_docker(host: dict[str, Any], gpus: bool | None) -> None:
    assert only(changed(**host)).gpus is gpus


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ([], None),
        (["seccomp=unconfined"], True),
        (["no-new-privileges", "seccomp:unconfined"], True),
        (['seccomp={"defaultAction":"SCMP_ACT_ERRNO","syscalls":[]}'], False),
        (
            [
                'seccomp={"syscalls":[{"names":["read","io_uring_setup"],"action":"SCMP_ACT_ALLOW"}]}',
            ],
            True,
        ),
        (["seccomp={broken"], None),
        (["seccomp=/etc/profile.json"], None),
    ],
)
def test_seccomp_of_docker(options: list[str], allowed: bool | None) -> None:
    assert only(changed(SecurityOpt=options)).io_uring is allowed


OCI: dict[str, Any] = {
    "ociVersion": "1.1.0",
    "hostname": "box",
    "process": {
        "env": ["NVIDIA_VISIBLE_DEVICES=all"],
        "capabilities": {"bounding": ["CAP_IPC_LOCK"], "effective": ["CAP_CHOWN"]},
        "rlimits": [{"type": "RLIMIT_MEMLOCK", "hard": 18446744073709551615, "soft": 65536}],
    },
    "mounts": [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["ro"]},
        {"destination": "/data", "type": "none", "source": "/mnt/nvme", "options": ["rbind", "rw"]},
        {"destination": "/dev/nvidia-fs1", "type": "bind", "source": "/dev/nvidia-fs1"},
    ],
    "linux": {
        "devices": [{"path": "/dev/nvidia-fs0", "type": "c", "major": 236, "minor": 0}],
        "resources": {"devices": [{"allow": False, "access": "rwm"}]},
        "seccomp": {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["io_uring_setup"], "action": "SCMP_ACT_ERRNO"}]},
    },
}  # fmt: skip


def test_oci() -> None:
    found = only(OCI)
    assert (found.name, found.kind, found.sysfs) == ("box", "oci", True)
    assert found.binds[0] == Bind(target="/data", source="/mnt/nvme")
    assert found.devices == ("/dev/nvidia-fs0",)  # a node that is only bound stays closed by the cgroup
    assert (found.memlock_bytes, found.ipc_lock, found.io_uring) == (65536, False, False)
    assert found.host_network is True  # no namespace of its own
    assert only({**OCI, "linux": {"maskedPaths": ["/sys/firmware"]}}).masked == ("/sys/firmware",)
    apart = only({**OCI, "linux": {"namespaces": [{"type": "network", "path": "/run/netns/x"}]}})
    assert apart.host_network is None  # a plugin may have put a NIC there
    assert found.gpus is None  # asked of NVIDIA's runtime, which has not been here yet
    bare = only({**OCI, "mounts": [], "process": {}, "linux": {}})
    assert (bare.sysfs, bare.gpus, bare.io_uring, bare.memlock_bytes) == (False, False, True, None)


GPU_SPEC = """\
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
  - name: all
    containerEdits:
      deviceNodes: [{path: /dev/nvidia0}, {path: /dev/nvidia1}]
containerEdits:
  env: [NVIDIA_VISIBLE_DEVICES=void]
  deviceNodes: [{path: /dev/nvidiactl}]
  mounts:
    - {hostPath: /usr/lib/libcuda.so.1, containerPath: /usr/lib/libcuda.so.1, options: [ro, bind]}
"""


def test_cdi() -> None:
    found = only(GPU_SPEC, "gpu.yaml")
    assert (found.name, found.kind, found.gpus) == ("nvidia.com/gpu", "cdi", True)
    assert found.cdi == ("nvidia.com/gpu=all",)
    assert set(found.devices) == {"/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia1"}
    assert found.binds == (Bind(target="/usr/lib/libcuda.so.1", source="/usr/lib/libcuda.so.1"),)


def test_compose() -> None:
    text = """\
services:
  kv:
    image: example/kv:1
    runtime: nvidia
    environment: {NVIDIA_VISIBLE_DEVICES: all, NVIDIA_GDS: enabled}
    cap_add: [IPC_LOCK]
    ulimits: {memlock: {soft: -1, hard: -1}}
    devices: ["/dev/infiniband:/dev/infiniband", "nvidia.com/gds=all"]
    tmpfs: /t
    volumes:
      - /mnt/nvme:/data:rw
      - named:/cache
      - {type: bind, source: /run/udev, target: /run/udev, read_only: true}
"""
    found = only(text, "compose.yaml")
    assert (found.name, found.line, found.gpus, found.gds, found.ipc_lock) == ("kv", 3, True, True, True)
    assert found.memlock_bytes == UNLIMITED_BYTES
    assert (found.devices, found.cdi) == (("/dev/infiniband",), ("nvidia.com/gds=all",))
    assert found.binds == (
        Bind(target="/data", source="/mnt/nvme"),
        Bind(target="/cache", kind="volume named"),
        Bind(target="/run/udev", source="/run/udev"),
        Bind(target="/t", kind="tmpfs"),
    )


DEPLOYMENT = """\
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: kv}
spec: {volumeName: local-kv}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: local-kv}
spec: {local: {path: /mnt/nvme}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: serve}
spec:
  template:
    spec:
      containers:
        - name: engine
          resources: {limits: {nvidia.com/gpu: 1, rdma/hca: 1, memory: 8Gi}}
          securityContext: {capabilities: {add: [IPC_LOCK]}, seccompProfile: {type: RuntimeDefault}}
          volumeMounts:
            - {name: kv, mountPath: /data, subPath: a}
            - {name: other, mountPath: /other}
            - {name: conf, mountPath: /conf}
            - {name: shm, mountPath: /dev/shm}
        - name: sidecar
          env: [{name: NVIDIA_VISIBLE_DEVICES, value: void}]
      volumes:
        - {name: kv, persistentVolumeClaim: {claimName: kv}}
        - {name: other, persistentVolumeClaim: {claimName: elsewhere}}
        - {name: conf, configMap: {name: conf}}
        - {name: shm, emptyDir: {medium: Memory}}
"""


def test_deployment_with_its_volume() -> None:
    engine, sidecar = read(DEPLOYMENT, "d.yaml")
    assert (engine.name, engine.line, engine.gpus, engine.plugin, engine.rdma_plugin) == (
        "serve/engine",
        18,
        True,
        True,
        True,
    )
    assert engine.binds == (
        Bind(target="/data", source="/mnt/nvme/a"),
        Bind(target="/other", kind="persistentVolumeClaim elsewhere"),
        Bind(target="/dev/shm", kind="tmpfs"),
    )
    assert (engine.ipc_lock, engine.io_uring, engine.memlock_bytes) == (True, None, None)
    assert (sidecar.gpus, sidecar.plugin) == (False, False)


# --- what nobody would write ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("", 1, "not docker inspect's output"),
        ("[]", 1, "not docker inspect's output"),
        ("just words", 1, "not docker inspect's output"),
        ('{\n "HostConfig": {\n  "Runtime": "runc",,\n }\n}', 3, "not valid JSON"),
        ('{"HostConfig": 7}', 1, "HostConfig is no object"),
        ("apiVersion: v1\nkind: Service\n", 1, "not docker inspect's output"),
        ("kind: Pod\nspec:\n  containers: [\n", 4, "not valid YAML"),
        ("{{- if .Values.x }}\nkind: Pod\n", 1, "a template, not yet a manifest: render it first"),
        ("services:\n\tkv: {}\n", 2, "not valid YAML"),
        ("a: &a [x]\n" * 1 + "b: " + "[" * 60 + "]" * 60, 2, "nested deeper"),
        ("[" * 100_000, None, "not valid JSON"),
        ("services:\n" + "  s: {}\n" * 1 + "".join(f"  s{n}: {{}}\n" for n in range(300)), 202, "more than 200 containers"),
    ],
)  # fmt: skip
def test_what_is_broken_is_one_line_with_its_place(text: str, line: int | None, reason: str) -> None:
    with pytest.raises(InputError) as error:
        read(text, "f")
    assert reason in str(error.value)
    assert error.value.path == "f"
    assert line is None or error.value.line == line
    assert "\n" not in str(error.value)


def test_aliases_that_explode_are_refused_at_once() -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
    )
    started = time.monotonic()
    with pytest.raises(InputError):
        read(f"{bomb}kind: PodList\nitems: *a11\n", "f")
    assert time.monotonic() - started < 10


LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.sampled_from(["", "/", "..", "a=b", "\0", "x" * 300, "seccomp={"])
)  # fmt: skip


def outcome(text: str) -> tuple[str | None, tuple[Given, ...]]:
    """The error's line, or what was read."""
    try:
        return None, read(text, "f")
    except InputError as error:
        return str(error), ()


@settings(max_examples=150, deadline=None)
@for_all(st.data())
def test_any_field_may_hold_anything(data: st.DataObject) -> None:
    """One value of a good document replaced: read, or refused in one line."""
    source: Any = json.loads(json.dumps(data.draw(st.sampled_from([[INSPECTED], OCI]))))
    here = source
    while True:
        keys = list(here) if isinstance(here, dict) else list(range(len(here)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(here[key], (dict, list)) or not here[key] or data.draw(st.booleans()):
            here[key] = data.draw(st.one_of(LEAVES, st.lists(LEAVES, max_size=2), st.just({"a": {}})))
            break
        here = here[key]
    said, found = outcome(json.dumps(source))
    assert (said is None) is bool(found)
    assert "\n" not in (said or "")


@settings(max_examples=100, deadline=None)
@for_all(st.text(max_size=300))
def test_any_text(text: str) -> None:
    said, found = outcome(text)
    assert bool(found) or (said or "").startswith("f:")

"""Whatever stands in a snapshot's files, outputs and answers, collecting ends with records that can be printed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gdsctl.collect import container, gds, gpus, modules, nvfs_hooks, nvidia_driver, nvidia_fs, platform
from gdsctl.collect.reader import Reader

Machine = Callable[..., Reader]

FILES = (
    "/proc/modules", "/proc/kallsyms", "/proc/version", "/proc/cmdline", "/proc/cpuinfo", "/proc/config.gz",
    "/proc/self/mountinfo", "/proc/self/limits", "/proc/1/cgroup", "/proc/sys/kernel/osrelease",
    "/proc/driver/nvidia/version", "/proc/driver/nvidia/params", "/proc/driver/nvidia/gpus/0000:01:00.0/information",
    "/proc/driver/nvidia-fs/stats", "/proc/driver/nvidia-fs/modules", "/proc/driver/nvidia-fs/version",
    "/proc/driver/nvidia-fs/bridges", "/proc/driver/nvidia-fs/peer_distance", "/etc/os-release", "/etc/cufile.json",
    "/etc/modprobe.d/a.conf", "/usr/local/cuda/version.json", "/sys/class/dmi/id/sys_vendor",
    "/usr/lib/udev/rules.d/63-md-raid-arrays.rules", "/var/mmfs/gen/mmfs.cfg", "/sys/module/nvidia/taint",
)  # fmt: skip
OUTPUTS = ("lsmod", "gdscheck", "nvidia-smi-topo", "nvidia-smi-query", "dmesg", "modinfo-nvidia", "modinfo-nvme")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ("gpus", "pci_address", "index", "nvlinks", "memlock_bytes", "soft", "cufile_environment", "machine")
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


def everything(reader: Reader) -> bytes:
    loaded, driver = modules.collect(reader), nvidia_fs.collect(reader)
    records = (
        loaded, driver, platform.collect(reader), nvfs_hooks.collect(reader, loaded, driver), gds.collect(reader),
        nvidia_driver.collect(reader), gpus.collect(reader, ()), gpus.smi_topo(reader), container.collect(reader),
    )  # fmt: skip
    return msgspec.json.encode((records, reader.gaps))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    files=st.dictionaries(st.sampled_from(FILES), st.binary(max_size=200)),
    outputs=st.dictionaries(st.sampled_from(OUTPUTS), st.text(max_size=200)),
    answers=st.dictionaries(st.sampled_from(("nvml", "host")), JSON),
)
def test_any_bytes(machine: Machine, files: dict[str, bytes], outputs: dict[str, str], answers: dict[str, Any]) -> None:
    assert everything(machine(files, outputs=outputs, answers=answers)).startswith(b"[[")


def test_nvml_of_another_shape_is_a_gap(machine: Machine) -> None:
    reader = machine({}, answers={"nvml": {"gpus": [{"pci_address": "0000:01:00.0", "index": "zero"}]}})
    assert gpus.collect(reader, ()) == ()


def test_answers_of_another_shape(machine: Machine) -> None:
    reader = machine({}, answers={"host": {"machine": 3, "hostname": 7, "memlock_bytes": {"soft": "much"}}})
    found = platform.collect(reader)
    assert (found.arch, found.hostname) == (None, None)
    assert container.collect(reader).memlock_bytes is None

"""NVML, udev and psutil: what they answer, and what is said where they do not."""

# mypy: disable-error-code="union-attr,no-untyped-call,index"
# An answer of another kind than the expected one fails the test by itself.

from __future__ import annotations

import os
import sys
import time
import types

import pytest

from gdsctl.source import host, nvml, udev
from gdsctl.source.base import Missing


class NVMLError(Exception):
    """Numbers as in nvml.h, nvmlReturn_t."""

    def __init__(self, value):
        super().__init__(f"error {value}")
        self.value = value


INVALID, UNSUPPORTED, PERMISSION, NO_DRIVER, TIMEOUT, NO_LIBRARY, NO_FUNCTION, LOST = 2, 3, 4, 9, 10, 12, 13, 15


def fake_pynvml(**functions):
    """Two GPUs: an H100 with two links to a switch and one that is down, and one that fell off the bus."""

    def raises(value):
        def function(*_):
            raise NVMLError(value)

        return function

    def of_first(value):
        def function(handle, *_):
            if handle == 1:
                raise NVMLError(LOST)
            return value

        return function

    def link_state(handle, link):
        if handle == 1:
            raise NVMLError(LOST)
        if link > 2:
            raise NVMLError(INVALID)
        return link != 2

    module = types.ModuleType("pynvml")
    answers = {
        "NVMLError": NVMLError,
        "NVML_ERROR_INVALID_ARGUMENT": INVALID,
        "NVML_ERROR_NOT_SUPPORTED": UNSUPPORTED,
        "NVML_ERROR_NO_PERMISSION": PERMISSION,
        "NVML_ERROR_DRIVER_NOT_LOADED": NO_DRIVER,
        "NVML_ERROR_LIBRARY_NOT_FOUND": NO_LIBRARY,
        "NVML_ERROR_FUNCTION_NOT_FOUND": NO_FUNCTION,
        "NVML_NVLINK_MAX_LINKS": 18,
        "NVML_NVLINK_DEVICE_TYPE_SWITCH": 2,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: b"570.86.15",
        "nvmlSystemGetCudaDriverVersion_v2": lambda: 12080,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetPciInfo": lambda _: types.SimpleNamespace(busId=b"00000000:1B:00.0"),
        "nvmlDeviceGetName": of_first("NVIDIA H100 80GB HBM3"),
        "nvmlDeviceGetUUID": of_first("GPU-1"),
        "nvmlDeviceGetMemoryInfo": of_first(types.SimpleNamespace(total=85520809984)),
        "nvmlDeviceGetBAR1MemoryInfo": of_first(types.SimpleNamespace(bar1Total=137438953472)),
        "nvmlDeviceGetCudaComputeCapability": of_first((9, 0)),
        "nvmlDeviceGetMigMode": of_first([0, 0]),
        "nvmlDeviceGetC2cModeInfoV1": raises(UNSUPPORTED),
        "nvmlDeviceGetNvLinkState": link_state,
        "nvmlDeviceGetNvLinkVersion": of_first(6),
        "nvmlDeviceGetNvLinkRemoteDeviceType": of_first(2),
        "nvmlDeviceGetNvLinkRemotePciInfo": lambda *_: types.SimpleNamespace(busId="00000000:05:00.0"),
        "nvmlDeviceGetCurrPcieLinkGeneration": of_first(5),
        "nvmlDeviceGetCurrPcieLinkWidth": of_first(16),
        "nvmlDeviceGetMaxPcieLinkGeneration": of_first(5),
        "nvmlDeviceGetMaxPcieLinkWidth": of_first(16),
    }
    for name, value in (answers | functions).items():
        if value is None:
            continue
        setattr(module, name, raises(value) if name.startswith("nvml") and isinstance(value, int) else value)
    return module


@pytest.fixture
def ask(monkeypatch):
    def asked(**functions):
        monkeypatch.setitem(sys.modules, "pynvml", fake_pynvml(**functions))
        return nvml.ask()

    return asked


def test_nvml_tells_what_it_knows(ask):
    answer = ask()
    assert answer["driver_version"] == "570.86.15"
    assert answer["cuda_version"] == "12.8"
    first = answer["gpus"][0]
    assert first == {
        "index": 0,
        "pci_address": "0000:1b:00.0",
        "name": "NVIDIA H100 80GB HBM3",
        "uuid": "GPU-1",
        "memory_bytes": 85520809984,
        "bar1_bytes": 137438953472,
        "compute_capability": "9.0",
        "mig": False,
        "c2c": None,
        "nvlinks": [
            {"link": 0, "active": True, "version": 4, "remote_pci": "switch"},  # 6 is NVLink 4.0 in nvml.h
            {"link": 1, "active": True, "version": 4, "remote_pci": "switch"},
            {"link": 2, "active": False, "version": None, "remote_pci": None},
        ],
        "pcie": {"gen": 5, "width": 16, "max_gen": 5, "max_width": 16},
    }


@pytest.mark.parametrize(("received", "expected"), [(True, 2 * 198_000), (False, 2 * 197_000)])
def test_pcie_bytes(monkeypatch, received, expected):
    """nvml.h: fields 198 received, 197 transmitted; an unsigned long long each."""

    def values(handle, fields):
        assert handle in {"0000:1b:00.0", "0000:43:00.0"}
        return [types.SimpleNamespace(nvmlReturn=0, value=types.SimpleNamespace(ullVal=fields[0] * 1000))]

    functions = {
        "NVML_SUCCESS": 0,
        "NVML_FI_DEV_PCIE_COUNT_TX_BYTES": 197,
        "NVML_FI_DEV_PCIE_COUNT_RX_BYTES": 198,
        "nvmlDeviceGetHandleByPciBusId": lambda address: address,
        "nvmlDeviceGetFieldValues": values,
    }
    monkeypatch.setitem(sys.modules, "pynvml", fake_pynvml(**functions))
    assert nvml.pcie_bytes(["0000:1b:00.0", "0000:43:00.0"], received=received) == expected
    # a GPU that does not count, an older pynvml, a machine without the library
    unsupported = [types.SimpleNamespace(nvmlReturn=UNSUPPORTED)]
    for wrong in ({"nvmlDeviceGetFieldValues": lambda *_: unsupported}, {"NVML_FI_DEV_PCIE_COUNT_RX_BYTES": None,
                  "NVML_FI_DEV_PCIE_COUNT_TX_BYTES": None}, {"nvmlInit": NO_LIBRARY}):  # fmt: skip
        monkeypatch.setitem(sys.modules, "pynvml", fake_pynvml(**(functions | wrong)))
        assert nvml.pcie_bytes(["0000:1b:00.0"], received=received) is None


def test_one_lost_gpu_does_not_hide_the_other(ask):
    answer = ask()
    lost = answer["gpus"][1]
    assert lost["pci_address"] == "0000:1b:00.0"
    assert (lost["name"], lost["memory_bytes"], lost["nvlinks"]) == (None, None, None)
    assert any("GPU 1 name" in words for words in answer["errors"])
    assert not any("GPU 0" in words for words in answer["errors"])  # "not supported" is no error
    gone = ask(nvmlDeviceGetHandleByIndex=lambda index: index if index == 0 else fake_pynvml().nvmlDeviceGetName(1))
    assert [gpu["index"] for gpu in gone["gpus"]] == [0]


def test_old_drivers_and_old_libraries(ask):
    answer = ask(nvmlDeviceGetNvLinkRemoteDeviceType=NO_FUNCTION, nvmlDeviceGetC2cModeInfoV1=None)
    assert answer["gpus"][0]["nvlinks"][0]["remote_pci"] == "0000:05:00.0"
    assert answer["gpus"][0]["c2c"] is None


@pytest.mark.parametrize(
    ("value", "status"),
    [(NO_LIBRARY, "no_tool"), (NO_DRIVER, "absent"), (PERMISSION, "denied"), (LOST, "error"), (TIMEOUT, "error")],
)
def test_why_nvml_says_nothing(ask, value, status):
    for where in ("nvmlInit", "nvmlDeviceGetCount"):
        answer = ask(**{where: value})
        assert isinstance(answer, Missing)
        assert answer.status == status
        assert answer.detail


def test_nvml_that_hangs_or_breaks(ask, monkeypatch):
    monkeypatch.setattr(nvml, "_PATIENCE_S", 0.1)
    start = time.monotonic()
    assert ask(nvmlInit=lambda: time.sleep(3)).status == "timeout"
    assert time.monotonic() - start < 2
    assert ask(nvmlInit=lambda: 1 / 0).status == "error"
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvml.ask().status == "no_tool"


def test_addresses_beyond_four_digits(ask):
    answer = ask(nvmlDeviceGetPciInfo=lambda _: types.SimpleNamespace(busId=b"00010002:AF:00.0"))
    assert answer["gpus"][0]["pci_address"] == "10002:af:00.0"


class Device:
    def __init__(self, sys_name, **properties):
        self.sys_name = sys_name
        self.properties = properties


def test_udev(monkeypatch):
    devices = {
        "block": [
            Device("nvme0n1", ID_FS_TYPE="ext4", ID_FS_UUID="x", ID_SERIAL="S1"),
            Device("md0", MD_LEVEL="raid0"),
        ],
        "pci": [Device("0000:1b:00.0", ID_MODEL_FROM_DATABASE="GH100", DRIVER="nvidia", PCI_ID="10DE:2330")],
    }

    class Context:
        def list_devices(self, subsystem):
            return devices[subsystem]

    module = types.SimpleNamespace(Context=Context, udev_version=lambda: 255)
    monkeypatch.setitem(sys.modules, "pyudev", module)
    answer = udev.ask()
    assert answer["devices"] == {
        "block": {"nvme0n1": {"ID_FS_TYPE": "ext4"}, "md0": {"MD_LEVEL": "raid0"}},
        "pci": {"0000:1b:00.0": {"ID_MODEL_FROM_DATABASE": "GH100"}},
    }
    assert answer["initialized"] is os.path.isdir("/run/udev/data")
    monkeypatch.setitem(sys.modules, "pyudev", None)
    assert udev.ask().status == "no_tool"


def test_host(monkeypatch):
    monkeypatch.setenv("CUFILE_ALLOW_COMPAT_MODE", "true")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setenv("SECRET_TOKEN", "x")
    answer = host.ask()
    assert answer["euid"] == os.geteuid()
    assert answer["hostname"] == os.uname().nodename
    assert answer["cufile_environment"] == {
        **{name: value for name, value in os.environ.items() if name.startswith("CUFILE_")},
        "CUDA_VISIBLE_DEVICES": "0,1",
    }
    assert set(answer["memlock_bytes"]) == {"soft", "hard"}
    assert any(part["mountpoint"] == "/proc" and part["fstype"] == "proc" for part in answer["partitions"])
    with open("/proc/meminfo") as file:
        assert answer["memory_bytes"] == int(file.readline().split()[1]) * 1024  # MemTotal stands first
    assert isinstance(answer["cufile_processes"], list)


def test_unlimited_memlock_is_null(monkeypatch):
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda _: (65536, resource.RLIM_INFINITY))
    assert host.ask()["memlock_bytes"] == {"soft": 65536, "hard": None}

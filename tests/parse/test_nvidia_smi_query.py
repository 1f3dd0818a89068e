"""The rows of nvidia-smi --query-gpu."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdsctl.errors import InputError
from gdsctl.parse import nvidia_smi_query

ROW = (
    "0, 00000000:1B:00.0, NVIDIA H100 80GB HBM3, GPU-00000000-0000-0000-0000-00000000001b, 81559 MiB, 550.54.15, 9.0\n"
)


def test_a_row() -> None:
    (gpu,) = nvidia_smi_query.parse(ROW).gpus
    assert (gpu.index, gpu.pci_address, gpu.name) == (0, "0000:1b:00.0", "NVIDIA H100 80GB HBM3")
    assert gpu.memory_bytes == 81559 * 1024 * 1024
    assert (gpu.driver_version, gpu.compute_capability) == ("550.54.15", "9.0")


def test_what_is_not_available_is_none() -> None:
    (gpu,) = nvidia_smi_query.parse("3, 0000000F:01:00.0, NVIDIA GB10, [N/A], [N/A], 580.95.05, [N/A]").gpus
    assert gpu.pci_address == "000f:01:00.0"
    assert (gpu.uuid, gpu.memory_bytes, gpu.compute_capability) == (None, None, None)


def test_other_lines_are_warned_about() -> None:
    found = nvidia_smi_query.parse("WARNING: infoROM is corrupted at gpu 0000:1B:00.0\n" + ROW)
    assert [gpu.index for gpu in found.gpus] == [0]
    assert [warned.line for warned in found.warnings] == [1]


@pytest.mark.parametrize(
    "text", ["", "No devices were found\n", 'Field "compute_cap" is not a valid field to query.\n']
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        nvidia_smi_query.parse(text)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = nvidia_smi_query.parse(text)
    except InputError:
        return
    assert found.gpus

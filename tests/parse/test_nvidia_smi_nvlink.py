"""NVLink listings as nvidia-smi prints them; forms seen in public reports, values made up."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdsctl.errors import InputError
from gdsctl.parse.nvidia_smi_nvlink import NvlinkStatus, parse

STATUS = """GPU 0: Tesla V100-SXM2-32GB (UUID: GPU-aa)
\t Link 0: 25.781 GB/s
\t Link 1: <inactive>
GPU 1: Tesla V100-SXM2-32GB (UUID: GPU-bb)
\t Link 0: 25.781 GB/s
"""
REMOTE = """GPU 0: NVIDIA H100 PCIe (UUID: GPU-aa)
\t Link 0: Remote Device 00000000:D5:00.0: Link 6
GPU 1: NVIDIA H100 PCIe (UUID: GPU-bb)
\t Link 0: 00000000:27:00.0
"""


def test_status():
    first, second = parse(STATUS).gpus
    assert (first.index, first.name, first.uuid) == (0, "Tesla V100-SXM2-32GB", "GPU-aa")
    assert first.links == (NvlinkStatus(link=0, active=True, gbs=25.781), NvlinkStatus(link=1, active=False))
    assert second.links == (NvlinkStatus(link=0, active=True, gbs=25.781),)
    assert parse(STATUS).warnings == ()


def test_far_ends_are_joined_with_the_status():
    first, second = parse(REMOTE).gpus
    assert first.links == (NvlinkStatus(link=0, remote="0000:d5:00.0"),)
    assert second.links == (NvlinkStatus(link=0, remote="0000:27:00.0"),)
    both = parse(STATUS + REMOTE).gpus[0]
    assert both.links is not None
    assert both.links[0] == NvlinkStatus(link=0, active=True, gbs=25.781, remote="0000:d5:00.0")


@pytest.mark.parametrize(
    "text",
    [
        "GPU 0: NVIDIA RTX A4000 (UUID: GPU-aa) Device does not have or support Nvlink\n",
        "GPU 0: NVIDIA L4 (UUID: GPU-aa)\n\t Device does not have or support Nvlink\n",
        "GPU 0: Quadro RTX 5000 (UUID: GPU-bb)\nNVML: Unable to retrieve NVLink information as all links are inActive\n",
    ],
)
def test_none(text: str):
    assert [gpu.links for gpu in parse(text).gpus] == [()]


def test_pasted():
    quoted = "".join(f"> {line.strip()}\r\n\r\n" for line in STATUS.splitlines())
    assert parse(quoted).gpus == parse(STATUS).gpus
    assert parse(STATUS.replace(" (UUID: GPU-aa)", "")).gpus[0].name == "Tesla V100-SXM2-32GB"


def test_what_is_not_told_stays_unknown():
    cut = parse(STATUS.replace("\t Link 0: 25.781 GB/s\n", "", 2) + "GPU 2: Tesla V100 (UUID: GPU-cc)\n")
    assert [gpu.links and len(gpu.links) for gpu in cut.gpus] == [1, None, None]
    strange = parse("GPU 0: B\n\t Link 0: rebooting\n")
    assert strange.gpus[0].links == (NvlinkStatus(link=0),)
    assert [warned.line for warned in strange.warnings] == [2]


@pytest.mark.parametrize(
    "text", ["", "GPU 0: NVIDIA L4 (UUID: GPU-aa)\n", "\tGPU0\tGPU1\nGPU0\t X \tNV4\n", "Link 0: 25 GB/s"]
)
def test_other_text_is_refused(text: str):
    with pytest.raises(InputError):
        parse(text)


@given(st.text(alphabet="GPULink 0123:<>(inactve)./B\n\t\0é\ud800"))
def test_anything_is_read_or_refused(text: str):
    with contextlib.suppress(InputError):
        assert parse(text).gpus


def test_long_lines_and_many_lines_end():
    assert len(parse("GPU 0: A\n" + "Link 0: 1 GB/s\n" * 100_000).gpus) == 1
    with pytest.raises(InputError):
        parse("GPU 0:" + " " * 100_000 + "x" * 100_000)

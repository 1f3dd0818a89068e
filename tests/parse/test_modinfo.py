"""modinfo as kmod prints it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdsctl.errors import InputError
from gdsctl.parse import modinfo

OPEN = """filename:       /lib/modules/6.8.0-60-generic/updates/dkms/nvidia.ko.zst
alias:          char-major-195-*
version:        570.148.08
supported:      external
license:        Dual MIT/GPL
firmware:       nvidia/570.148.08/gsp_tu10x.bin
srcversion:     A1B2C3D4E5F60718293A4B5
depends:
name:           nvidia
vermagic:       6.8.0-60-generic SMP preempt mod_unload modversions
parm:           NVreg_RegistryDwords: string (charp)
"""


def test_open_driver() -> None:
    found = modinfo.parse(OPEN)
    assert found.filename == "/lib/modules/6.8.0-60-generic/updates/dkms/nvidia.ko.zst"
    assert (found.version, found.license) == ("570.148.08", "Dual MIT/GPL")
    assert found.srcversion == "A1B2C3D4E5F60718293A4B5"
    assert found.vermagic == "6.8.0-60-generic SMP preempt mod_unload modversions"


def test_built_in_code_has_neither_version_nor_srcversion() -> None:
    found = modinfo.parse("name:           nvme\nfilename:       (builtin)\nlicense:        GPL\n")
    assert (found.filename, found.license, found.version, found.srcversion) == ("(builtin)", "GPL", None, None)


def test_only_the_first_module_counts() -> None:
    assert modinfo.parse(OPEN + "filename: /other.ko\nversion: 1\n").version == "570.148.08"


@pytest.mark.parametrize("text", ["", "modinfo: ERROR: Module nvidia not found.\n", "filename:\n"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        modinfo.parse(text)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = modinfo.parse(text)
    except InputError:
        return
    assert found.filename in text

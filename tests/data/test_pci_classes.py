from __future__ import annotations

import re
from pathlib import Path

import pytest

from gdsctl.data import pci_classes

PCI_IDS = Path("/usr/share/misc/pci.ids")


def test_names_and_codes_are_unique_and_sourced() -> None:
    rows = pci_classes.classes()
    assert len({row.name.lower() for row in rows}) == len({row.code for row in rows}) == len(rows)
    assert all(row.source for row in rows)


def test_four_digits_grow_only_where_one_interface_exists() -> None:
    assert pci_classes.code("3D controller") == "0302"
    assert pci_classes.with_interface("0302") == "030200"
    assert pci_classes.with_interface("0108") == "0108"
    assert pci_classes.with_interface("ffee") == "ffee"
    assert pci_classes.code("Flux capacitor") is None


@pytest.mark.skipif(not PCI_IDS.exists(), reason="pci.ids is not installed")
def test_the_names_are_those_of_pci_ids() -> None:
    names: dict[str, str] = {}
    interfaces: set[str] = set()
    base = code = ""
    for line in PCI_IDS.read_text(errors="replace").splitlines():
        if match := re.match(r"C ([0-9a-f]{2})  ", line):
            base = match[1]
        elif base and (match := re.match(r"\t([0-9a-f]{2})  (.*)", line)):
            code = base + match[1]
            names[code] = match[2]
        elif base and re.match(r"\t\t(?!00)[0-9a-f]{2}  ", line):
            interfaces.add(code)
    for row in pci_classes.classes():
        assert names[row.code] == row.name
        assert row.interface is None or row.code not in interfaces

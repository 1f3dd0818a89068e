"""The options that modprobe.d gives the module lnet."""

from __future__ import annotations

from pathlib import Path

from gdsctl.collect import lnet
from gdsctl.collect.reader import Reader
from gdsctl.model.devices import LnetOption
from gdsctl.source.opening import open_source


def options(root: Path) -> tuple[LnetOption, ...] | None:
    (root / "proc").mkdir(exist_ok=True)
    (root / "proc/version").write_text("Linux version 6.8.0\n")
    return lnet.options(Reader(open_source(str(root))))


def test_the_line_and_its_place(tmp_path: Path) -> None:
    """Example of the Lustre Operations Manual, quotes as modprobe.d(5) takes them."""
    folder = tmp_path / "etc/modprobe.d"
    folder.mkdir(parents=True)
    (folder / "lustre.conf").write_text('# LNet\noptions lnet networks="tcp0(eth0),o2ib(ib0)"\noptions nvidia x=1\n')
    assert options(tmp_path) == (
        LnetOption(name="networks", value="tcp0(eth0),o2ib(ib0)", place="/etc/modprobe.d/lustre.conf:2"),
    )


def test_no_folder_in_a_bare_tree_is_not_known(tmp_path: Path) -> None:
    assert options(tmp_path) is None

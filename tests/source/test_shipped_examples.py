"""Examples: listed from their manifests, opened by name, refused by a name that helps."""

# mypy: disable-error-code="union-attr,no-untyped-call,index"
# An answer of another kind than the expected one fails the test by itself.

from __future__ import annotations

import pytest

from gdsctl.errors import UsageError
from gdsctl.model.node import Tool
from gdsctl.source import examples
from gdsctl.source.capture import Capture
from gdsctl.source.opening import open_source
from gdsctl.source.snapshot import Manifest
from gdsctl.source.writing import write_capture


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    for name, note in (("small", "One NVMe drive; synthetic"), ("booted", "Captured from a virtual machine")):
        manifest = Manifest(schema_version="1", tool=Tool(name="gdsctl", version="0"), note=note)
        write_capture(Capture(manifest=manifest, files={"/etc/x": b"x"}), str(tmp_path / f"{name}.tar.gz"))
    (tmp_path / "README.md").write_text("no example")
    monkeypatch.setattr(examples, "_FOLDER", str(tmp_path))


@pytest.mark.usefixtures("shipped")
def test_list_and_open():
    rows = [(row.name, row.title, row.synthetic) for row in examples.list_examples()]
    assert rows == [
        ("booted", "Captured from a virtual machine", False),
        ("small", "One NVMe drive; synthetic", True),
    ]
    source = open_source("example:small")
    assert source.read("/etc/x") == b"x"
    assert source.info.note == "One NVMe drive; synthetic"


@pytest.mark.usefixtures("shipped")
@pytest.mark.parametrize("name", ["smal", "", "../small", "small.tar.gz"])
def test_unknown_names(name):
    with pytest.raises(UsageError, match="booted, small") as caught:
        open_source(f"example:{name}")
    assert caught.value.exit_code == 2


def test_an_installation_without_examples(tmp_path, monkeypatch):
    monkeypatch.setattr(examples, "_FOLDER", str(tmp_path / "none"))
    assert examples.list_examples() == ()
    with pytest.raises(UsageError, match="none in this installation"):
        examples.example_files("small")

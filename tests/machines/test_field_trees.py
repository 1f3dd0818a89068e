"""Every tree and pasted output among the field data: none may fail, all give the same twice, and what can be seen in them
with the eye, or said by another tool, comes out.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import msgspec
import pytest

from gdsctl import pipeline
from gdsctl.model.node import Report
from gdsctl.model.pci import canonical_address
from gdsctl.render.schemas import schema
from gdsctl.source.assemble import assemble
from gdsctl.source.opening import open_source

ROOT = Path(__file__).resolve().parents[2]
FIELD = Path(os.environ.get("GDSCTL_FIELD_DATA", ROOT.parent / "shared")) / "field"
TREES = sorted(
    path.relative_to(FIELD).as_posix() for path in (*FIELD.glob("trees/*.tar.*"), *FIELD.glob("vm/*/root.tar.gz"))
)
PASTED = sorted(
    path.relative_to(FIELD).as_posix()
    for pattern in ("gdscheck/*.txt", "topo/*.txt", "nccl/*.xml", "lspci/*")
    for path in FIELD.glob(pattern)
    if path.suffix != ".gz"
)
ARGUMENTS = {"gdscheck": "gdscheck", "topo": "nvidia_smi_topo", "nccl": "nccl_topo", "lspci": "lspci"}
NOWHERE = object()

pytestmark = pytest.mark.shared


def resolved(document: Any, pointer: str) -> Any:
    """What a JSON pointer (RFC 6901) points to, or NOWHERE."""
    for escaped in pointer.split("/")[1:]:
        token = escaped.replace("~1", "/").replace("~0", "~")
        if isinstance(document, list) and token.isdecimal() and int(token) < len(document):
            document = document[int(token)]
        elif isinstance(document, dict) and token in document:
            document = document[token]
        else:
            return NOWHERE
    return document


@functools.cache
def validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(schema("inspect"))


def unpack(archive: Path | str, folder: Path) -> None:
    """By tar itself: tarfile resolves every path anew, which takes ten times as long for trees of thousands of links."""
    subprocess.run(["tar", "-xf", archive, "-C", folder], check=True)


def read(place: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(msgspec.json.encode(pipeline.inspect(open_source(str(place)))))
    return document


def check(report: Report) -> dict[str, Any]:
    """What holds of every document: it fits its schema, and each unknown points to a null, an empty list or "unknown"."""
    document: dict[str, Any] = json.loads(msgspec.json.encode(report))
    validator().validate(document)
    pointers = [entry["pointer"] for entry in document["unknowns"]]
    assert len(pointers) == len(set(pointers))
    assert {p: v for p in pointers if (v := resolved(document, p)) not in (None, [], {}, "unknown")} == {}
    certain = [route for route in document["routes"] if route["confidence"] == "certain"]
    assert all(route["route"] != "unknown" for route in certain)
    return document


@pytest.mark.parametrize("name", TREES)
def test_a_tree_gives_one_valid_document(shared: Path, tmp_path: Path, name: str) -> None:
    place = str(shared / "field" / name)
    first = check(pipeline.inspect(open_source(place)))
    assert read(Path(place)) == first
    unpack(place, tmp_path)
    unpacked = read(tmp_path)
    captured = tmp_path / "captured"
    pipeline.capture(open_source(place), str(captured), redact=False)
    replayed = read(captured)
    sections = first.keys() - {"source", "unknowns", "iommu"}  # a bare tree may have lost empty folders
    for other in (unpacked, replayed):
        assert {section: other[section] for section in sections} == {section: first[section] for section in sections}


@pytest.mark.parametrize("name", PASTED)
def test_pasted_text_gives_one_valid_document(shared: Path, tmp_path: Path, name: str) -> None:
    kind, _, file = name.partition("/")
    text = (shared / "field" / name).read_text(errors="surrogateescape")
    if kind == "topo":
        text = text.partition("# ---\n")[2]
    elif kind == "gdscheck":
        lines = text.splitlines(keepends=True)
        start = next(number for number, line in enumerate(lines) if not line.startswith("#"))
        text = "".join(lines[start:])
    (tmp_path / file).write_text(text, errors="surrogateescape")
    out = str(tmp_path / "snapshot")
    assemble(out, **{ARGUMENTS[kind]: str(tmp_path / file)})  # type: ignore[arg-type]  # one text argument
    document = check(pipeline.inspect(open_source(out)))
    # Nobody asked for these, so nothing may be said of them.
    assert document["platform"]["virtualization"] is None
    assert document["platform"]["secure_boot"] is None
    assert document["container"]["kind"] is None
    assert document["container"]["has_udev_db"] is None
    assert document["iommu"]["state"] in ("unknown", "off", "passthrough", "translated")
    if kind != "gdscheck":
        assert document["iommu"]["state"] == "unknown"
        assert document["nvidia_fs"]["loaded"] is None
    assert {route["route"] for route in document["routes"]} <= {"unknown"}


# --- read by eye ---------------------------------------------------------------------------------------------------


def devices(report: Report) -> dict[str, Any]:
    return {device.address: device for device in report.pci.devices}


def micro_vm(report: Report) -> None:
    at = devices(report)
    assert {a: at[a].root_bus for a in at if a.startswith("10000:")} == {
        "10000:00:00.0": "10000:00",
        "10000:00:04.0": "10000:00",
    }
    assert report.platform.virtualization == "kvm"
    assert report.platform.product == "Apache Software Foundation CloudStack KVM Hypervisor"


def many_pci_functions(report: Report) -> None:
    at = devices(report)
    assert len(at) == 137
    # 0000:00:11.0 is a bridge whose secondary bus is 0: it leads nowhere.
    assert (at["0000:00:11.0"].parent, at["0000:00:11.0"].root_bus) == (None, "0000:00")
    (drive,) = report.nvme
    assert at[drive.address or ""].class_ == "010802"
    assert report.platform.product == "Dell DCS8000Z"
    # Only sys/firmware/dmi was gathered, and neither sys/module nor proc/driver.
    assert (report.platform.secure_boot, report.nvidia_fs.loaded) == (None, None)


def vector_engines(report: Report) -> None:
    """Eight accelerators of NEC (1bcf) below two PLX switches; the X722 NIC below a switch of the chipset."""
    accelerators = [device for device in report.pci.devices if device.vendor_id == "1bcf"]
    assert len(accelerators) == 8
    assert {gpu.kind for gpu in report.gpus} == {"other-accelerator"}
    assert report.routes == ()
    at = devices(report)
    # The link to 5f:03.0 was cut out of /sys/bus/pci/devices; the paths of what hangs below still name it.
    assert at["0000:60:00.0"].parent == "0000:5f:03.0"
    assert "0000:5f:03.0" not in at
    assert at["0000:5e:00.0"].parent == "0000:5d:02.0"


def dual_port_drive(report: Report) -> None:
    assert [(d.name, d.address, d.subsystem, d.namespaces, d.multipath) for d in report.nvme] == [
        ("nvme0", "0214:90:00.0", "nvme-subsys0", ("nvme0n1",), False),
        ("nvme1", "052e:78:00.0", "nvme-subsys1", ("nvme1n1",), True),
        ("nvme2", "058e:78:00.0", "nvme-subsys1", ("nvme1n1",), True),
    ]


def volume_on_loops(report: Report) -> None:
    at = {device.name: device for device in report.block}
    assert (at["dm-0"].kind, at["dm-0"].level, at["dm-0"].slaves) == ("dm", "lvm", ("loop0", "loop1", "loop2", "loop3"))
    assert (at["nvme0n1p2"].kind, at["nvme0n1p2"].slaves) == ("part", ("nvme0n1",))
    home = next(mount for mount in report.mounts if mount.target == "/home")
    assert (home.device, home.backing.kind, home.backing.transport) == ("nvme0n1p2", "nvme", None)


EYE: dict[str, Callable[[Report], None]] = {
    "trees/hwloc-2pa-pcidomain32bits.tar.bz2": micro_vm,
    "trees/hwloc-32em64t-2n8c+dax+nvme+mic+dimms.tar.bz2": many_pci_functions,
    "trees/hwloc-32intel64-2p8co2t+8ve.tar.bz2": vector_engines,
    "trees/libnvme-tree-pcie.tar.xz": dual_port_drive,
    "trees/lsblk-simple-lvm.tar.xz": volume_on_loops,
}


@pytest.mark.parametrize("name", EYE)
def test_facts(shared: Path, name: str) -> None:
    EYE[name](pipeline.inspect(open_source(str(shared / "field" / name))))


@pytest.mark.parametrize("name", ["off", "pt", "on"])
def test_the_lab_knows_its_iommu(shared: Path, name: str) -> None:
    report = pipeline.inspect(open_source(str(shared / f"field/vm/switches-{name}/root.tar.gz")))
    assert report.iommu.state == {"off": "off", "pt": "passthrough", "on": "translated"}[name]
    assert report.platform.virtualization == "qemu"
    assert report.nvidia_fs.loaded is True


# --- against lstopo ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in TREES if name.startswith("trees/hwloc")])
def test_as_lstopo_sees_it(shared: Path, tmp_path: Path, name: str) -> None:
    unpack(shared / "field" / name, tmp_path)
    root = next(path.parent for path in sorted(tmp_path.glob("**/sys"), key=lambda path: len(path.parts)))
    command = ["lstopo", "--of", "xml", "--whole-io", "-"]
    env = os.environ | {"HWLOC_FSROOT": str(root), "HWLOC_THISSYSTEM": "0", "HWLOC_COMPONENTS": "linux,stop"}
    try:
        printed = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        pytest.skip("no lstopo here")
    theirs: dict[str, tuple[str | None, str, float]] = {}

    def walk(element: ET.Element, above: str | None) -> None:
        address = canonical_address(element.get("pci_busid", ""))
        if address:
            theirs[address] = (above, element.get("pci_type", ""), float(element.get("pci_link_speed", "0")))
        for child in element.findall("object"):
            walk(child, address or (None if element.get("type") == "Bridge" else above))

    walk(ET.fromstring(printed), None)  # noqa: S314 - lstopo's own output
    report = pipeline.inspect(open_source(str(root)))
    ours = devices(report)
    # lstopo passes over 32-bit domains and over bridges that lead nowhere.
    left = {
        a for a in ours if len(a) > len("0000:00:00.0") or (ours[a].kind == "root_port" and ours[a].secondary_bus == 0)
    }
    assert theirs.keys() == ours.keys() - left
    for address, (above, type_, speed) in theirs.items():
        device = ours[address]
        ids = re.match(r"(\w{4}) \[(\w{4}):(\w{4})\]", type_)
        assert ids is not None
        assert ((device.class_ or "")[:4], device.vendor_id, device.device_id) == ids.groups()
        if device.parent is None or device.parent in ours:
            assert above == device.parent
        else:  # a bridge that is on the path and not in the list: lstopo takes the next one above
            assert above in ours
        link = device.link
        if speed > 0:
            coding = 8 / 10 if link.speed_gts in (2.5, 5.0) else 128 / 130
            assert (link.speed_gts or 0) * (link.width or 0) * coding / 8 == pytest.approx(speed, rel=0.02)

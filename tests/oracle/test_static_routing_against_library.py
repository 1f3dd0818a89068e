"""The static routing file: what lint says of each fault is what libcufile does, and what plan writes is what it takes."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gdsctl.assess.static_routing import lint, preferences
from tests.builders import Machine
from tests.oracle import fakesys, oracle
from tests.oracle.test_rank_against_library import exporting, tree

if TYPE_CHECKING:
    from tests.oracle.conftest import Libcufile

pytestmark = pytest.mark.oracle
__all__ = ["exporting"]
AT_ONCE = 4


def machine() -> Machine:
    """Two sockets; on each a switch with a GPU and a NIC, and beside it a drive on a port of its own."""
    made = Machine()
    for number, bus in enumerate(("0000:10", "0000:80")):
        root = made.root(bus, numa=number)
        switch = made.switch(made.root_port(root), ports=2)
        made.gpu(switch.down[0])
        made.nic(switch.down[1])
        made.nvme(made.root_port(root))
    made.number()
    return made


MADE = machine()
GPU, OTHER = (part.address for part in MADE.gpus)
NIC, FAR = (part.address for part in MADE.nics)
DISK = MADE.disks[0].address


def right() -> dict[str, Any]:
    """A file that the library takes."""
    rows = {}
    for kind, parts in (("GPU", MADE.gpus), ("NET", MADE.nics), ("NVME", MADE.disks)):
        for number, part in enumerate(parts):
            rows[f"{kind}{number}"] = {
                "bdf": part.address,
                "type": kind,
                "socket": number,
                "numa_node": number,
                "pcie_group": number + 2 * (kind == "NVME"),
            }
    rows["GPU0"]["preferences"] = [{"order": 1, "devices": ["NET0"]}, {"order": 2, "devices": ["NVME0", "NET1"]}]
    rows["GPU1"]["preferences"] = [{"order": 1, "devices": ["NET1"]}]
    return rows


def at(name: str, field: str, value: Any) -> Callable[[dict[str, Any]], object]:
    return lambda rows: rows[name].update({field: value})


def without(name: str, field: str) -> Callable[[dict[str, Any]], object]:
    return lambda rows: rows[name].pop(field)


def preferring(value: Any) -> Callable[[dict[str, Any]], object]:
    return at("GPU0", "preferences", value)


# What is changed in the right file, and what becomes of it: taken | warned (and taken) | refused (whole) | aborts.
CASES: dict[str, tuple[str, Callable[[dict[str, Any]], object]]] = {
    "as it is": ("taken", lambda _: None),
    "a field of its own": ("taken", at("NET0", "note", "x")),
    "type in lower case": ("taken", at("NET0", "type", "net")),
    "address in upper case": ("taken", at("NET0", "bdf", NIC.upper())),
    "eight digits of domain": ("taken", at("NET0", "bdf", f"0000{NIC}")),
    "order as a real": ("taken", preferring([{"order": 1.0, "devices": ["NET0"]}])),
    "no preference": ("taken", preferring([])),
    "socket -1": ("refused", at("NET0", "socket", -1)),
    "node -1": ("refused", at("NVME0", "numa_node", -1)),
    "group -1": ("refused", at("GPU0", "pcie_group", -1)),
    "socket as a text": ("refused", at("NET0", "socket", "0")),
    "socket too large": ("refused", at("NET0", "socket", 10**12)),
    "group as a boolean": ("refused", at("NET0", "pcie_group", True)),
    "no socket": ("refused", without("NET0", "socket")),
    "no node": ("refused", without("NET0", "numa_node")),
    "no group": ("refused", without("NET0", "pcie_group")),
    "no type": ("refused", without("NET0", "type")),
    "no address": ("refused", without("NET0", "bdf")),
    "unknown type": ("refused", at("NET0", "type", "NIC")),
    "type as a number": ("refused", at("NET0", "type", 4)),
    "address without function": ("refused", at("NET0", "bdf", "0000:1b:00")),
    "address as a number": ("refused", at("NET0", "bdf", 5)),
    "device that is not there": ("refused", at("NET0", "bdf", "0000:77:00.0")),
    "one address twice": ("refused", at("NET0", "bdf", DISK)),
    "preferences as an object": ("refused", preferring({"order": 1})),
    "preferences null": ("refused", preferring(None)),
    "order as a text": ("refused", preferring([{"order": "1", "devices": ["NET0"]}])),
    "order missing": ("refused", preferring([{"devices": ["NET0"]}])),
    "devices missing": ("refused", preferring([{"order": 1}])),
    "devices as a text": ("refused", preferring([{"order": 1, "devices": "NET0"}])),
    "a device as a number": ("refused", preferring([{"order": 1, "devices": [1]}])),
    "a device that the file lacks": ("refused", preferring([{"order": 1, "devices": ["NET9"]}])),
    "a device without a name": ("refused", lambda rows: rows.update({"": rows.pop("NVME1")})),
    "null for a device": ("refused", lambda rows: rows.update({"x": None})),
    "nothing at all": ("refused", lambda rows: rows.clear()),
    "order 0": ("warned", preferring([{"order": 0, "devices": ["NET0"]}])),
    "order 28673": ("warned", preferring([{"order": 28673, "devices": ["NET0"]}])),
    "address without domain": ("aborts", at("NET0", "bdf", NIC.partition(":")[2])),
    "function 8": ("aborts", at("NET0", "bdf", f"{NIC[:-1]}8")),
    "no hexadecimal address": ("aborts", at("NET0", "bdf", "0000:zz:00.0")),
    "a text for a device": ("aborts", lambda rows: rows.update({"x": "y"})),
    "a list for a device": ("aborts", lambda rows: rows.update({"x": []})),
    "a text for a preference": ("aborts", preferring(["NET0"])),
}
TEXTS = {"": "refused", "[]": "refused", '{"a": 1,}': "refused", "// a comment\n" + json.dumps(right()): "taken"}


def documents() -> dict[str, tuple[str, str]]:
    found = {}
    for name, (becomes, change) in CASES.items():
        rows = copy.deepcopy(right())
        change(rows)
        found[name] = (becomes, json.dumps(rows))
    return found | {repr(text[:12]): (becomes, text) for text, becomes in TEXTS.items()}


def asked(library: Libcufile, folder: Path, path: Path) -> dict[str, Any]:
    on = {"miscellaneous": {"enable_static_routing": True, "static_routing_filepath": str(path)}}
    return library.ask(on, root=folder, verbose=True)


def became(answer: dict[str, Any]) -> str:
    lines = [line for line in answer["log"] if "topo-static" in line]
    if "broken" in answer:
        return "aborts"
    if not any("Static topology loaded" in line for line in lines):
        return "refused"
    return "warned" if any(line.startswith("WARN") for line in lines) else "taken"


def taken_order(answer: dict[str, Any], gpu: str) -> dict[int, set[str]]:
    """Order number -> peers, as the library prints them; those without affinity left out."""
    line = next(line for line in answer["log"] if f" gpu {gpu} peers : " in line)
    found: dict[int, set[str]] = {}
    for peer, order in re.findall(r"([0-9a-f:.]+)\((\d+)\)", line.partition(" peers : ")[2]):
        if int(order) != 28672:
            found.setdefault(int(order), set()).add(peer)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    fakesys.build(tmp_path / "node", tree(MADE), node_count=2)
    return tmp_path / "node"


def test_each_fault_does_what_lint_says(exporting: Libcufile, folder: Path, tmp_path: Path) -> None:
    node = MADE.node()

    def one(item: tuple[str, tuple[str, str]]) -> tuple[str, str, str]:
        name, (expected, text) = item
        path = tmp_path / f"{abs(hash(name))}.json"
        path.write_text(text)
        told = lint(str(path), text, node=node)
        ours = "aborts" if any(p.fatal for p in told) else "refused" if any(p.severity == "error" for p in told) else ""
        answer = asked(exporting, folder, path)
        assert ours or expected in ("taken", "warned"), name
        assert bool(told) == (expected != "taken") or name == "no preference", (name, told)
        assert (preferences(text) is None) == (ours != "") or name == "device that is not there", name
        return name, expected, became(answer)

    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            found = list(pool.map(one, documents().items()))
    except oracle.Unavailable as reason:
        pytest.skip(str(reason))
    assert [row for row in found if row[1] != row[2]] == []


def test_preferences_are_read_as_the_library_does(exporting: Libcufile, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps(right()))
    try:
        answer = asked(exporting, folder, path)
    except oracle.Unavailable as reason:
        pytest.skip(str(reason))
    assert taken_order(answer, GPU) == {1: {NIC}, 2: {DISK, FAR}}
    ours = preferences(path.read_text())
    assert ours is not None
    assert [set(group) for group in ours[GPU]] == [{NIC}, {DISK, FAR}]
    assert ours[OTHER] == ((FAR,),)


def test_a_planned_file_puts_the_near_nic_first(exporting: Libcufile, tmp_path: Path) -> None:
    """Two NICs on ports of their own, one at the GPU's host bridge: without the file they are equal, with it not."""
    from tests.plan.test_static_routing import machine as two_nics
    from tests.plan.test_static_routing import made_for, node

    made = two_nics()
    fakesys.build(tmp_path / "node", tree(made), node_count=2)
    static = made_for(node(made, version=f"{exporting.version}")).cufile.static
    path = tmp_path / "t.json"
    path.write_text(static.text)
    try:
        alone = exporting.ask(None, root=tmp_path / "node", topology=True)
        answer = asked(exporting, tmp_path / "node", path)
    except oracle.Unavailable as reason:
        pytest.skip(str(reason))
    gpu, far, near = made.gpus[0].address, made.nics[0].address, made.nics[1].address
    ranks = {row["peer"]: row["rank"] for row in alone["platform"]["peers"] if row["gpu"] == gpu}
    assert ranks[far] == ranks[near] == 128
    assert became(answer) == "taken"
    order = taken_order(answer, gpu)
    assert order[1] == {near}
    assert far in order[max(order)]

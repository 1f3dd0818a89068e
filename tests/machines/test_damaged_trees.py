"""Machines with files refused, cut, torn or swapped: no damage makes a run fail, and no loss of facts turns one certain
answer into another.

The laws, where `before` is the whole machine and `after` the damaged one:

1. Any damage: the document still fits its schema, and every unknown points to a null, an empty list or "unknown".
2. Files and folders refused (EACCES): each fact below `CERTAIN` is as before, or not known. So are each pair's class and
   peer-to-peer verdict; and a route that is certain is the route it was.
3. The same holds for pairs where files of PCI functions, bridges with all they have, and links are gone. (Elsewhere a file
   that is gone says something: without /proc/driver/nvidia-fs the module is not loaded.)
"""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fixtures import make_examples
from gdsctl import pipeline
from gdsctl.model.node import Report, SourceInfo
from gdsctl.source.base import Missing, Output
from gdsctl.source.tree import Tree
from tests.collect.conftest import Link, Texts
from tests.machines.test_field_trees import resolved
from tests.made import MadeSource

MACHINES = ("nvme-unpatched", "pcie-nvme-raid")
DENIED = PermissionError(13, "Permission denied")
Files = dict[str, Any]


class Held(Tree):
    """A machine in memory: its files as they stand now, its outputs and answers as they were."""

    def __init__(self, files: Files, made: MadeSource | None) -> None:
        super().__init__(Texts(files))
        self._made = made

    @property
    def info(self) -> SourceInfo:
        return SourceInfo(kind="snapshot")

    def run(self, name: str) -> Output | Missing:
        return self._made.run(name) if self._made else Missing(status="not_captured")

    def ask(self, name: str) -> Any | Missing:
        return self._made.ask(name) if self._made else Missing(status="not_captured")


def held(folder: Path) -> Files:
    files: Files = {}
    for place, folders, names in os.walk(folder):
        for name in (*names, *folders):
            path = Path(place, name)
            key = "/" + path.relative_to(folder).as_posix()
            if path.is_symlink():
                files[key] = Link(os.readlink(path))
            elif path.is_file():
                files[key] = path.read_bytes()
            elif not any(path.iterdir()):
                files[key] = dict
    return files


class Whole(dict[str, tuple[Files, MadeSource, Report]]):
    """By name. Hypothesis shows its arguments, and this one is long."""

    def __repr__(self) -> str:
        return "machines"


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    found = Whole()
    for name in MACHINES:
        folder = tmp_path_factory.mktemp(name)
        made: Any = make_examples.MACHINES[name](folder)
        files = held(folder)
        found[name] = files, made, pipeline.inspect(Held(files, made))
    return found


def valid(report: Report) -> Report:
    written = msgspec.json.encode(report)
    msgspec.json.decode(written, type=Report)  # raises where it does not fit the record, which its schema is made of
    document: dict[str, Any] = json.loads(written)
    pointers = [entry["pointer"] for entry in document["unknowns"]]
    assert {p: v for p in pointers if (v := resolved(document, p)) not in (None, [], {}, "unknown")} == {}
    return report


CERTAIN: dict[str, Callable[[Report], Any]] = {
    "virtualization": lambda report: report.platform.virtualization,
    "secure boot": lambda report: report.platform.secure_boot,
    "IOMMU": lambda report: report.iommu.state,
    "nvidia-fs": lambda report: report.nvidia_fs.loaded,
    "driver": lambda report: report.nvidia_driver.kind,
    "container": lambda report: report.container.kind,
    "udev": lambda report: report.container.has_udev_db,
    "cufile.json": lambda report: report.container.has_cufile_json,
    "udev rule": lambda report: report.gds.udev_rule_md,
}


def unturned(before: Report, after: Report) -> None:
    """Law 2, all but the pairs."""
    for fact, ask in CERTAIN.items():
        assert ask(after) in (ask(before), None, "unknown"), fact
    for name, module in after.modules.items():
        assert module.loaded in (before.modules[name].loaded, None), name
    for name, hook in after.nvfs_hooks.items():
        assert hook.state in (before.nvfs_hooks[name].state, "unknown"), name
    routes = {(route.gpu, route.mount): route for route in before.routes}
    for route in after.routes:
        known = routes.get((route.gpu, route.mount))
        if route.confidence == "certain" and known is not None:
            assert known.confidence != "certain" or route.route == known.route, route


def pairs_unturned(before: Report, after: Report) -> None:
    pairs = {(pair.gpu, pair.peer): pair for pair in before.pairs}
    for pair in after.pairs:
        known = pairs[pair.gpu, pair.peer]
        assert pair.class_ in (known.class_, "unknown"), pair
        assert pair.p2p in (known.p2p, "unknown"), pair


def chosen(files: Files, chance: random.Random, pattern: str = "", most: int = 12) -> list[str]:
    paths = sorted(path for path in files if re.search(pattern, path))
    return chance.sample(paths, chance.randint(1, most))


SEEDS = st.integers(0, 2**32).map(random.Random)
FUZZ = settings(
    max_examples=20, deadline=None, phases=[Phase.generate], database=None, suppress_health_check=list(HealthCheck)
)


@FUZZ
@given(name=st.sampled_from(MACHINES), chance=SEEDS)
def test_refused_files_take_certainty_and_give_none(machines: Any, name: str, chance: random.Random) -> None:
    files, made, before = machines[name]
    damaged = dict(files)
    for path in chosen(files, chance):
        if not isinstance(files[path], Link):
            damaged[path] = DENIED
    after = valid(pipeline.inspect(Held(damaged, made)))
    unturned(before, after)
    pairs_unturned(before, after)


@FUZZ
@given(name=st.sampled_from(MACHINES), chance=SEEDS)
def test_refused_folders_do_likewise(machines: Any, name: str, chance: random.Random) -> None:
    files, made, before = machines[name]
    damaged = dict(files)
    for path in chosen(files, chance, most=4):
        folder = path.rpartition("/")[0]
        damaged = {other: value for other, value in damaged.items() if not other.startswith(folder + "/")}
        damaged[folder] = DENIED
    after = valid(pipeline.inspect(Held(damaged, made)))
    unturned(before, after)
    pairs_unturned(before, after)


@FUZZ
@given(name=st.sampled_from(MACHINES), chance=SEEDS)
def test_pairs_without_files_of_their_functions(machines: Any, name: str, chance: random.Random) -> None:
    files, made, before = machines[name]
    damaged = dict(files)
    for path in chosen(files, chance, pattern=r"^/sys/(devices/pci|bus/pci/devices/)"):
        del damaged[path]
    pairs_unturned(before, valid(pipeline.inspect(Held(damaged, made))))


@FUZZ
@given(name=st.sampled_from(MACHINES), chance=SEEDS)
def test_pairs_without_some_bridge(machines: Any, name: str, chance: random.Random) -> None:
    files, made, before = machines[name]
    bridges = [device.address for device in before.pci.devices if device.secondary_bus is not None]
    gone = chance.sample(bridges, chance.randint(1, 3))
    damaged = {
        path: value
        for path, value in files.items()
        if path.rpartition("/")[2] not in gone and path.rpartition("/")[0].rpartition("/")[2] not in gone
    }
    pairs_unturned(before, valid(pipeline.inspect(Held(damaged, made))))


JUNK = (
    b"", b"\0" * 64, b"\xff\xfe\x80", b"-1\n", b"99999999999999999999999\n", b"0x\n", b"-0x10\n", b"nan\n", b"1e309\n",
    b"/\n", b"../../..\n", b"[]", b"{}", b"\x1b[2J", "\u0663\n".encode(), b" \n\n\n", b":" * 5000, b"1 " * 5000,
)  # fmt: skip


@settings(FUZZ, max_examples=30)
@given(name=st.sampled_from(MACHINES), tools=st.booleans(), chance=SEEDS)
def test_any_damage_ends_in_a_valid_document(machines: Any, name: str, tools: bool, chance: random.Random) -> None:
    files, made, _ = machines[name]
    damaged = dict(files)
    for path in chosen(files, chance, most=20):
        old = files[path]
        whole = old if isinstance(old, bytes) else b""
        cut = whole[: chance.randrange(len(whole) + 1)]
        swapped = [dict, DENIED, OSError(5, "Input/output error"), Link(path), Link("/sys"), Link("gone")]
        damaged[path] = chance.choice([chance.choice(JUNK), cut, whole * 2, chance.choice(swapped)])
    valid(pipeline.inspect(Held(damaged, made if tools else None)))

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path as File

import jsonschema
import msgspec
import pytest

from gdsctl import pipeline
from gdsctl.assess.assessment import assess
from gdsctl.cli import run
from gdsctl.diff.compare import MOST_VALUES, DiffReport, compare
from gdsctl.diff.state import Path, State, state
from gdsctl.model.node import Node, SourceInfo, Tool
from gdsctl.render import terminal
from gdsctl.render.diff_report import diff_report
from gdsctl.render.schemas import schema
from gdsctl.source.examples import list_examples
from gdsctl.source.opening import open_source
from tests.planned_nodes import changed, local

HGX, VM = "example:hgx-h100-vast", "example:vm-flattened"
TOOL = Tool(name="gdsctl", version="1")


def made(host: str | None, route: str = "nvidia-fs", ceiling: float | None = 25.0, **facts: str) -> State:
    paths = {"/m": {gpu: Path(route=route, ceiling_gbs=ceiling) for gpu in range(8)}}
    return State(host=host, paths=paths, findings={}, facts=facts)


def compared(*states: State) -> DiffReport:
    return compare([(f"{number}.tar", one) for number, one in enumerate(states)], TOOL)


def test_equal_nodes_are_one_group() -> None:
    report = compared(*(made(f"gpu{n:03d}") for n in range(1, 129)))
    assert report.verdict == "same"
    assert [group.nodes for group in report.groups] == ["gpu[001-128]"]
    assert report.cosmetic == ()


def test_the_largest_group_is_the_reference() -> None:
    report = compared(made("n1", "compat"), made("n2"), made("n3"), made("n4", ceiling=12.5))
    assert [(group.nodes, group.reference) for group in report.groups] == [
        ("n[2-3]", True),
        ("n1", False),
        ("n4", False),
    ]
    assert report.verdict == "drift"
    (route,), (ceiling,) = report.groups[1].differences, report.groups[2].differences
    assert (route.kind, route.subject, route.gpus, route.was, route.now) == (
        "route",
        "/m",
        tuple(range(8)),
        "nvidia-fs",
        "compat",
    )
    assert (ceiling.kind, ceiling.was, ceiling.now) == ("ceiling", "25 GB/s", "12.5 GB/s")
    text = terminal.plain(diff_report(report), 80)
    assert "route: GPUs 0-7 /m: was nvidia-fs, is compat" in text
    assert text.splitlines()[-1] == "DRIFT: 2 of 4 nodes differ from the rest, in 2 groups"


def test_what_could_not_be_told_is_no_drift() -> None:
    assert compared(made("n1"), made("n2"), made("n3", "unknown")).verdict == "unknown"
    assert compared(made("n1"), made("n2"), made("n3", ceiling=None)).verdict == "unknown"
    assert compared(made("n1"), made("n2", "unknown"), made("n3", "compat")).verdict == "drift"


def test_findings_are_drift() -> None:
    bad = msgspec.structs.replace(made("n3"), findings={"acs.redirect-on-path": 2})
    (difference,) = compared(made("n1"), made("n2"), bad).groups[1].differences
    assert (difference.kind, difference.subject, difference.was, difference.now) == (
        "finding",
        "acs.redirect-on-path",
        "not found",
        "2 found",
    )


def test_cosmetic_differences_stand_apart() -> None:
    report = compared(
        made("n1", uuid="a", kernel="5"), made("n2", uuid="b", kernel="5"), made("n3", uuid="a", kernel="5")
    )
    assert report.verdict == "same"
    (entry,) = report.cosmetic
    assert [(value.value, value.nodes, value.count) for value in entry.values] == [("a", "n[1,3]", 2), ("b", "n2", 1)]


def test_values_beyond_a_number_are_only_counted() -> None:
    (entry,) = compared(*(made(f"n{n}", uuid=str(n)) for n in range(100))).cosmetic
    assert len(entry.values) == MOST_VALUES
    assert entry.more == 100 - MOST_VALUES


def test_snapshots_of_one_host_are_told_by_path() -> None:
    report = compared(made("n1"), made("n1", "compat"))
    assert [group.nodes for group in report.groups] == ["0.tar", "1.tar"]
    assert [group.nodes for group in compared(made(None), made("n1", "compat")).groups] == ["0.tar", "1.tar"]


def renamed(node: Node) -> Node:
    """The same machine with other numbering and serials: nvme3 for nvme0, another UUID, another host name."""
    text = msgspec.json.encode(node).replace(b"nvme0", b"nvme3")
    twin = msgspec.json.decode(text, type=Node)
    gpus = tuple(msgspec.structs.replace(gpu, uuid="GPU-other") for gpu in twin.gpus)
    return changed(twin, gpus=gpus, source=SourceInfo(kind="snapshot", host="other"))


def test_numbering_and_serials_change_no_path() -> None:
    first, second = state(assess(local())), state(assess(renamed(local())))
    assert first.key == second.key
    report = compared(first, second)
    assert report.verdict == "same"
    assert {"GPU UUIDs", "NVMe numbering", "source of /mnt/nvme"} <= {entry.fact for entry in report.cosmetic}
    other = state(assess(local(hook="stock")))
    (route, finding) = compared(first, other).groups[1].differences
    assert (route.subject, route.was, route.now) == ("/mnt/nvme", "nvidia-fs", "compat")
    assert (finding.subject, finding.now) == ("nvme.unpatched", "1 found")


def test_command(capsys: pytest.CaptureFixture[str], tmp_path: File) -> None:
    assert run(["diff", HGX, HGX]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "SAME: all 2 nodes take the same paths"
    assert run(["diff", HGX, VM, "--format", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, schema("diff"))
    assert [group["nodes"] for group in document["groups"]] == ["hgx-01", "ndv4-0"]
    assert run(["diff", HGX]) == 2
    assert run(["diff", HGX, "/no/such"]) == 4


def test_many_in_processes(capsys: pytest.CaptureFixture[str], tmp_path: File) -> None:
    """Enough for worker processes; a broken archive among them is one line and exit 4."""
    tree = tmp_path / "tree" / "sys"
    tree.mkdir(parents=True)
    trees = [str(tmp_path / "tree")] * 9
    assert run(["diff", *trees]) == 0
    broken = tmp_path / "broken.tar"
    broken.write_bytes(b"x" * 2048)
    assert not tarfile.is_tarfile(broken)
    assert run(["diff", *trees, str(broken)]) == 4
    assert f"gdsctl: {broken}" in capsys.readouterr().err


def test_one_after_the_other_is_like_each_alone() -> None:
    """What one node's texts and trees gave is used again for the next; nothing of a node may stick to it."""
    names = [f"example:{example.name}" for example in list_examples()]
    first = {name: pipeline.inspect(open_source(name)) for name in names}
    again = {name: pipeline.inspect(open_source(name)) for name in reversed(names)}
    assert first == again


def test_memory_does_not_grow_with_the_number_of_nodes() -> None:
    """Peak memory of one process after a few snapshots and after ten times as many."""
    code = (
        "import resource, sys\n"
        "from gdsctl.pipeline import _state, tool\n"
        "from gdsctl.diff.compare import compare\n"
        "def peak(count):\n"
        "    compare(((str(number), _state(sys.argv[1])) for number in range(count)), tool())\n"
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "few = peak(5)\n"
        "print(few, peak(50))"
    )
    told = subprocess.run([sys.executable, "-c", code, VM], capture_output=True, text=True, check=True).stdout
    few, many = map(int, told.split())
    assert many - few < 4096  # KiB

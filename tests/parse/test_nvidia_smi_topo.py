from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdsctl.errors import InputError
from gdsctl.parse.nvidia_smi_topo import NvidiaSmiTopo, parse

PASTED = """\
\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV4\tPIX\t0-3\t0\t\tN/A
GPU1\tNV4\t X \tSYS\t4-7\t1\t\tN/A
NIC0\tPIX\tSYS\t X \t\t\t\t

NIC Legend:

  NIC0: mlx5_4
"""


def nulls(topo: NvidiaSmiTopo) -> set[tuple[str, str]]:
    return {(row, column) for row, cells in topo.matrix.items() for column, value in cells.items() if value is None}


def test_a_whole_matrix() -> None:
    topo = parse(PASTED)
    assert topo.devices == ("GPU0", "GPU1", "NIC0")
    assert topo.matrix == {
        "GPU0": {"GPU0": "X", "GPU1": "NV4", "NIC0": "PIX"},
        "GPU1": {"GPU0": "NV4", "GPU1": "X", "NIC0": "SYS"},
        "NIC0": {"GPU0": "PIX", "GPU1": "SYS", "NIC0": "X"},
    }
    assert topo.cpu_affinity == {"GPU0": "0-3", "GPU1": "4-7", "NIC0": None}
    assert topo.numa_affinity == {"GPU0": "0", "GPU1": "1", "NIC0": None}
    assert topo.gpu_numa_id == {"GPU0": "N/A", "GPU1": "N/A", "NIC0": None}
    assert topo.nic_legend == {"NIC0": "mlx5_4"}
    assert (topo.nvme_matrix, topo.truncated, topo.warnings) == (None, False, ())


def test_wrapped_and_glued(fixtures: Path) -> None:
    topo = parse((fixtures / "parse/nvidia_smi_topo/wrapped_and_glued.txt").read_text())
    assert topo.devices == ("GPU0", "GPU1", "NIC0", "NIC1")
    # Four classes for four columns, X under its own: PXBNODE can only be PXB and NODE.
    assert topo.matrix["GPU0"] == {"GPU0": "X", "GPU1": "NV6", "NIC0": "PXB", "NIC1": "NODE"}
    assert topo.matrix["GPU1"] == {"GPU0": "NV6", "GPU1": "X", "NIC0": "NODE", "NIC1": "PXB"}
    assert nulls(topo) == set()
    assert (topo.cpu_affinity["GPU0"], topo.numa_affinity["GPU0"]) == ("0-7,16-23", "0")
    assert topo.cpu_affinity["GPU1"] is None, "8-15,24- and 31 may be one value or two"
    assert topo.nic_legend == {"NIC0": "mlx5_3", "NIC1": "mlx5_bond_1"}
    assert {warned.line for warned in topo.warnings} == {3, 5}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("GPU1\tNV4\t X \tSYS\t4-7\t1\t\tN/A", {"GPU0": "NV4", "GPU1": "X", "NIC0": "SYS"}),
        ("GPU1\tNV4\t X \tSOC\t4-7\t1\t\tN/A", {"GPU0": "NV4", "GPU1": "X", "NIC0": "SYS"}),
        ("GPU1\tNV4\t X \tSYS4-7\t1\t\tN/A", {"GPU0": "NV4", "GPU1": "X", "NIC0": "SYS"}),
        # The last cell is lost: what follows X is not certain.
        ("GPU1\tNV4\t X \t4-7\t1\t\tN/A", {"GPU0": "NV4", "GPU1": "X", "NIC0": None}),
        # A cell emptied in its place: the tabs prove which.
        ("GPU1\t\t X \tSYS\t4-7\t1\t\tN/A", {"GPU0": None, "GPU1": "X", "NIC0": "SYS"}),
        # X in another's column, no X, a word that is no class.
        ("GPU1\t X \tNV4\tSYS\t4-7\t1\t\tN/A", {"GPU0": None, "GPU1": None, "NIC0": None}),
        ("GPU1\tNV4\tSYS\t4-7\t1\t\tN/A", {"GPU0": None, "GPU1": None, "NIC0": None}),
        ("GPU1\tNV4\t X \tSY\t4-7\t1\t\tN/A", {"GPU0": "NV4", "GPU1": "X", "NIC0": None}),
        # NV1 and CPUs 24-7, or NV12 and CPUs 4-7.
        ("GPU1\tNV4\t X \tNV124-7\t1\t\tN/A", {"GPU0": "NV4", "GPU1": "X", "NIC0": None}),
    ],
)
def test_rows(row: str, expected: dict[str, str | None]) -> None:
    topo = parse(PASTED.replace("GPU1\tNV4\t X \tSYS\t4-7\t1\t\tN/A", row))
    assert topo.matrix["GPU1"] == expected
    assert bool(topo.warnings) == (None in expected.values() or "SYS4" in row)
    assert topo.matrix["NIC0"] == {"GPU0": "PIX", "GPU1": "SYS", "NIC0": "X"}


def test_a_number_cut_by_the_end_is_not_believed() -> None:
    text = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV18\t0-3\nGPU1\tNV18\t X \t0-1"
    assert parse(text + "5\n").cpu_affinity == {"GPU0": "0-3", "GPU1": "0-15"}
    assert parse(text).cpu_affinity == {"GPU0": "0-3", "GPU1": None}


def test_of_two_matrices_the_last() -> None:
    topo = parse(PASTED + "\n" + PASTED.replace("PIX", "PHB"))
    assert topo.matrix["GPU0"]["NIC0"] == "PHB"
    assert [warned.line for warned in topo.warnings] == [10]


def test_rows_whose_header_is_lost() -> None:
    topo = parse(PASTED.split("\n", 1)[1])
    assert topo.devices == ("GPU0", "GPU1", "NIC0")
    assert topo.matrix["GPU0"] == {"GPU0": "X", "GPU1": "NV4", "NIC0": "PIX"}
    assert set(topo.cpu_affinity.values()) == {None}
    # One row after GPU1 and one cell after its X: the far end is certain, the cell before X has no column.
    assert parse(PASTED.split("\n", 2)[2]).matrix["GPU1"] == {"GPU1": "X", "NIC0": "SYS"}
    inner = "\n".join(line for line in PASTED.split("\n")[1:] if not line.startswith("GPU1"))
    assert parse(inner).matrix["GPU0"] == {"GPU0": "X", "NIC0": None}


@pytest.mark.parametrize(
    "text", ["", "\n", "GPU 0: Example (UUID: x)", "Legend:\n\n  X    = Self\n", "NIC0: mlx5_0\n", "\0"]
)
def test_not_topo(text: str) -> None:
    with pytest.raises(InputError):
        parse(text)


# file -> (devices, null cells, {(row, column): class}, (cpu, numa, gpu numa) of GPU0, NIC legend rows, truncated), read
# in the sample by eye.
SAMPLES: dict[str, tuple[Any, ...]] = {
    "01": (20, 0, {("GPU4", "mlx5_6"): "PXB", ("mlx5_11", "mlx5_10"): "PIX"}, ("48-63,176-191", "3", None), 0, False),
    "02": (18, 0, {("GPU7", "NIC6"): "PXB", ("NIC9", "NIC8"): "PIX"}, ("48-63,176-191", "3", None), 10, False),
    "04": (6, 0, {("GPU1", "mlx5_1"): "PHB", ("mlx5_0", "GPU3"): "PHB"}, ("24-31,56-63", "3", None), 0, False),
    "05": (10, 0, {("GPU0", "GPU7"): "NV2", ("GPU4", "GPU3"): "NV1"}, ("0-23,48-71", "0", None), 0, False),
    "07": (9, 0, {("GPU0", "mlx5_0"): "SYS", ("GPU3", "GPU4"): "PXB"}, ("0-13", None, None), 0, False),
    "08": (7, 0, {("GPU2", "GPU3"): "PHB", ("GPU6", "GPU5"): "PIX"}, ("0-19", None, None), 0, False),
    "09": (8, 0, {("GPU7", "GPU6"): "PHB", ("GPU7", "GPU7"): "X"}, ("0-15", None, None), 0, False),
    "10": (3, 0, {("GPU0", "GPU1"): "NV4", ("GPU0", "GPU2"): "NODE"}, ("0-31,64-95", "0", None), 0, False),
    "11": (2, 0, {("GPU0", "GPU1"): "NV4"}, ("0-23", "0", "N/A"), 0, False),
    "12": (5, 0, {("GPU3", "NIC0"): "PHB"}, ("0,64", "0-3", None), 0, True),
    "14": (5, 0, {("mlx5_0", "GPU1"): "NODE"}, ("0-23", "0", None), 0, False),
    "15": (5, 5, {("GPU3", "mlx5_0"): "PHB"}, ("48-63", "3", None), 0, True),
    "16": (6, 0, {("GPU1", "NIC3"): "PHB"}, ("0-13,28-41", "0", "N/A"), 0, True),
    "17": (2, 0, {("GPU0", "GPU1"): "NODE"}, ("28-55,84-111", "1", "N/A"), 0, False),
    "18": (5, 0, {("GPU0", "NIC0"): "SYS"}, ("32-63,96-127", "1", "N/A"), 1, False),
    "20": (4, 0, {("NIC1", "NIC0"): "PIX"}, ("56-111,168-223", "1", "N/A"), 2, False),
    "21": (1, 0, {("GPU0", "GPU0"): "X"}, ("0-19", "0", "N/A"), 0, False),
    "22": (1, 0, {("GPU0", "GPU0"): "X"}, ("0-7", "0", "N/A"), 0, False),
    "23": (2, 0, {("NIC0", "GPU0"): "PHB"}, ("0-251", "0", "N/A"), 1, False),
    "25": (6, 0, {("GPU5", "GPU4"): "PIX"}, ("0-23,48-71", "0", "N/A"), 0, False),
    "26": (44, 0, {("GPU0", "NIC35"): "PIX", ("NIC12", "NIC13"): "PIX"}, ("0-55,112-167", "0", "N/A"), 0, True),
    "27": (17, 0, {("GPU7", "NIC7"): "PIX", ("NIC8", "GPU0"): "NODE"}, ("0-47,96-143", "0", "N/A"), 9, False),
    "28": (5, 0, {("NIC3", "NIC2"): "PIX"}, ("0-71", "0", "1"), 4, False),
    "30": (10, 0, {("GPU6", "NIC1"): "PHB"}, ("0-55,112-167", "0", "N/A"), 0, True),
    "32": (18, 12 * 18, {("GPU5", "NIC5"): "PIX"}, ("0-55,112-167", "0", "N/A"), 0, True),
    "33": (14, 7 * 14, {("GPU6", "NIC2"): "PXB"}, ("24-31,88-95", "3", "N/A"), 0, True),
    "36": (5, 0, {("GPU3", "GPU4"): "PHB"}, ("8-15,24-31", "1", "N/A"), 0, False),
    "37": (11, 0, {("NIC9", "NIC1"): "PIX"}, ("0,2,4,6,8,10", "0", "N/A"), 10, False),
    "38": (6, 0, {("GPU0", "NIC3"): "PXB"}, ("32-63,96-127", "1", "N/A"), 5, False),
    "39": (1, 0, {("GPU0", "GPU0"): "X"}, ("0-7", "N/A", "N/A"), 0, False),
    "41": (2, 0, {("GPU0", "NIC0"): "PXB"}, ("0-31", "0", "N/A"), 1, False),
}


@pytest.mark.shared
@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_field_sample(shared: Path, name: str) -> None:
    devices, null_cells, cells, affinity, legend, truncated = SAMPLES[name]
    topo = parse((shared / "field/topo" / f"{name}.txt").read_text().split("# ---\n", 1)[1])
    assert len(topo.devices) == devices
    assert len(nulls(topo)) == null_cells
    assert {place: topo.matrix[place[0]][place[1]] for place in cells} == cells
    assert (topo.cpu_affinity["GPU0"], topo.numa_affinity["GPU0"], topo.gpu_numa_id["GPU0"]) == affinity
    assert (len(topo.nic_legend), topo.truncated) == (legend, truncated)
    # A path is the same from both ends.
    pairs = [(row, column) for row in topo.devices for column in topo.devices if topo.matrix[row][column]]
    assert [p for p in pairs if topo.matrix[p[1]][p[0]] not in (None, topo.matrix[p[0]][p[1]])] == []
    assert {topo.matrix[device][device] for device in devices_with_rows(topo)} == {"X"}


def devices_with_rows(topo: NvidiaSmiTopo) -> list[str]:
    return [device for device, cells in topo.matrix.items() if any(cells.values())]


@pytest.mark.shared
def test_second_matrix_of_nvme(shared: Path) -> None:
    topo = parse((shared / "field/topo/41.txt").read_text())
    assert topo.nvme_matrix == {"GPU0": {"NVMe0": "PIX", "NVMe1": "NODE", "NVMe2": "SYS"}}


@st.composite
def matrices(draw: st.DrawFn) -> tuple[dict[tuple[str, str], str], dict[str, str], list[str]]:
    """A symmetric matrix, the GPUs' CPU lists and the lines nvidia-smi would print, tab-separated."""
    gpus = [f"GPU{number}" for number in range(draw(st.integers(1, 5)))]
    devices = gpus + [f"NIC{number}" for number in range(draw(st.integers(0, 4)))]
    classes = st.sampled_from(["NV1", "NV18", "PIX", "PXB", "PHB", "NODE", "SYS"])
    truth: dict[tuple[str, str], str] = {}
    for place, row in enumerate(devices):
        truth[row, row] = "X"
        for column in devices[place + 1 :]:
            truth[row, column] = truth[column, row] = draw(classes)
    cpus = {gpu: draw(st.sampled_from(["0-7", "0-15,32-47", "8,40"])) for gpu in gpus}
    lines = ["\t" + "\t".join(devices) + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID"]
    for row in devices:
        cells = [" X " if row == column else truth[row, column] for column in devices]
        lines.append("\t".join([row, *cells, *((cpus[row], "0", "", "N/A") if row in cpus else ("",) * 4)]))
    lines += ["", "NIC Legend:", ""] + [f"  {name}: mlx5_{name[3:]}" for name in devices if name.startswith("NIC")]
    return truth, cpus, lines


DAMAGES: dict[str, Callable[[str], str]] = {
    "none": lambda line: line,
    "tabs to blanks": lambda line: line.expandtabs(8),
    "collapsed": lambda line: re.sub(r"[ \t]+", " ", line).strip(),
    "quoted": lambda line: "> " + line,
    "commented": lambda line: "# " + line,
    "coloured": lambda line: f"\x1b[4m{line}\x1b[0m",
}


@settings(max_examples=150, deadline=None)
@given(matrices(), st.sampled_from(sorted(DAMAGES)))
def test_pasting_changes_nothing(
    case: tuple[dict[tuple[str, str], str], dict[str, str], list[str]], damage: str
) -> None:
    truth, cpus, lines = case
    topo = parse("\n".join(DAMAGES[damage](line) for line in lines) + "\n")
    assert {(row, column): value for row, cells in topo.matrix.items() for column, value in cells.items()} == truth
    assert {row: value for row, value in topo.cpu_affinity.items() if value} == cpus
    assert (topo.truncated, topo.warnings) == (False, ())


@settings(max_examples=300, deadline=None)
@given(matrices(), st.sampled_from(sorted(DAMAGES)), st.data())
def test_damage_loses_cells_but_moves_none(
    case: tuple[dict[tuple[str, str], str], dict[str, str], list[str]], damage: str, data: st.DataObject
) -> None:
    truth, cpus, lines = case
    text = "\n".join(DAMAGES[damage](line) for line in lines) + "\n"
    kind = data.draw(st.sampled_from(["cut", "row", "word", "wrap", "glue"]))
    if kind == "cut":
        text = text[: data.draw(st.integers(0, len(text)))]
    elif kind == "row":
        rows = text.splitlines(keepends=True)
        del rows[data.draw(st.integers(1, len(rows) - 1))]
        text = "".join(rows)
    elif kind == "wrap":
        width = data.draw(st.integers(20, 100))
        text = "\n".join(
            line[at : at + width] for line in text.split("\n") for at in range(0, max(len(line), 1), width)
        )
    else:
        body = text.index("\n") + 1
        found = list(re.finditer(r"(?<=\S)[ \t]+(?=\S)" if kind == "glue" else r"(?<=[ \t])\S+[ \t]*", text[body:]))
        hit = found[data.draw(st.integers(0, len(found) - 1))]
        text = text[: body + hit.start()] + text[body + hit.end() :]
    try:
        topo = parse(text)
    except InputError:
        return
    for row, cells in topo.matrix.items():
        for column, value in cells.items():
            assert value is None or truth.get((row, column)) == value, (kind, text)
    assert {row: value for row, value in topo.cpu_affinity.items() if value}.items() <= cpus.items(), (kind, text)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.sampled_from([*PASTED.splitlines(keepends=True), "GPU0", "\t", " X ", "\n", "\ud800", "0-3"]), max_size=25
    )
)
def test_never_another_exception(parts: list[str]) -> None:
    try:
        topo = parse("".join(parts))
    except InputError:
        return
    msgspec.json.encode(topo)

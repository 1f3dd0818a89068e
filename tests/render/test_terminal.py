"""The inspect report in lines: what is folded, and that no line runs over."""

from __future__ import annotations

import pytest

from gdsctl import pipeline
from gdsctl.render import terminal
from gdsctl.source import examples
from gdsctl.source.opening import open_source


def report(example: str, width: int) -> list[str]:
    found = pipeline.inspect(open_source(f"example:{example}"))
    return terminal.plain(terminal.inspect_report(found), width).splitlines()


@pytest.mark.parametrize("example", [row.name for row in examples.list_examples()])
def test_lines_fit_and_name_every_gpu(example: str) -> None:
    lines = report(example, 80)
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in "".join(lines)
    assert "GPUs" in lines
    assert lines.index("GPUs") < lines.index("Will the bytes go direct?")


def test_the_same_fact_of_several_functions_is_told_once() -> None:
    """vm-flattened: 31 functions, of which 11 have a NUMA node."""
    lines = report("vm-flattened", 100)
    unknown = lines[lines.index("Not known") :]
    assert len([line for line in unknown if "numa_node" in line]) == 1
    assert any(line.startswith("/pci/devices/*/numa_node (20)") for line in unknown)

"""The inspect report in lines: what is folded, and that no line runs over."""

from __future__ import annotations

import pytest

from gdsctl import pipeline
from gdsctl.assess.assessment import assess
from gdsctl.model.node import Node
from gdsctl.render import terminal
from gdsctl.source import examples
from gdsctl.source.opening import open_source
from tests.assess.rules.nodes import across_host_bridges, but, healthy


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


def iommu_and_acs(node: Node) -> str:
    text = terminal.plain(terminal.inspect_report(pipeline.report(assess(node))))
    return " ".join(text.partition("IOMMU and ACS")[2].partition("NVIDIA driver")[0].split())


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "redirects (4 pairs)"),
        ({"gpus": ()}, "no GPU is known"),
        ({"nvme": (), "nics": (), "mounts": ()}, "no drive or NIC on PCI is known"),
        ({"platform.virtualization": "kvm"}, "the host's IOMMU and the ACS of the host's ports"),
    ],
)
def test_nothing_is_given_the_all_clear_that_nobody_could_see(changes: dict[str, object], told: str) -> None:
    assert told in iommu_and_acs(but(healthy(), changes))
    assert ("no port between" in iommu_and_acs(but(healthy(), changes))) is (
        "gpus" not in changes and "nvme" not in changes
    )


def test_devices_on_root_ports_of_their_own_have_no_port_between() -> None:
    assert "there is no port between them to judge" in iommu_and_acs(across_host_bridges(healthy()))

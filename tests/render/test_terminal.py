"""The inspect report in lines: what is folded, and that no line runs over."""

from __future__ import annotations

import re

import pytest
from rich.console import Group
from rich.text import Text

from gdsctl import pipeline
from gdsctl.assess.assessment import assess
from gdsctl.model.node import Node
from gdsctl.plan.intent import Intent, Wanted
from gdsctl.render import terminal
from gdsctl.render.layout import Columns, Line
from gdsctl.render.plan_report import plan_report
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


def names(text: str) -> set[str]:
    """Addresses, paths, ids, versions, options: words that are none of a language."""
    found = {word.rstrip(":") for word in re.split(r"[\s,]+", text)}
    return {word for word in found if re.search(r"[/.:=_]|\d\d", word)}


@pytest.mark.parametrize("width", [80, 60, 45])
@pytest.mark.parametrize("example", [row.name for row in examples.list_examples()])
def test_no_word_is_broken(example: str, width: int) -> None:
    """What stands whole on a wide page, an address or a path or a finding's id, stands whole on a narrow one."""
    source = open_source(f"example:{example}")
    planned = plan_report(pipeline.plan(source, Wanted(intent=Intent()), mode="auto", kinds=[]), verbose=True)
    inspected = terminal.inspect_report(pipeline.inspect(source), verbose=True)
    for body in (planned, inspected):
        narrow = terminal.plain(body, width)
        assert names(terminal.plain(body, 1000)) <= names(narrow)


def test_commands_of_a_plan_are_one_line_each() -> None:
    """Pasted from a terminal of 60 columns or from a pipe, a line is the command."""
    report = pipeline.plan(open_source("example:pcie-nvme-raid"), Wanted(intent=Intent()), mode="auto", kinds=[])
    lines = {line.strip() for line in terminal.plain(plan_report(report, verbose=True), 60).splitlines()}
    for step in report.steps:
        assert {*step.commands, *step.check, *step.undo} <= lines
    assert any(len(command) > 60 for step in report.steps for command in step.commands)


def test_the_unmet_name_their_gpus() -> None:
    report = pipeline.plan(open_source("example:pcie-nvme-raid"), Wanted(intent=Intent()), mode="auto", kinds=[])
    shown = terminal.plain(plan_report(report), 200)
    assert "! /mnt/raid (GPU 0-3): wanted direct-or-routed" in shown


def test_columns_that_have_no_room_become_lines() -> None:
    table = Columns("path", "why", "options", lists=("options",))
    table.add("/a/rather/long/path", "for a reason in words", "first=1,second=22,third=333")
    assert terminal.plain(table, 80) == (
        "path                 why                    options\n"
        "/a/rather/long/path  for a reason in words  first=1,second=22,third=333\n"
    )
    assert terminal.plain(table, 45).splitlines() == [
        "path                 why          options",
        "/a/rather/long/path  for a        first=1,",
        "                     reason in    second=22,",
        "                     words        third=333",
    ]
    assert terminal.plain(table, 28).splitlines() == [
        "path                 why",
        "/a/rather/long/path  for a",
        "                     reason",
        "                     in",
        "                     words",
        "  first=1,second=22,",
        "  third=333",
    ]
    assert terminal.plain(table, 12).splitlines()[:2] == ["/a/rather/long/path", "  why: for a"]


def test_a_line_that_is_whole_is_not_cut() -> None:
    body = Group(Text("some words of which /one/is/rather/long/for/the/page"), Line("x" * 50, indent=2, whole=True))
    assert terminal.plain(body, 20).splitlines() == [
        "some words of which",
        "/one/is/rather/long/for/the/page",
        "  " + "x" * 50,
    ]


def test_the_same_fact_of_several_functions_is_told_once() -> None:
    """vm-flattened: 31 functions, of which 11 have a NUMA node."""
    lines = report("vm-flattened", 100)
    unknown = lines[lines.index("Not known") :]
    assert len([line for line in unknown if line.startswith("/") and "numa_node" in line]) == 1
    assert any(line.startswith("/pci/devices/*/numa_node (20): ") for line in unknown)


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

"""Which port an entry names and which entry the kernel follows; expected values worked out from drivers/pci/pci.c."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdsctl.assess import acs_parameters
from gdsctl.model.pci import PciDevice
from gdsctl.model.topology import Topology

ROOT, UP, DOWN = "0000:20:00.0", "0000:21:00.0", "0000:22:1c.3"
REDIRECTION = {"ReqRedir", "CmpltRedir", "EgressCtrl"}
DEVICES = {
    device.address: device
    for device in (
        PciDevice(address=ROOT, vendor_id="1b36", device_id="000c"),
        PciDevice(address=UP, parent=ROOT, vendor_id="1000", device_id="c010"),
        PciDevice(
            address=DOWN,
            parent=UP,
            vendor_id="1000",
            device_id="c010",
            subsystem_vendor_id="1000",
            subsystem_device_id="a064",
        ),
    )
}
TOPOLOGY = Topology(DEVICES.values())


def asked(cmdline: str, port: str) -> list[tuple[str, bool]]:
    found = acs_parameters.entries(f"ro {cmdline}")
    return [(entry.text, not entry.void) for entry in acs_parameters.asked(found, DEVICES[port], TOPOLOGY)]


@pytest.mark.parametrize(
    ("where", "ports"),
    [
        ("0000:20:00.0", {ROOT}),
        ("20:00.0", {ROOT}),  # no domain is domain 0
        ("0001:20:00.0", set()),
        ("20:0.0", {ROOT}),  # the kernel reads numbers
        ("20:00.0/00.0", {UP}),
        ("20:00.0/0.0", {UP}),
        ("20:00.0/00.0/1c.3", {DOWN}),
        ("20:00.0/1c.3", set()),  # a step is missing
        ("21:00.0/1c.3", {DOWN}),
        ("pci:1000:c010", {UP, DOWN}),
        ("pci:0:0", {ROOT, UP, DOWN}),
        ("pci:1b36:0", {ROOT}),
        ("pci:1000:c010:1000:a064", {DOWN}),
        ("pci:1000:C010:0:A064", {DOWN}),
    ],
)
def test_who_is_named(where, ports):
    for port in DEVICES:
        assert bool(asked(f"pci=disable_acs_redir={where}", port)) == (port in ports), port


def test_disable_clears_the_redirecting_bits():
    assert acs_parameters.entries("ro pci=disable_acs_redir=20:00.0")[0].off == REDIRECTION


@pytest.mark.parametrize(
    ("flags", "off"),
    [
        ("xx000x0", {"SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd"}),  # bits 6..0: DT EC UF CR RR TB SV
        ("10x", {"TransBlk"}),
        ("0xx1xxx", {"DirectTrans"}),
        ("x0X", {"TransBlk"}),
        ("xxx", set()),
        ("x0xxxxx", {"EgressCtrl"}),
    ],
)
def test_flags_of_config_acs(flags, off):
    (entry,) = acs_parameters.entries(f"ro pci=config_acs={flags}@20:00.0")
    assert entry.off == off
    assert not entry.void


def test_the_last_of_a_parameter_counts():
    both = "pci=disable_acs_redir=20:00.0 pci=noaer,disable_acs_redir=21:00.0"
    assert asked(both, ROOT) == [("20:00.0", False)]
    assert asked(both, UP) == [("21:00.0", True)]


def test_an_unreadable_entry_ends_the_search():
    line = 'pci="disable_acs_redir=20:00.0;21.00.0;22:1c.3"'
    assert asked(line, ROOT) == [("20:00.0", True)]
    assert asked(line, DOWN) == [("22:1c.3", False)]
    entries = acs_parameters.entries(f"ro {line}")
    assert entries[2].void == "the kernel stops at '21.00.0', which it cannot read"


@pytest.mark.parametrize("broken", ["20:00.0", "2@20:00.0", "1xxxxxxx@20:00.0", "xx0@", "xx0@pci:1000"])
def test_unreadable_entries_of_config_acs(broken):
    assert asked(f'pci="config_acs={broken};xx0xx@22:1c.3"', DOWN) == [("xx0xx@22:1c.3", False)]


def test_the_first_entry_that_names_a_function_decides():
    line = 'pci="config_acs=xx1xx@22:1c.3;xx0xx@pci:1000:c010"'
    assert asked(line, DOWN) == [("xx1xx@22:1c.3", True), ("xx0xx@pci:1000:c010", False)]
    assert asked(line, UP) == [("xx0xx@pci:1000:c010", True)]


def test_config_acs_beats_disable_acs_redir():
    line = "pci=config_acs=xxxxxx1@pci:0:0,disable_acs_redir=20:00.0"
    assert asked(line, ROOT) == [("20:00.0", False), ("xxxxxx1@pci:0:0", True)]
    (disable, _) = acs_parameters.asked(acs_parameters.entries(f"ro {line}"), DEVICES[ROOT], TOPOLOGY)
    assert disable.void == "config_acs=xxxxxx1@pci:0:0 decides"


def test_no_command_line_asks_nothing():
    assert acs_parameters.entries("") == ()
    assert acs_parameters.entries("ro quiet pci=noaer") == ()


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet='0123456789abcdefx:./;,@=p ci"', max_size=60))
def test_any_text_is_borne(text):
    for entry in acs_parameters.entries(f"ro pci=disable_acs_redir={text} pci=config_acs={text}"):
        for device in DEVICES.values():
            assert acs_parameters.names(entry, device, TOPOLOGY) in (True, False)

"""acs.cmdline-not-effective: which port it names and what it says, on a node whose first GPU's port redirects.

The port has SrcValid, ReqRedir, CmpltRedir and UpstreamFwd on.
"""

from __future__ import annotations

import pytest

from gdsctl.assess.assessment import assess
from gdsctl.model.judgement import Finding
from gdsctl.model.pci import Acs
from tests.assess.rules.nodes import DISK, PORT0, but, function, healthy, redirecting

BUS, _, SLOT = PORT0.rpartition(":")
UP = f"{BUS.rpartition(':')[0]}:{int(BUS.rpartition(':')[2], 16) - 1:02x}:00.0"  # upstream port, bus above


def findings(cmdline: str) -> list[Finding]:
    node = but(redirecting(healthy(), PORT0), {"platform.cmdline": f"ro {cmdline}"})
    return [f for f in assess(node).findings if f.id == "acs.cmdline-not-effective"]


@pytest.mark.parametrize(
    "cmdline",
    [
        f"pci=disable_acs_redir={PORT0}",
        f"pci=disable_acs_redir={PORT0.removeprefix('0000:')}",
        f'pci="disable_acs_redir={DISK};{PORT0}"',
        f"pci=noaer,disable_acs_redir={UP}/{SLOT}",
        "pci=disable_acs_redir=pci:10b5:8796",
        f"pci=config_acs=0xx@{PORT0}",
        f"pci=config_acs=xxx1000@{PORT0}",
    ],
)
def test_a_named_port_that_redirects_all_the_same(cmdline):
    (found,) = findings(cmdline)
    assert found.subject == PORT0
    assert found.message.endswith("and yet it is on")


@pytest.mark.parametrize(
    "cmdline",
    [
        "",
        "pci=noaer",
        f"pci=disable_acs_redir={DISK}",
        f"pci=disable_acs_redir={UP}/1f.7",
        "pci=disable_acs_redir=pci:10b5:8797",
        f"pci=config_acs=xxxx0@{PORT0[:-1]}7",
        f"pci=config_acs=xxx1xxx@{PORT0}",  # asks for CmpltRedir on, and nothing off
        f"pci=config_acs=x0xxxxx@{PORT0}",  # EgressCtrl off, and it is off
        f"pci=config_acs=0xxxx0x@{PORT0}",  # neither DirectTrans nor TransBlk redirects
    ],
)
def test_nothing_was_asked_of_the_port(cmdline):
    assert findings(cmdline) == []


@pytest.mark.parametrize(
    ("cmdline", "reason"),
    [
        (f'pci="disable_acs_redir=oops;{PORT0}"', "the kernel stops at 'oops', which it cannot read"),
        (f"pci=disable_acs_redir={PORT0} pci=disable_acs_redir={DISK}", "a later disable_acs_redir= replaces it"),
        (
            f"pci=disable_acs_redir={PORT0},config_acs=xxx11x1@{PORT0}",
            f"config_acs=xxx11x1@{PORT0} decides",
        ),
    ],
)
def test_why_the_kernel_took_no_notice(cmdline, reason):
    (found,) = findings(cmdline)
    assert found.message.endswith(reason)


def test_evidence_names_the_entry_and_the_bits():
    (found,) = findings(f"pci=config_acs=x0xx@{PORT0}")
    told = {evidence.fact: evidence.value for evidence in found.evidence}
    assert told["pci=config_acs="] == f"x0xx@{PORT0}"
    assert told[f"{PORT0}, bits still on"] == "ReqRedir"


def test_a_port_that_is_not_readable_is_not_accused():
    dark = {"platform.cmdline": f"ro pci=disable_acs_redir={PORT0}", f"{function(PORT0)}.acs": Acs()}
    found = {finding.id for finding in assess(but(healthy(), dark)).findings}
    assert "acs.unreadable" in found
    assert "acs.cmdline-not-effective" not in found

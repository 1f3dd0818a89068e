"""LNet's interfaces for Lustre mounts with named NICs. Syntax: Lustre Operations Manual, Configuring LNet; lnetctl(8)."""

from __future__ import annotations

import subprocess

import msgspec
import pytest

from gdsctl import emit
from gdsctl.assess.assessment import assess
from gdsctl.model.devices import LnetNi, LnetOption
from gdsctl.model.node import Node
from gdsctl.model.software import Module
from gdsctl.model.unknown import Gap
from gdsctl.plan.desired import Plan, plan
from gdsctl.plan.documents import Step
from tests.planned_nodes import changed, example, wanted

# Of the example: mlx5_2 is ens29np0, 172.16.1.41; mlx5_7 has 172.16.1.42.
NIC = "mounts: [{target: /s, type: lustre, source: '172.16.1.9@o2ib:/fs', nics: [mlx5_2]}]"
ADD = r"lnetctl net show --net o2ib | grep -qE ': ens29np0(\[|$)' || lnetctl net add --net o2ib --if ens29np0"


def node(*, loaded: bool = False, **fields: object) -> Node:
    base = example("hgx-h100-vast").node
    modules = {**base.modules, "lnet": Module(loaded=loaded)}
    return changed(base, modules=modules, **{"lnet": None, "lnet_options": (), **fields})


def made(subject: Node, text: str = NIC) -> Plan:
    return plan(assess(subject), wanted(text))


def lnet_steps(found: Plan) -> list[Step]:
    return [step for step in found.steps if step.what.startswith("Have LNet use ")]


def own(net: str = "o2ib", address: str = "172.16.1.41") -> LnetNi:
    return LnetNi(nid=f"{address}@{net}", net=net, up=True)


def nic_unmet(found: Plan) -> list[str]:
    return [unmet.because for unmet in found.unmet if "nics" in unmet.because]


def test_the_named_nic_is_added_before_the_mount() -> None:
    found = made(node())
    (step,) = lnet_steps(found)
    assert step.commands[:3] == ("modprobe lnet", "lnetctl lnet configure", ADD)
    assert step.commands[3].endswith("&& lnetctl export --backup > /etc/lnet.conf")
    assert step.commands[4] == "systemctl enable lnet.service"
    assert step.undo[0] == "lnetctl net del --net o2ib --if ens29np0"
    assert "/etc/lnet.conf.before-gdsctl" in step.undo[1]
    assert step.check == ("lnetctl net show", "lnetctl ping 172.16.1.9@o2ib")
    assert step.order < next(s.order for s in found.steps if s.what.startswith("Mount /s"))
    # lnet.service passes over its work where modules-load.d has loaded lnet before.
    assert not any("modules-load.d" in command and "lnet" in command for s in found.steps for command in s.commands)
    assert "x-systemd.requires=lnet.service" in emit.EMITTERS["fstab"].emit(found).content
    unit = emit.EMITTERS["systemd-mount"].emit(found).content.splitlines()
    assert {"After=lnet.service", "Requires=lnet.service"} <= set(unit)


def test_the_plan_is_judged_with_the_interface() -> None:
    found = made(node())
    assert found.node_after.lnet == (LnetNi(nid="172.16.1.41@o2ib", net="o2ib", up=True, interfaces=("ens29np0",)),)
    (mount,) = [m for m in found.node_after.mounts if m.target == "/s"]
    assert mount.backing.nics == ("mlx5_2",)
    assert nic_unmet(found) == []
    assert found.cufile.values["fs"]["lustre"]["rdma_dev_addr_list"] == ["172.16.1.41"]


def test_what_lnet_uses_already_is_no_step() -> None:
    assert lnet_steps(made(node(loaded=True, lnet=(own(),)))) == []
    assert len(lnet_steps(made(node(loaded=True, lnet=(own("tcp"),))))) == 1


def test_interfaces_of_others_stay() -> None:
    """Another NIC on the network carries the mount too, whatever is added: unmet, and nothing is taken away."""
    found = made(node(loaded=True, lnet=(own(address="172.16.1.42"),)))
    assert lnet_steps(found) == []
    assert len(nic_unmet(found)) == 1


def test_lnet_that_runs_and_was_not_read_is_asked_first() -> None:
    """The step adds nothing twice; which NICs else the network has only lnetctl tells."""
    found = made(node(loaded=True))
    (step,) = lnet_steps(found)
    for shown, expected in (("0: ens29np0", ""), ("0: ens29np0[0,1]", ""), ("0: ens29np01", "add"), ("", "add")):
        stub = f'lnetctl() {{ if test "$2" = show; then echo "{shown}"; else echo "$2"; fi; }}; '
        ran = subprocess.run(["sh", "-c", stub + step.commands[2]], capture_output=True, text=True, check=True)
        assert ran.stdout.strip() == expected, shown
    (unmet,) = [u for u in found.unmet if u.requirement == "mount:/s"]
    assert (unmet.status, unmet.settle_with) == ("unknown", "lnetctl net show")


@pytest.mark.parametrize(
    ("name", "value", "said", "met"),
    [
        ("networks", "tcp0(eth0),o2ib0(ens29np0)", "brings up the NICs that the intent names", True),
        ("networks", "o2ib(ib9)", "configures LNet: have o2ib on ens29np0 there", False),
        ("networks", "o2ib", "configures LNet", False),
        ("ip2nets", "o2ib 172.16.*.*", "configures LNet", False),
    ],
)
def test_options_of_the_module_are_left_to_the_operator(name: str, value: str, said: str, met: bool) -> None:
    options = (LnetOption(name=name, value=value, place="/etc/modprobe.d/lustre.conf:1"),)
    found = made(node(lnet_options=options))
    assert lnet_steps(found) == []
    (note,) = [note for note in found.notes if "no lnetctl step" in note]
    assert f"{name}={value} in /etc/modprobe.d/lustre.conf:1" in note
    assert said in note
    assert bool(nic_unmet(found)) is not met


def test_modprobe_that_was_not_read_is_told() -> None:
    found = made(node(lnet_options=None))
    assert len(lnet_steps(found)) == 1
    assert any("whether modprobe.d configures LNet is not known" in note for note in found.notes)


def test_other_options_of_lnet_do_not_decide() -> None:
    assert len(lnet_steps(made(node(lnet_options=(LnetOption(name="lnet_numa_range", value="0", place="x:1"),))))) == 1


def test_two_networks_are_the_operators_choice() -> None:
    found = made(node(), NIC.replace("@o2ib:", "@o2ib,172.16.2.9@o2ib1:"))
    assert lnet_steps(found) == []
    assert any("names 2 LNet networks" in note for note in found.notes)
    assert nic_unmet(found)


def test_two_nics_on_one_network_and_no_nic_named() -> None:
    (step,) = lnet_steps(made(node(), NIC.replace("[mlx5_2]", "[mlx5_2, mlx5_7]")))
    assert sum("lnetctl net add --net o2ib --if " in command for command in step.commands) == 2
    assert lnet_steps(made(node(), NIC.replace(", nics: [mlx5_2]", ""))) == []
    assert lnet_steps(made(node(), NIC.replace("o2ib", "kfi"))) == []


def test_a_plan_carried_out_asks_for_nothing_more() -> None:
    found = made(node())
    after = found.node_after
    after = msgspec.structs.replace(after, modules={**after.modules, "lnet": Module(loaded=True)})
    assert lnet_steps(made(after)) == []


def test_an_undecided_plan_has_no_step() -> None:
    """Which GPUs there are is not known, so the plan says that it plans no step: neither for LNet nor for the mount."""
    gaps = tuple(
        Gap(section=a, field=b, reason="absent", settle_with="lspci") for a, b in (("gpus", ""), ("pci", "devices"))
    )
    found = made(node(gpus=(), gaps=gaps))
    assert (found.mode, found.steps) == ("undecided", ())


def test_a_nic_whose_address_was_not_read_is_told() -> None:
    base = node()
    nics = tuple(msgspec.structs.replace(nic, ipv4=()) if nic.rdma_device == "mlx5_2" else nic for nic in base.nics)
    gaps = (*base.gaps, Gap(section="nics", field="ipv4", reason="absent", settle_with="ip addr"))
    found = made(changed(base, nics=nics, gaps=gaps))
    assert lnet_steps(found) == []
    assert any("the interface and address of mlx5_2 are not known" in note for note in found.notes)

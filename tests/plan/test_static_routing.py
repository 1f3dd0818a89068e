"""When a static routing file is planned: a NIC at the GPU's host bridge and one at another of the same NUMA node."""

from __future__ import annotations

import json

import msgspec
import pytest

from gdsctl import emit
from gdsctl.assess.assessment import assess
from gdsctl.assess.static_routing import lint
from gdsctl.model.devices import Backing, Mount
from gdsctl.model.node import Node, Numa, NumaNode
from gdsctl.model.software import CufileConfig, Gds
from gdsctl.plan.desired import Plan, plan
from tests.builders import Machine
from tests.planned_nodes import changed, wanted

ON = {"miscellaneous": {"enable_static_routing": True, "static_routing_filepath": "/etc/topology.json"}}


def machine(*, apart: bool = True) -> Machine:
    """One GPU; a NIC on another port of its host bridge, and one at the next host bridge (or at the same)."""
    made = Machine()
    first = made.root("0000:10", numa=0)
    second = made.root("0000:40", numa=0) if apart else first
    made.gpu(made.root_port(first))
    made.nic(made.root_port(second))
    made.nic(made.root_port(first))
    made.nvme(made.root_port(first))
    return made


def node(
    made: Machine, *, version: str = "1.20.0", socket: int | None = 0, texts: dict[str, str] | None = None
) -> Node:
    found = made.node()
    names = tuple(f"mlx5_{at}" for at in range(len(found.nics)))
    nics = tuple(
        msgspec.structs.replace(nic, rdma_device=name, ipv4=(f"10.0.0.{number}",))
        for number, (nic, name) in enumerate(zip(found.nics, names, strict=True), 2)
    )
    mount = Mount(
        target="/kv",
        source="10.0.0.1:/kv",
        fstype="nfs",
        options=("rw", "vers=3", "proto=rdma", "port=20049"),
        backing=Backing(kind="nfs", transport="rdma", nics=names, server="10.0.0.1"),
    )
    texts = {"/etc/cufile.json": "{}"} if texts is None else texts
    return changed(
        found,
        nics=nics,
        mounts=(mount,),
        numa=Numa(nodes=(NumaNode(id=0, socket=socket), NumaNode(id=1, socket=1))),
        gds=Gds(version=version, cufile_config=CufileConfig(files=tuple(texts), texts=texts)),
    )


def made_for(subject: Node, text: str | None = "mounts: [{target: /kv}]") -> Plan:
    return plan(assess(subject), wanted(text), "nvidia-fs")


def test_the_near_nic_comes_first() -> None:
    found = made_for(node(machine()))
    assert found.cufile.values["miscellaneous"] == ON["miscellaneous"]
    assert "at unlike distances from GPU 0" in found.cufile.static.why
    artifact = emit.EMITTERS["static-routing"].emit(found)
    assert artifact.path == "/etc/topology.json"
    rows = json.loads(artifact.content)
    (near, far) = ("mlx5_1", "mlx5_0")
    assert rows["GPU0"]["preferences"][0]["devices"] == [near]
    assert rows["GPU0"]["preferences"][-1]["devices"] == [far]
    # Three ports of one host bridge and one of the other: no two share a root port.
    assert sorted(row["pcie_group"] for row in rows.values()) == [0, 1, 2, 3]
    assert {row["type"] for row in rows.values()} == {"GPU", "NET", "NVME"}
    assert lint("t", artifact.content, node=found.node) == ()
    assert any("topology.json" in command for step in found.steps for command in step.commands)


def test_near_misses() -> None:
    assert not made_for(node(machine(apart=False))).cufile.static.needed
    assert "miscellaneous" not in plan(assess(node(machine())), wanted("mode: compat"), "compat").cufile.values
    staged = made_for(node(machine()), "mounts: [{target: /kv}]\nrouting: [SYS_MEM]")
    assert not staged.cufile.static.needed
    one = made_for(node(machine()), "mounts: [{target: /kv, nics: [mlx5_1]}]")
    assert not one.cufile.static.needed


@pytest.mark.parametrize(
    ("version", "socket", "words"), [("1.16.1", 0, "from GDS 1.17 on"), ("1.20.0", None, "the socket of GPU0")]
)
def test_what_stands_against_it_is_told(version: str, socket: int | None, words: str) -> None:
    found = made_for(node(machine(), version=version, socket=socket))
    assert "miscellaneous" not in found.cufile.values
    assert any(words in note for note in found.notes)


def test_what_is_not_known_is_named_in_the_artifact() -> None:
    content = emit.EMITTERS["static-routing"].emit(made_for(node(machine(), socket=None))).content
    assert content.startswith("// not written: the socket of GPU0")
    assert content.endswith("\n{}\n")


def test_a_node_that_has_it_needs_no_step() -> None:
    first = made_for(node(machine()))
    config = first.node_after.gds.cufile_config
    there = changed(first.node, gds=msgspec.structs.replace(first.node.gds, cufile_config=config))
    assert config.static_routing == first.cufile.static.text
    assert not [step for step in made_for(there).steps if "Install" in step.what]
    moved = msgspec.structs.replace(config, static_routing=first.cufile.static.text.replace("mlx5_1", "mlx5_7"))
    other = made_for(changed(first.node, gds=msgspec.structs.replace(first.node.gds, cufile_config=moved)))
    assert [step.what.partition(":")[0] for step in other.steps if "Install" in step.what] == [
        "Install /etc/topology.json"
    ]


def test_functions_of_a_bond_have_names_of_their_own() -> None:
    subject = node(machine())
    bonded = changed(
        subject, nics=tuple(msgspec.structs.replace(nic, rdma_device="mlx5_bond_0") for nic in subject.nics)
    )
    rows = made_for(bonded).cufile.static.devices
    assert len([row for row in rows.values() if row["type"] == "NET"]) == 2

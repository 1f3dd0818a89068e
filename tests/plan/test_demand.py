from __future__ import annotations

import msgspec
import pytest

from gdsctl.assess.assessment import assess
from gdsctl.assess.rules import ids
from gdsctl.data.profiles import facts, profiles
from gdsctl.errors import UsageError
from gdsctl.model.node import Node
from gdsctl.model.unknown import Gap
from gdsctl.plan import demand
from gdsctl.plan.demand import FactDemand, FreeOf, PathDemand
from gdsctl.plan.verify import verify
from tests.planned_nodes import GPU, changed, local, unknown, wanted


def judged(node: Node, *texts: str) -> list[tuple[str, str, str]]:
    found = demand.judge(assess(node), [demand.read(text) for text in texts])
    return [(one.id, one.subject, one.status) for one in found]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("direct:/mnt/nvme", PathDemand(path="direct", mount="/mnt/nvme")),
        ("compat:/mnt/a=b/", PathDemand(path="compat", mount="/mnt/a=b")),
        ("p2pdma:@nvme,md", PathDemand(path="p2pdma", kinds=("nvme", "md"))),
        ("any:/", PathDemand(path="any", mount="/")),
        ("driver.kind=open", FactDemand(name="driver.kind", operator="=", value="open")),
        ("nvidia-fs.version>=2.20", FactDemand(name="nvidia-fs.version", operator=">=", value="2.20")),
        ("iommu.state!=translated", FactDemand(name="iommu.state", operator="!=", value="translated")),
        ("no:fs.overlay", FreeOf(finding="fs.overlay")),
    ],
)
def test_grammar(text: str, meant: object) -> None:
    assert demand.read(text) == meant


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "wanted PATH:MOUNT"),
        ("direct", "wanted PATH:MOUNT"),
        ("dirct:/mnt", "did you mean 'direct'?"),
        ("direct:mnt", "neither an absolute path nor @KIND"),
        ("direct:@nvm", "did you mean 'nvme'?"),
        ("driver.knd=open", "did you mean 'driver.kind'?"),
        ("driver.kind=opn", "did you mean 'open'?"),
        ("driver.kind>=open", "has no order"),
        ("compat.allowed=1", "true or false"),
        ("gds.version>=new", "a version"),
        ("gpu.count=-1", "a number"),
        ("no:fs.overlai", "did you mean 'fs.overlay'?"),
        ("zzz=1", "known: driver.kind"),
    ],
)
def test_wrong_words_are_usage_errors(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        demand.read(text)
    assert words in str(caught.value)


def test_profiles_read() -> None:
    assert set(profiles()) == {"local-nvme", "nfs-rdma", "vast", "p2pdma", "lustre", "weka", "gpfs", "container"}
    for name in profiles():
        assert demand.of_profile(name)
    with pytest.raises(UsageError, match="did you mean 'local-nvme'"):
        demand.of_profile("localnvme")


def test_facts_can_be_read() -> None:
    """Every `read` names a field of the document or a key of cufile.json: a node without gaps answers all."""
    values = {"word": None, "boolean": "true", "version": "1", "count": "1"}
    texts = [f"{name}={values[fact.type] or fact.values[0]}" for name, fact in facts().items()]
    found = demand.judge(assess(local()), map(demand.read, texts))
    assert [one.id for one in found] == list(facts())


def test_paths() -> None:
    assert judged(local(), "direct:/mnt/nvme") == [("route:/mnt/nvme", GPU, "pass")]
    assert judged(local(), "nvidia-fs:@nvme") == [("route:/mnt/nvme", GPU, "pass")]
    assert judged(local(), "p2pdma:@nvme") == [("route:/mnt/nvme", GPU, "fail")]
    assert judged(local(hook="stock"), "direct:/mnt/nvme") == [("route:/mnt/nvme", GPU, "fail")]
    assert judged(local(hook="unknown"), "direct:/mnt/nvme") == [("route:/mnt/nvme", GPU, "unknown")]
    assert judged(local(), "direct:/mnt/other") == [("route:/mnt/other", "node", "fail")]
    assert judged(local(), "direct:@nfs,lustre") == [("route:@nfs,lustre", "node", "fail")]
    assert judged(unknown(), "direct:/mnt/nvme")[0][2] == "unknown"


def test_system_mounts_count_only_where_there_is_no_other() -> None:
    node = local()
    (data,) = node.mounts
    root = msgspec.structs.replace(data, target="/", fstype="btrfs")
    assert judged(changed(node, mounts=(root, data)), "direct:@nvme") == [("route:/mnt/nvme", GPU, "pass")]
    assert judged(changed(node, mounts=(root,)), "direct:@nvme") == [("route:/", GPU, "fail")]


def test_facts() -> None:
    node = local()
    assert judged(node, "driver.kind=open", "driver.kind!=open") == [
        ("driver.kind", "node", "pass"),
        ("driver.kind", "node", "fail"),
    ]
    assert judged(node, "gds.version>=1.16")[0][2] == "pass"
    assert judged(node, "gds.version>=1.16.2")[0][2] == "fail"
    assert judged(node, "gds.version<=1.16")[0][2] == "pass"  # 1.16 stands for every 1.16.x
    assert judged(node, "gds.version=1.16")[0][2] == "pass"
    assert judged(node, "gds.version=1.1")[0][2] == "fail"
    assert judged(node, "gpu.count=1")[0][2] == "pass"
    assert judged(node, "gpu.count>=2")[0][2] == "fail"
    assert judged(node, "compat.allowed=true")[0][2] == "pass"
    forbidden = local(files={"/etc/cufile.json": '{"properties": {"allow_compat_mode": false}}'})
    assert judged(forbidden, "compat.allowed=false")[0][2] == "pass"


def test_unknown_facts_are_unknown_and_say_what_would_settle_them() -> None:
    gap = Gap(section="gds", field="version", reason="denied", detail="EACCES", settle_with="sudo x")
    (one,) = demand.judge(assess(changed(local(version=None), gaps=(gap,))), [demand.read("gds.version>=1.16")])
    assert (one.status, one.settle_with) == ("unknown", "sudo x")
    (one,) = demand.judge(assess(unknown()), [demand.read("compat.allowed=false")])
    assert (one.status, one.settle_with) == ("unknown", "look at gds")
    (one,) = demand.judge(assess(unknown()), [demand.read("driver.kind=open")])
    assert one.status == "unknown"


def test_findings() -> None:
    assert judged(local(), "no:nvme.unpatched") == [("no:nvme.unpatched", "node", "pass")]
    (found,) = demand.judge(assess(local(hook="stock")), [demand.read("no:nvme.unpatched")])
    assert (found.status, found.finding) == ("fail", "nvme.unpatched")
    (open_,) = demand.judge(assess(local(hook="unknown")), [demand.read("no:nvme.unpatched")])
    assert open_.status == "unknown"
    assert open_.settle_with
    for name in ids():
        demand.judge(assess(local()), [FreeOf(finding=name)])


def test_without_an_intent_only_the_demands_are_judged() -> None:
    demands = (demand.read("driver.kind=open"),)
    gate = verify(assess(local(hook="stock")), wanted(None), demands=demands)
    assert gate.verdict == "pass"
    assert [one.id for one in gate.requirements] == ["driver.kind"]
    gate = verify(assess(local(hook="stock")), wanted("mounts: [{target: /mnt/nvme}]"), demands=demands)
    assert gate.verdict == "fail"
    assert "driver.kind" in {one.id for one in gate.requirements}


def test_ids_and_subjects_are_unique() -> None:
    """Metrics and waivers know a requirement by them; the worst of two that share both is what counts."""
    demands = tuple(demand.read(text) for text in ("gds.version>=1.10", "gds.version>=1.99", "gds.version<=1.12"))
    gate = verify(assess(local()), wanted(None), demands=demands)
    (one,) = gate.requirements
    assert one.status == "fail"
    assert "1.99" in one.evidence
    assert "1.12" in one.evidence

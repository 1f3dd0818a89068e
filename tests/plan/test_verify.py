from __future__ import annotations

import datetime as dt
import json

import msgspec
import pytest

from gdsctl.assess.assessment import Assessment, assess
from gdsctl.errors import InputError
from gdsctl.model.judgement import Route
from gdsctl.model.node import Node
from gdsctl.plan.desired import plan
from gdsctl.plan.expectation import fits
from gdsctl.plan.intent import Expect
from gdsctl.plan.verify import Gate, verify
from tests.planned_nodes import GPU, changed, example, local, unknown, wanted

TODAY = dt.date(2026, 6, 1)
MOUNT = "mounts: [{target: /mnt/nvme}]\n"


def judged(node: Node | Assessment, text: str | None = None, **more: object) -> Gate:
    assessment = node if isinstance(node, Assessment) else assess(node)
    return verify(assessment, wanted(text), today=TODAY, **more)  # type: ignore[arg-type]  # the options of verify


def installed(text: str | None, **node: object) -> Node:
    """A node whose cufile.json is the planned one."""
    base = local(**node)  # type: ignore[arg-type]  # the options of local
    made = plan(assess(base), wanted(text))
    return local(**node, files={"/etc/cufile.json": json.dumps(made.cufile.values)})  # type: ignore[arg-type]


def statuses(gate: Gate) -> dict[tuple[str, str], str]:
    return {(requirement.id, requirement.subject): requirement.status for requirement in gate.requirements}


def test_a_right_node_passes() -> None:
    gate = judged(local())
    assert gate.verdict == "pass"
    assert statuses(gate) == {("route:/mnt/nvme", GPU): "pass", ("cufile", "cufile.json"): "pass"}


def test_every_pair_is_judged() -> None:
    gate = judged(example("hgx-h100-vast"))
    pairs = [requirement for requirement in gate.requirements if requirement.id.startswith("route:")]
    assert len(pairs) == 8 * 2


def test_a_missing_route_fails_and_names_the_finding() -> None:
    gate = judged(local(hook="stock"), "mode: nvidia-fs")
    assert gate.verdict == "fail"
    (route,) = [requirement for requirement in gate.requirements if requirement.id == "route:/mnt/nvme"]
    assert (route.status, route.finding, route.subject) == ("fail", "nvme.unpatched", GPU)


def test_unknown_route_is_unknown() -> None:
    gate = judged(local(hook="unknown"), None)
    assert gate.verdict == "unknown"
    (route,) = [requirement for requirement in gate.requirements if requirement.id == "route:/mnt/nvme"]
    assert route.settle_with


def test_nothing_to_judge() -> None:
    """That a node has no GPU is known: a gate that looked at nothing fails, and asks for no further fact."""
    assert judged(changed(local(), gpus=())).verdict == "fail"
    assert judged(changed(local(), mounts=())).verdict == "fail"
    assert judged(unknown()).verdict == "unknown"
    assert judged(changed(local(), mounts=()), MOUNT).verdict == "fail"
    assert judged(changed(local(), gpus=()), "gpus: [0]").verdict == "fail"
    assert judged(unknown(), "gpus: [0]\n" + MOUNT).verdict == "unknown"


@pytest.mark.parametrize(
    ("expect", "route", "staged", "status"),
    [
        ("direct", "nvidia-fs", None, "pass"),
        ("direct", "c2c", None, "pass"),
        ("direct", "rdma", "P2P", "pass"),
        ("direct", "nvidia-fs", "SYS_MEM", "fail"),
        ("direct", "compat", None, "fail"),
        ("direct-or-routed", "nvidia-fs", "GPU_MEM_NVLINKS", "pass"),
        ("direct-or-routed", "compat", None, "fail"),
        ("compat", "compat", None, "pass"),
        ("compat", "p2pdma", None, "fail"),
        ("compat", "none", None, "fail"),
        ("any", "compat", None, "pass"),
        ("any", "p2pdma", None, "pass"),
        ("any", "none", None, "fail"),
        ("any", "unknown", None, "unknown"),
        ("direct", "unknown", None, "unknown"),
    ],
)
def test_expectations(expect: Expect, route: str, staged: str | None, status: str) -> None:
    found = Route(gpu="g", mount="/m", route=route, dynamic_routing=staged)  # type: ignore[arg-type]  # words of the table
    assert fits(expect, found)[0] == status


# --- drift --------------------------------------------------------------------------------------------------------------


def test_the_planned_file_installed_passes() -> None:
    for text in (MOUNT, "compat: forbid\n" + MOUNT, "tuning: {max_io_threads: 9}\n" + MOUNT):
        gate = judged(installed(text), text)
        assert gate.verdict == "pass"
        assert gate.drift == ()


@pytest.mark.parametrize(
    ("pointer", "value", "required"),
    [
        (("properties", "rdma_dynamic_routing"), True, False),
        (("properties", "allow_compat_mode"), False, True),
        (("properties", "use_pci_p2pdma"), True, True),
    ],
)
def test_a_changed_key_is_drift(pointer: tuple[str, str], value: object, required: bool) -> None:
    """Routing makes a path faster, so that another word on it is told and fails nothing."""
    node = installed(MOUNT)
    values = json.loads(node.gds.cufile_config.texts["/etc/cufile.json"])
    was = values[pointer[0]][pointer[1]]
    values[pointer[0]][pointer[1]] = value
    gate = judged(local(files={"/etc/cufile.json": json.dumps(values)}), MOUNT)
    assert gate.verdict == ("fail" if required else "pass")
    assert judged(local(files={"/etc/cufile.json": json.dumps(values)}), MOUNT, strict=True).verdict == "fail"
    (entry,) = [entry for entry in gate.drift if entry.key == ".".join(pointer)]
    assert (entry.installed, entry.planned, entry.origin) == (value, was, "/etc/cufile.json")


@pytest.mark.parametrize(
    ("section", "key", "value"), [("execution", "max_io_threads", 5), ("properties", "max_direct_io_size_kb", 4096)]
)
def test_a_value_that_nobody_asked_for_is_no_drift(section: str, key: str, value: int) -> None:
    """The plan keeps it; pinned or asked for by a workload it is held against the intent."""
    values = json.loads(installed(MOUNT).gds.cufile_config.texts["/etc/cufile.json"])
    values.setdefault(section, {})[key] = value
    node = local(files={"/etc/cufile.json": json.dumps(values)})
    assert judged(node, MOUNT, strict=True).drift == ()
    asked = f"tuning: {{{key}: {64 if section == 'execution' else 2048}}}\n" + MOUNT
    assert [entry.key for entry in judged(node, asked).drift if entry.required] == [f"{section}.{key}"]


def test_equal_defaults_are_no_drift() -> None:
    """A key left out whose default is the planned value: gds_rdma_write_support and its like."""
    node = installed(MOUNT)
    values = json.loads(node.gds.cufile_config.texts["/etc/cufile.json"])
    del values["properties"]["allow_compat_mode"]  # true by default, planned true
    values["properties"]["unknown_key"] = 1
    text = "// a comment\n" + json.dumps(values)
    gate = judged(local(files={"/etc/cufile.json": text}), MOUNT)
    assert (gate.verdict, gate.drift) == ("pass", ())


def test_the_second_file_and_the_environment_count() -> None:
    node = installed(MOUNT)
    text = node.gds.cufile_config.texts["/etc/cufile.json"]
    files = {"/etc/cufile.json": text, "/opt/app.json": '{"execution": {"max_io_threads": 32}}'}
    gate = judged(local(files=files, env={"CUFILE_ENV_PATH_JSON": "/opt/app.json"}), MOUNT)
    assert [(entry.key, entry.origin) for entry in gate.drift] == [("execution.max_io_threads", "/opt/app.json")]
    gate = judged(local(files={"/etc/cufile.json": text}, env={"CUFILE_FORCE_COMPAT_MODE": "true"}), MOUNT)
    assert ("properties.force_compat_mode", "CUFILE_FORCE_COMPAT_MODE") in {(e.key, e.origin) for e in gate.drift}
    gate = judged(local(files={"/etc/cufile.json": text}, env={"CUFILE_FORCE_COMPAT_MODE": "1"}), MOUNT)
    assert gate.drift == ()


def test_defaults_of_the_library_are_no_drift() -> None:
    node = local(files={})
    for text in (None, MOUNT):
        assert (judged(node, text, strict=True).verdict, judged(node, text).drift) == ("pass", ())
    pinned = judged(node, "tuning: {max_io_threads: 9}\n" + MOUNT)
    assert [r.id for r in pinned.requirements if r.status == "fail"] == ["cufile:execution.max_io_threads"]


def test_a_refused_file_fails() -> None:
    gate = judged(local(files={"/etc/cufile.json": '{"a": 1,}'}))
    assert gate.verdict == "fail"
    assert ("cufile", "/etc/cufile.json", "cufile.syntax") in {(r.id, r.subject, r.finding) for r in gate.requirements}


def test_an_unknown_file_is_unknown() -> None:
    node = local()
    config = msgspec.structs.replace(node.gds.cufile_config, files=None, texts={})
    gate = judged(changed(node, gds=msgspec.structs.replace(node.gds, cufile_config=config)), "mode: nvidia-fs")
    assert gate.verdict == "unknown"
    assert statuses(gate)["cufile", "cufile.json"] == "unknown"


def test_registry_drift() -> None:
    made = plan(example("nvme-unpatched"), wanted())
    right = verify(assess(made.node_after), wanted(), today=TODAY)
    assert right.verdict == "pass"
    driver = msgspec.structs.replace(made.node_after.nvidia_driver, registry_dwords={"RMForceStaticBar1": "0"})
    gate = verify(assess(changed(made.node_after, nvidia_driver=driver)), wanted(), today=TODAY)
    assert gate.verdict == "fail"
    assert {entry.key for entry in gate.drift if entry.kind == "driver"} == {
        "RMForceStaticBar1",
        "RmForceDisableIomapWC",
        "ForceP2P",
    }


def test_strict_counts_warnings() -> None:
    node = local()
    warned = changed(node, iommu=msgspec.structs.replace(node.iommu, state="translated"))
    assert judged(warned).verdict == "pass"
    gate = judged(warned, strict=True)
    assert gate.verdict == "fail"
    assert "iommu.translated" in {r.id for r in gate.requirements if r.status == "fail"}


# --- waivers and baseline -------------------------------------------------------------------------------------------------

WAIVER = "- {id: %s, reason: known, owner: sre, expires: %s}\n"


def test_waivers() -> None:
    text = "mode: nvidia-fs"
    node = installed(text, hook="stock")
    assert judged(node, text).verdict == "fail"
    for name in ("nvme.unpatched", "route:/mnt/nvme"):
        gate = judged(node, text, waivers=(WAIVER % (name, "2026-06-01"), "w.yaml"))
        assert gate.verdict == "pass"
        assert statuses(gate)["route:/mnt/nvme", GPU] == "waived"
        assert "sre" in next(r.evidence for r in gate.requirements if r.status == "waived")
    other = "- {id: nvme.unpatched, subject: other, reason: r, owner: o, expires: 2027-01-01}"
    assert judged(node, text, waivers=(other, "w")).verdict == "fail"


def test_expired_waivers_fail_loudly() -> None:
    gate = judged(local(), None, waivers=(WAIVER % ("nvme.unpatched", "2026-05-31"), "w.yaml"))
    assert gate.verdict == "fail"
    (found,) = [r for r in gate.requirements if r.id == "waiver"]
    assert "w.yaml:1: expired on 2026-05-31" in found.evidence


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("- {id: nvme.unpached, reason: r, owner: o, expires: 2027-01-01}", 1, "did you mean 'nvme.unpatched'"),
        ("- {id: nvme.unpatched, owner: o, expires: 2027-01-01}", 1, "reason is missing"),
        ("- {id: nvme.unpatched, reason: r, expires: 2027-01-01}", 1, "owner is missing"),
        ("\n- {id: nvme.unpatched, reason: r, owner: o, expires: soon}", 2, "not a date"),
        ("- {id: nvme.unpatched, reason: r, owner: o, expires: 2027-01-01, until: x}", 1, "unknown key"),
        ("id: x", 1, "unknown key"),
        ("- x", 1, "a mapping"),
    ],
)
def test_wrong_waivers(text: str, line: int, words: str) -> None:
    with pytest.raises(InputError) as caught:
        judged(local(), None, waivers=(text, "w.yaml"))
    assert str(caught.value).startswith(f"w.yaml:{line}: ")
    assert words in str(caught.value)


def test_baseline() -> None:
    before = assess(local())
    same = judged(local(), None, baseline=before)
    assert same.verdict == "pass"
    assert statuses(same)["baseline", "node"] == "pass"
    gate = judged(local(hook="stock"), "mode: compat\nmounts: [{target: /mnt/nvme, expect: any}]", baseline=before)
    assert ("baseline:/mnt/nvme", GPU) in {(r.id, r.subject) for r in gate.requirements if r.status == "fail"}
    (entry,) = [entry for entry in gate.drift if entry.kind == "baseline"]
    assert (entry.planned, entry.installed) == ("nvidia-fs", "compat")
    gone = judged(changed(local(), mounts=()), None, baseline=before)
    assert gone.verdict == "fail"
    vague = judged(local(hook="unknown"), None, baseline=before)
    assert vague.verdict == "unknown"


def test_a_mount_that_is_another_fails() -> None:
    """The path is right and the data is not what the intent names: both values stand in the evidence."""
    gate = judged(local(), "mounts: [{target: /mnt/nvme, type: nfs, source: 'server:/kv'}]")
    (found,) = [r for r in gate.requirements if r.status == "fail"]
    assert (found.id, found.subject) == ("mount:/mnt/nvme", "/mnt/nvme")
    assert found.evidence == (
        "the intent says type nfs, the node says xfs; the intent says source server:/kv, the node says /dev/nvme0n1"
    )

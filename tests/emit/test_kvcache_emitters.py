"""KV-cache artifacts read back by PyYAML, by bash, and by gdsctl's own reader of configurations."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from gdsctl import emit, pipeline
from gdsctl.assess.assessment import assess
from gdsctl.cli import run
from gdsctl.emit.storageclass import dns_name
from gdsctl.kvcache.app import judge
from gdsctl.plan.desired import Plan, plan
from gdsctl.plan.intent import Intent, MountIntent, Wanted, Workload
from tests.planned_nodes import example, local

KV = Workload(kind="kv-cache", chunk_bytes=48 << 20)
KINDS = ("storageclass", "pod", "gpu-operator-values", "lmcache", "lmcache-bench")


def made(name: str, target: str | None = None, **wish: Any) -> Plan:
    mounts = (MountIntent(target=target, **wish),) if target else None
    return plan(example(name), Wanted(intent=Intent(mounts=mounts, workload=KV), path="i"))


def text(kind: str, drawn: Plan) -> str:
    return emit.EMITTERS[kind].emit(drawn).content


def documents(kind: str, drawn: Plan) -> list[Any]:
    return list(yaml.safe_load_all(text(kind, drawn)))


def argv(script: str, tmp_path: Path) -> list[str]:
    """What bash would start: `exec` becomes a function that prints its arguments."""
    path = tmp_path / "lmcache.sh"
    path.write_text('mkdir() { :; }; exec() { printf "%s\\0" "$@"; };\n' + script)
    ran = subprocess.run(["bash", "--norc", path], capture_output=True, check=True)
    assert ran.stderr == b""
    return ran.stdout.decode().split("\0")[:-1]


def test_only_with_a_workload() -> None:
    without = plan(example("hgx-h100-vast"), Wanted(intent=Intent()))
    assert not any(emit.EMITTERS[kind].applies(without) for kind in KINDS)
    assert set(emit.artifacts(made("hgx-h100-vast"), emit.chosen(["all"]), named=frozenset({"all"}))) >= set(KINDS)


def test_lmcache_on_a_direct_mount(tmp_path: Path) -> None:
    words = argv(text("lmcache", made("hgx-h100-vast", "/vast/kv")), tmp_path)
    assert words[:2] == ["lmcache", "server"]
    options = dict(zip(words[2::2], words[3::2], strict=True))
    assert options["--chunk-size"] == "256"
    assert "--l2-adapter" not in options
    manager = json.loads(options["--l1-manager"])
    assert (manager["type"], manager["path"], manager["backend"]) == ("GDS", "/vast/kv/lmcache", "cufile")


def test_lmcache_where_nothing_goes_direct(tmp_path: Path) -> None:
    drawn = plan(
        example("vm-flattened"),
        Wanted(intent=Intent(mounts=(MountIntent(target="/", expect="any"),), workload=KV), path="i"),
    )
    words = argv(text("lmcache", drawn), tmp_path)
    assert "--l1-manager" not in words
    adapter = json.loads(words[words.index("--l2-adapter") + 1])
    assert adapter["type"] == "fs_native"


def test_storageclass() -> None:
    storage, claim = documents("storageclass", made("hgx-h100-vast", "/vast/kv", client="vast", transport="rdma"))
    assert storage["kind"] == "StorageClass"
    assert storage["provisioner"] == "csi.vastdata.com"
    assert {"proto=rdma", "port=20049"} <= set(storage["mountOptions"])
    assert not any(option.startswith("localports") for option in storage["mountOptions"])
    assert claim["spec"]["storageClassName"] == storage["metadata"]["name"] == "gds-vast-kv"
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert "localports is left out" in text(
        "storageclass", made("hgx-h100-vast", "/vast/kv", client="vast", transport="rdma")
    )
    assert documents("storageclass", plan(assess(local()), Wanted(intent=Intent(workload=KV)))) == []


def test_pod() -> None:
    (pod,) = documents("pod", made("hgx-h100-vast", "/vast/kv"))
    container = pod["spec"]["containers"][0]
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {"/vast/kv", "/run/udev", "/etc/cufile.json", "/dev/infiniband"} <= mounted
    assert any(path.startswith("/dev/nvidia-fs") for path in mounted)
    named = {mount["name"] for mount in container["volumeMounts"]}
    assert named == {volume["name"] for volume in pod["spec"]["volumes"]}
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 8
    assert "IPC_LOCK" in container["securityContext"]["capabilities"]["add"]
    assert pod["spec"]["hostNetwork"] is True


def test_a_pod_is_privileged_for_nvidia_fs_alone() -> None:
    """A hostPath brings no permission of the device cgroup; P2PDMA needs no device node besides the GPU's own."""
    assessment = assess(local())
    node = msgspec.structs.replace(
        assessment.node,
        nvidia_fs=msgspec.structs.replace(
            assessment.node.nvidia_fs, device_nodes=("/dev/nvidia-fs10", "/dev/nvidia-fs2", "/dev/nvidia-fs1")
        ),
    )
    found = plan(assess(node), Wanted(intent=Intent(workload=KV)))
    content = emit.EMITTERS["pod"].emit(found).content
    (pod,) = yaml.safe_load_all(content)
    paths = [volume["hostPath"]["path"] for volume in pod["spec"]["volumes"]]
    assert paths[-3:] == ["/dev/nvidia-fs1", "/dev/nvidia-fs2", "/dev/nvidia-fs10"]
    assert pod["spec"]["containers"][0]["securityContext"] == {"privileged": True}
    lines = content.splitlines()
    before = lines[lines.index("      privileged: true") - 1]
    assert before.strip().startswith("# for /dev/nvidia-fs* alone")
    over_p2pdma = plan(assess(node), Wanted(intent=Intent(workload=KV)), "p2pdma")
    assert {route.route for route in over_p2pdma.routes_after} == {"p2pdma"}
    assert "privileged" not in emit.EMITTERS["pod"].emit(over_p2pdma).content


def test_gpu_operator_values() -> None:
    (values,) = documents("gpu-operator-values", made("hgx-h100-vast", "/vast/kv"))
    assert values["gds"]["enabled"] is True
    assert values["driver"]["kernelModuleType"] == "open"
    compat = plan(example("vm-flattened"), Wanted(intent=Intent(workload=KV), path="i"), "compat")
    (values,) = documents("gpu-operator-values", compat)
    assert values["gds"]["enabled"] is False
    assert "devicePlugin" not in values


@pytest.mark.parametrize("kind", ["lmcache", "pod"])
@pytest.mark.parametrize(
    ("name", "target"), [("hgx-h100-vast", "/vast/kv"), ("nvme-unpatched", None), ("vm-flattened", "/")]
)
def test_gdsctl_finds_nothing_in_its_own_output(kind: str, name: str, target: str | None) -> None:
    wish: dict[str, Any] = {"expect": "any"} if target == "/" else {}
    content = text(kind, made(name, target, **wish))
    report = judge([(emit.EMITTERS[kind].file, content)], tool=pipeline.tool())
    assert report.findings == ()
    assert report.verdict == "pass"
    if name == "hgx-h100-vast":
        held = judge(
            [(emit.EMITTERS[kind].file, content)], tool=pipeline.tool(), node=pipeline.report(example("hgx-h100-vast"))
        )
        assert (held.findings, held.verdict) == ((), "pass")


NODES = [
    ("hgx-h100-vast", "/vast/kv", "device-plugin"),
    ("hgx-h100-vast", "/vast/kv", "resource-claim"),
    ("pcie-nvme-raid", None, "device-plugin"),
    ("vm-flattened", "/", "resource-claim"),
]


def wished(name: str, target: str | None, gpus_by: Any) -> Plan:
    workload = msgspec.structs.replace(KV, gpus_by=gpus_by)
    wish: dict[str, Any] = {"expect": "any"} if target == "/" else {}
    mounts = (MountIntent(target=target, **wish),) if target else None
    return plan(example(name), Wanted(intent=Intent(mounts=mounts, workload=workload), path="i"))


@pytest.mark.parametrize(("name", "target", "gpus_by"), NODES)
def test_manifests_against_the_schemas_of_kubernetes(name: str, target: str | None, gpus_by: str) -> None:
    """Strict: a field that the API server does not know is a fault. Versions: 1.34 brought resource.k8s.io/v1."""
    validator = pytest.importorskip("kubernetes_validate")
    drawn = wished(name, target, gpus_by)
    seen = [document for kind in ("pod", "storageclass") for document in documents(kind, drawn) if document]
    for version in ("1.34", "1.37") if gpus_by == "resource-claim" else ("1.28", "1.37"):
        for document in seen:
            validator.validate(document, version, strict=True)
    assert "Pod" in {document["kind"] for document in seen}


def test_the_schemas_would_refuse_a_slip() -> None:
    validator = pytest.importorskip("kubernetes_validate")
    (pod,) = documents("pod", made("hgx-h100-vast", "/vast/kv"))
    pod["spec"]["hostNetwrok"] = True
    with pytest.raises(validator.ValidationError, match="hostNetwrok"):
        validator.validate(pod, "1.34", strict=True)


@pytest.mark.parametrize(("name", "target", "gpus_by"), NODES)
def test_what_a_pod_refers_to_is_there(name: str, target: str | None, gpus_by: str) -> None:
    """What a schema cannot tell: names agree, and each claim has an object."""
    first, *others = documents("pod", wished(name, target, gpus_by))
    spec = first["spec"]
    (container,) = spec["containers"]
    assert {m["name"] for m in container["volumeMounts"]} == {v["name"] for v in spec["volumes"]}
    assert len({m["mountPath"] for m in container["volumeMounts"]}) == len(container["volumeMounts"])
    assert [c["name"] for c in container["resources"].get("claims", ())] == [
        c["name"] for c in spec.get("resourceClaims", ())
    ]
    assert [c["resourceClaimTemplateName"] for c in spec.get("resourceClaims", ())] == [
        o["metadata"]["name"] for o in others
    ]
    for template in others:
        (request,) = template["spec"]["spec"]["devices"]["requests"]
        assert request["exactly"]["count"] == max(len(example(name).node.gpus), 1)
        assert "nvidia.com/gpu" not in container["resources"].get("limits", {})


def test_the_claim_that_the_pod_names_is_the_one_of_the_storageclass() -> None:
    drawn = made("hgx-h100-vast", "/vast/kv", client="vast", transport="rdma")
    _, claim = documents("storageclass", drawn)
    assert f"claimName: {claim['metadata']['name']}" in text("pod", drawn)


@pytest.mark.parametrize(("name", "target", "gpus_by"), NODES)
def test_gdsctl_finds_nothing_in_all_of_its_output(name: str, target: str | None, gpus_by: str) -> None:
    drawn = wished(name, target, gpus_by)
    texts = [(emit.EMITTERS[kind].file, text(kind, drawn)) for kind in ("lmcache", "pod")]
    stored = text("storageclass", drawn)
    texts[-1] = (texts[-1][0], texts[-1][1] + "---\n" + stored)
    direct_already = name == "hgx-h100-vast"  # the others' drives go direct only when the plan's steps are done
    report = judge(texts, tool=pipeline.tool(), node=pipeline.report(example(name)) if direct_already else None)
    assert report.findings == ()


def test_bench_where_the_mount_goes_direct() -> None:
    """48 of the slab's 64 GiB; the keys are those of LMCache's own example."""
    found = json.loads(text("lmcache-bench", made("hgx-h100-vast", "/vast/kv")))
    assert found == {
        "workload": "long-doc-qa",
        "kv_cache_volume": 48,
        "ldqa_document_length": 10000,
        "ldqa_query_per_document": 2,
        "ldqa_shuffle_policy": "tile",
        "ldqa_num_inflight_requests": 4,
    }


def test_bench_works_the_lower_tier_elsewhere() -> None:
    drawn = wished("vm-flattened", "/", "device-plugin")
    volume = json.loads(text("lmcache-bench", drawn))["kv_cache_volume"]
    script = text("lmcache", drawn)
    assert 64 < volume < 256  # --l1-size-gb 64 above max_capacity_gb 256
    assert "--l1-size-gb 64" in script
    assert '"max_capacity_gb": 256' in script


def test_bench_out_of_size(capsys: pytest.CaptureFixture[str]) -> None:
    """LMCache makes int(volume x tokens per GB / length) documents: as many as gdsctl says that sessions fit."""
    command = ["size", "--tokens-per-gib", "5577", "--volume-gib", "640", "--context", "32000"]
    assert run([*command, "--format", "lmcache-bench"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tokens_per_gb_kvcache"] == 5577
    assert int(found["kv_cache_volume"] * found["tokens_per_gb_kvcache"] / found["ldqa_document_length"]) == 111
    assert run([*command, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["sessions"] == 111
    assert run(["size", "--tokens-per-gib", "5577", "--format", "lmcache-bench"]) == 2
    assert "--volume-gib" in capsys.readouterr().err


def test_names() -> None:
    assert dns_name("/vast/KV_1") == "gds-vast-kv-1"
    assert dns_name("/") == "gds"
    assert len(dns_name("/" + "x" * 300)) <= 63
    assert dns_name("/日本") == "gds"

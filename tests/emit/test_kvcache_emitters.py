"""KV-cache artifacts read back by PyYAML, by bash, and by gdsctl's own reader of configurations."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gdsctl import emit, pipeline
from gdsctl.assess.assessment import assess
from gdsctl.emit.storageclass import dns_name
from gdsctl.kvcache.app import judge
from gdsctl.plan.desired import Plan, plan
from gdsctl.plan.intent import Intent, MountIntent, Wanted, Workload
from tests.planned_nodes import example, local

KV = Workload(kind="kv-cache", chunk_bytes=48 << 20)
KINDS = ("storageclass", "pod", "gpu-operator-values", "lmcache")


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


def test_names() -> None:
    assert dns_name("/vast/KV_1") == "gds-vast-kv-1"
    assert dns_name("/") == "gds"
    assert len(dns_name("/" + "x" * 300)) <= 63
    assert dns_name("/日本") == "gds"

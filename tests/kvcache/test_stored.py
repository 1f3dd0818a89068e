"""StorageClasses, volumes and claims by themselves: what they tell, and what is to be given beside them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gdsctl.cli import run
from gdsctl.data import app_storage, filesystems
from gdsctl.errors import InputError
from gdsctl.kvcache.app import AppReport, judge
from gdsctl.model.node import Tool

TOOL = Tool(name="gdsctl", version="0")
HGX = "example:hgx-h100-vast"
POD = "the manifest of the pod that mounts it and of the program that it runs"
CLAIM = "kind: PersistentVolumeClaim\napiVersion: v1\nmetadata: {name: c}\nspec: {storageClassName: fast}\n"
SERVER = """\
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers:
  - {name: c, command: [lmcache, server, --l1-size-gb, "64"]}
"""


def storage_class(provisioner: str, *options: str) -> str:
    head = f"apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {{name: fast}}\nprovisioner: {provisioner}\n"
    return head + f"mountOptions: [{', '.join(options)}]\n"


def report(*texts: str) -> AppReport:
    return judge([(f"{number}.yaml", text) for number, text in enumerate(texts)], tool=TOOL)


@pytest.mark.parametrize(
    ("provisioner", "options", "helps", "word"),
    [
        ("csi.vastdata.com", ["vers=3", "proto=rdma", "port=20049"], "yes", "NFS over RDMA"),
        ("nfs.csi.k8s.io", ["nconnect=16"], "no", "over TCP"),  # nfs(5): TCP unless told otherwise
        ("csi.weka.io", [], "half", "wekafs"),  # GDS release notes: writes need a key of their own
        ("exa.csi.ddn.com", [], "yes", "lustre"),
        ("example.org/own", [], "unknown", "example.org/own"),
    ],
)
def test_what_a_class_tells(provisioner: str, options: list[str], helps: str, word: str) -> None:
    told = report(storage_class(provisioner, *options))
    (one,) = told.storage
    assert (told.verdict, told.stacks) == ("unknown", ())
    assert (one.kind, one.name, one.gds_helps) == ("StorageClass", "fast", helps)
    assert word in one.because
    assert one.needs == ("a PersistentVolumeClaim of class fast", POD)


def test_a_claim_says_what_its_class_or_volume_says() -> None:
    (alone,) = report(CLAIM).storage
    assert (alone.gds_helps, alone.needs) == ("unknown", ("StorageClass fast", POD))
    claim, behind = report(CLAIM, storage_class("csi.vastdata.com", "proto=rdma")).storage
    assert (claim.gds_helps, claim.needs, behind.needs) == ("yes", (POD,), (POD,))
    volume = """\
apiVersion: v1
kind: PersistentVolume
metadata: {name: v}
spec:
  claimRef: {name: c}
  nfs: {server: 192.0.2.1, path: /kv}
  mountOptions: [proto=rdma]
"""
    claim, behind = report(CLAIM, volume).storage
    assert (claim.gds_helps, behind.gds_helps, behind.needs) == ("yes", "yes", (POD,))
    (local,) = report(volume.replace("nfs: {server: 192.0.2.1, path: /kv}", "local: {path: /mnt/nvme}")).storage
    assert (local.gds_helps, local.needs) == ("unknown", ("the PersistentVolumeClaim that v belongs to", POD))


def test_beside_a_program_only_what_of_storage_is_missing_is_told() -> None:
    told = report(SERVER, CLAIM)
    assert told.verdict == "pass"
    assert [one.needs for one in told.storage] == [("StorageClass fast",)]


@pytest.mark.parametrize("image", ["command: [nginx]", "image: nginx"])
def test_a_pod_of_another_program_is_still_not_recognised(image: str) -> None:
    pod = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec:\n  containers:\n  - {{name: c, {image}}}\n"
    for texts in ([f"{CLAIM}---\n{pod}"], [CLAIM, pod]):
        with pytest.raises(InputError, match="starts nothing that gdsctl knows"):
            report(*texts)


def test_the_class_that_plan_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "storageclass.yaml"
    assert run(["plan", "-S", HGX, "--emit", "storageclass", "--output", str(path)]) == 0
    capsys.readouterr()
    assert run(["app", str(path), "-S", HGX, "--format", "json"]) == 3
    told = capsys.readouterr()
    found = json.loads(told.out)["storage"]
    assert [(one["kind"], one["gds_helps"], one["needs"]) for one in found] == [
        ("StorageClass", "yes", [POD]),
        ("PersistentVolumeClaim", "yes", [POD]),
    ]
    (route,) = found[1]["routes"]
    assert (route["mount"], route["route"], len(route["gpus"])) == ("/vast/kv", "nvidia-fs", 8)
    assert told.err.count("starts nothing; not given: the manifest of the pod") == 2
    assert run(["app", str(path)]) == 3
    assert "Storage alone moves no bytes" in capsys.readouterr().out


def test_a_wrong_port_fails() -> None:
    told = report(storage_class("csi.vastdata.com", "proto=rdma", "port=2009"))
    assert (told.verdict, [found.id for found in told.findings]) == ("fail", ["app.mount-port"])


def test_drivers_mount_filesystems_that_the_table_has() -> None:
    names = {row.name for row in filesystems.tables().filesystem}
    drivers = (
        "csi.vastdata.com",
        "nfs.csi.k8s.io",
        "csi.weka.io",
        "beegfs.csi.netapp.com",
        "spectrumscale.csi.ibm.com",
    )
    for name in (*drivers, "exa.csi.ddn.com"):
        row = app_storage.driver(name)
        assert row is not None
        assert row.filesystem in names
        assert row.source

"""Containers judged on a node that goes direct: each thing taken away is told, and only that."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gdsctl.assess.assessment import assess
from gdsctl.cli import run
from gdsctl.container.inside import inside, joined, sources
from gdsctl.container.read import read
from gdsctl.errors import InputError
from gdsctl.model.devices import Backing, Mount
from gdsctl.model.node import Node, Tool
from gdsctl.plan.containers import Boxed, verify_containers
from gdsctl.plan.documents import VerifyReport
from tests.assess.rules.nodes import NVME, but, cufile, healthy, mounted

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "containers.md").read_text("utf-8")
SNIPPETS = dict(re.findall(r"<!-- snippet: ([a-z-]+) -->\n```\w+\n(.*?)```", PAGE, re.DOTALL))
TOOL = Tool(name="gdsctl", version="0")
HOST = {
    "container.has_udev_db": True,
    "container.has_cufile_json": True,
    "container.rdma_nodes": ("rdma_cm", "uverbs0"),
}
NODE = cufile(but(healthy(), HOST), {"properties": {"allow_compat_mode": True}})
P2PDMA = but(healthy(p2pdma=True), HOST | {"nvidia_fs.loaded": False, "nvidia_fs.device_nodes": ()})


def judged(node: Node, *files: Any) -> VerifyReport:
    texts = [file if isinstance(file, str) else json.dumps(file) for file in files]
    found = joined(tuple(given for number, text in enumerate(texts) for given in read(text, f"f{number}")))
    boxes = tuple(
        Boxed(
            name=given.name,
            place=given.place,
            assessment=assess(inside(node, given)),
            sources=sources(node, given),
            spec_only=given.kind == "cdi",
        )
        for given in found
    )
    return verify_containers(assess(node), boxes, tool=TOOL)


def told(report: VerifyReport, status: str) -> set[str]:
    return {one.id.removeprefix("no:") for one in report.requirements if one.status == status}


def docker(**host: Any) -> list[dict[str, Any]]:
    """A container that lacks nothing on NODE, with parts of HostConfig replaced."""
    whole = {
        "Runtime": "runc",
        "Binds": ["/run/udev:/run/udev:ro", "/etc/cufile.json:/etc/cufile.json:ro", f"{NVME}:/data"],
        "DeviceRequests": [{"Driver": "nvidia", "Count": -1}],
        "Devices": [{"PathOnHost": "/dev/nvidia-fs0", "PathInContainer": "/dev/nvidia-fs0"}],
    }
    return [{"Name": "/kv", "HostConfig": whole | host, "Config": {"Env": host.get("Env", []), "Image": "app"}}]


def binds(*kept: str) -> list[str]:
    return [text for text in docker()[0]["HostConfig"]["Binds"] if any(part in text for part in kept)]


def test_a_container_that_lacks_nothing_goes_direct() -> None:
    report = judged(NODE, docker())
    assert report.verdict == "pass"
    assert {(route.mount, route.route) for route in report.routes} == {("/", "compat"), ("/data", "nvidia-fs")}
    assert {one.subject for one in report.requirements if one.id == "route:/data"} == {gpu.address for gpu in NODE.gpus}


@pytest.mark.parametrize(
    ("host", "fails", "unknown"),
    [
        ({"Binds": binds("cufile", NVME)}, {"container.udev", "container.no-udev", "route:/data"}, set()),
        ({"Binds": binds("udev", NVME)}, set(), {"container.no-cufile-json"}),
        ({"Binds": binds("udev", "cufile")}, {"container.no-data-volume"}, set()),
        ({"DeviceRequests": None}, {"container.no-gpu", "route:/data"}, set()),
        (
            {"Devices": []},
            {"container.no-nvidia-fs-device", "nvidia-fs.no-device-node", "route:/data"},
            set(),
        ),
        # bound, but closed by the device cgroup
        (
            {"Devices": [], "Binds": [*docker()[0]["HostConfig"]["Binds"], "/dev/nvidia-fs0:/dev/nvidia-fs0"]},
            {"container.no-nvidia-fs-device", "nvidia-fs.no-device-node", "route:/data"},
            set(),
        ),
        ({"Devices": [], "Privileged": True}, set(), set()),
        # /sys: the node's own is as good, masks elsewhere do no harm, whatever else lies over it hides it
        ({"Binds": [*docker()[0]["HostConfig"]["Binds"], "/sys:/sys:ro"]}, set(), set()),
        ({"MaskedPaths": ["/proc/kcore", "/sys/firmware"], "ReadonlyPaths": ["/proc/sys"]}, set(), set()),
        ({"MaskedPaths": ["/sys/bus"]}, {"container.no-sysfs", "route:/data"}, set()),
        ({"Tmpfs": {"/sys": ""}}, {"container.no-sysfs", "route:/data"}, set()),
        ({"Binds": [*docker()[0]["HostConfig"]["Binds"], "/srv/sys:/sys"]}, set(), {"container.no-sysfs"}),
        # NVIDIA_GDS counts for NVIDIA's runtime alone
        ({"Devices": [], "Binds": binds(NVME), "Runtime": "nvidia", "Env": ["NVIDIA_GDS=enabled"]}, set(), set()),
        (
            {"Devices": [], "Binds": binds(NVME), "Env": ["NVIDIA_GDS=enabled"]},
            {"container.udev", "container.no-udev", "container.no-nvidia-fs-device", "nvidia-fs.no-device-node", "route:/data"},
            {"container.no-cufile-json"},
        ),
    ],
)  # fmt: skip
def test_each_thing_taken_away(host: dict[str, Any], fails: set[str], unknown: set[str]) -> None:
    report = judged(NODE, docker(**host))
    assert told(report, "fail") == fails
    assert told(report, "unknown") - {"route:/data"} == unknown
    assert all(one.settle_with for one in report.requirements if one.status == "unknown")


def test_all_nodes_of_nvidia_fs_are_wanted() -> None:
    nodes = tuple(f"/dev/nvidia-fs{n}" for n in range(16))
    report = judged(but(NODE, {"nvidia_fs.device_nodes": nodes}), docker())
    (finding,) = (finding for finding in report.findings if finding.id == "container.no-nvidia-fs-device")
    assert finding.message == "the container was given 1 of the 16 nodes of nvidia_fs, and cuFile opens them all"


def test_the_toolkit_skips_its_mounts_where_only_p2pdma_goes() -> None:
    asked = judged(P2PDMA, docker(Runtime="nvidia", Env=["NVIDIA_GDS=enabled"], Binds=binds(NVME), Devices=[]))
    assert {"container.toolkit-skips-mounts", "container.no-udev"} <= told(asked, "fail")
    order = [finding.id for finding in asked.findings]
    assert order.index("container.toolkit-skips-mounts") < order.index("container.no-udev")
    by_hand = judged(P2PDMA, docker(Runtime="nvidia", Env=["NVIDIA_GDS=enabled"], Devices=[]))
    assert by_hand.verdict == "pass"
    assert {route.route for route in by_hand.routes if route.mount == "/data"} == {"p2pdma"}


def test_rdma_from_user_space_wants_devices_and_locked_memory() -> None:
    weka = mounted(NODE, Mount(target="/weka", fstype="wekafs", backing=Backing(kind="wekafs", nics=("mlx5_0",))))
    volumes = [*docker()[0]["HostConfig"]["Binds"], "/weka/kv:/kv"]
    small = [{"Name": "memlock", "Soft": 65536, "Hard": 65536}]
    assert {"container.no-rdma-device", "container.memlock-limited"} <= told(
        judged(weka, docker(Binds=volumes, Ulimits=small)), "fail"
    )
    assert "container.memlock-limited" in told(judged(weka, docker(Binds=volumes)), "unknown")
    devices = [*docker()[0]["HostConfig"]["Devices"], {"PathOnHost": "/dev/infiniband"}]
    lifted = [{"Name": "memlock", "Soft": -1}]
    whole = judged(weka, docker(Binds=volumes, Devices=devices, Ulimits=lifted, NetworkMode="host"))
    needs = {"container.no-rdma-device", "container.memlock-limited", "container.own-network"}
    assert needs <= told(whole, "pass")
    apart = judged(weka, docker(Binds=volumes, Devices=devices, Ulimits=lifted, NetworkMode="bridge"))
    assert needs & told(apart, "fail") == {"container.own-network"}
    elsewhere = judged(weka, docker(Binds=volumes, Devices=devices, Ulimits=lifted, NetworkMode="rdma-macvlan"))
    assert needs & told(elsewhere, "unknown") == {"container.own-network"}


def test_a_claim_whose_volume_is_elsewhere_is_unknown() -> None:
    pod = yaml.safe_load(SNIPPETS["pod"])
    pod["spec"]["volumes"][0] = {"name": "data", "persistentVolumeClaim": {"claimName": "kv"}}
    report = judged(P2PDMA, pod)
    assert report.verdict == "unknown"
    assert told(report, "unknown") == {"container.no-data-volume"}


GDS_SPEC = {
    "cdiVersion": "0.5.0",
    "kind": "nvidia.com/gds",
    "devices": [
        {
            "name": "all",
            "containerEdits": {
                "deviceNodes": [{"path": "/dev/nvidia-fs0"}],
                "mounts": [{"hostPath": p, "containerPath": p} for p in ("/run/udev", "/etc/cufile.json")],
            },
        }
    ],
}


def test_cdi_specs_alone_and_beside_a_container_that_asks_for_them() -> None:
    assert judged(NODE, GDS_SPEC).verdict == "pass"
    gpu = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "all", "containerEdits": {}}]}
    assert {"container.udev", "container.no-nvidia-fs-device"} <= told(judged(NODE, gpu), "fail")
    names = {"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all", "nvidia.com/gds=all"]}
    box = docker(Binds=binds(NVME), Devices=[], DeviceRequests=[names])
    assert judged(NODE, box, GDS_SPEC, gpu).verdict == "pass"


def test_several_containers_are_told_by_name_and_sidecars_left_out() -> None:
    first, second = docker()[0], {**docker()[0], "Name": "/two"}
    sidecar = {**docker(DeviceRequests=None)[0], "Name": "/log"}
    report = judged(NODE, [first, second, sidecar])
    assert {one.subject.partition(":")[0] for one in report.requirements} == {"kv", "two"}
    assert {route.mount for route in report.routes} == {"kv: /", "kv: /data", "two: /", "two: /data"}


def test_a_path_that_is_not_absolute_is_refused_with_its_place() -> None:
    with pytest.raises(InputError, match=r"f0:1: 'data' is no absolute path"):
        judged(NODE, docker(Binds=["/mnt:data"]))


HOSTILE = "/mnt/a b;$(reboot)`id`'\n#"


def test_names_from_the_file_are_quoted_in_commands() -> None:
    volumes = [f"/etc/cufile.json:{HOSTILE}", "odd:/c", f"{HOSTILE}:/etc/cufile.json"]
    box = docker(Binds=volumes, Env=[f"CUFILE_ENV_PATH_JSON={HOSTILE}x"])
    box[0]["Config"]["Image"] = HOSTILE
    (given,) = read(json.dumps(box), "f")
    commands = [gap.settle_with or "" for gap in inside(NODE, given).gaps]
    hit = [command for command in commands if "reboot" in command]
    assert len(hit) > 2
    for command in hit:
        words = subprocess.run(
            ["bash", "-c", f"printf '%s\\0' {command}"], capture_output=True, check=True, text=True
        ).stdout.split("\0")
        assert any(HOSTILE in word for word in words)


def test_containers_of_one_name_get_numbers() -> None:
    report = judged(NODE, docker(), docker(Devices=[]))
    failing = {one.subject.partition(":")[0] for one in report.requirements if one.status == "fail"}
    assert failing == {"kv (2)"}


# --- the page ---------------------------------------------------------------------------------------------------------


def test_snippets_of_the_page_lack_nothing() -> None:
    nvme = but(NODE, {"mounts.0.target": "/mnt/nvme"})
    p2pdma = but(P2PDMA, {"mounts.0.target": "/mnt/nvme"})
    assert judged(nvme, SNIPPETS["compose"]).verdict == "pass"
    assert judged(p2pdma, SNIPPETS["compose"]).verdict == "pass"
    assert judged(p2pdma, SNIPPETS["pod"]).verdict == "pass"
    assert told(judged(nvme, SNIPPETS["pod"]), "unknown") == {"nvidia-fs.no-device-node", "route:/data"}


def test_docker_run_of_the_page_gives_what_compose_gives() -> None:
    (app,) = yaml.safe_load(SNIPPETS["compose"])["services"].values()
    words = shlex.split(SNIPPETS["docker-run"].replace("\\\n", " "))
    after = {
        option: [words[at + 1] for at, word in enumerate(words) if word == option] for option in ("--volume", "--env")
    }
    assert after["--volume"] == app["volumes"]
    assert after["--env"] == [f"{name}={value}" for name, value in app["environment"].items()]
    assert words[words.index("--runtime") + 1] == app["runtime"]
    assert words[words.index("--gpus") + 1] == app["gpus"]
    assert words[words.index("--ulimit") + 1] == f"memlock={app['ulimits']['memlock']}"
    assert words[-1] == app["image"]


def test_every_finding_of_containers_is_on_the_page() -> None:
    from gdsctl.assess.rules import ids

    for name in ids():
        if name.startswith("container."):
            assert f"findings.md#{name.replace('.', '')}" in PAGE


# --- the command ------------------------------------------------------------------------------------------------------

HGX = "example:hgx-h100-vast"


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "inspect.json"
    nodes = [{"PathOnHost": f"/dev/nvidia-fs{n}"} for n in range(16)]
    volumes = ["/run/udev:/run/udev:ro", "/etc/cufile.json:/etc/cufile.json:ro", "/scratch/kv:/data"]
    file.write_text(json.dumps(docker(Binds=volumes, Devices=nodes)))
    assert run(["verify", "-S", HGX, "--container", str(file), "--require", "direct:/data"]) == 0
    assert "the container kv (" in capsys.readouterr().out.replace("\n", " ")
    for format_ in ("json", "junit", "sarif", "prometheus", "nagios"):
        assert run(["verify", "-S", HGX, "--container", str(file), "-f", format_]) == 0
    file.write_text(json.dumps(docker(Binds=volumes[1:], Devices=nodes)))
    assert run(["verify", "-S", HGX, "--container", str(file), "-q"]) == 1


@pytest.mark.parametrize(
    ("text", "line"), [('{\n  "HostConfig": {,}\n}', 2), ("a: b\n", 1), ("kind: Pod\n  x: [", 2)]
)  # fmt: skip
def test_the_command_refuses_in_one_line(
    text: str, line: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x"
    file.write_text(text)
    assert run(["verify", "-S", HGX, "--container", str(file)]) == 4
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"gdsctl: {file}:{line}: ")
    assert said.err.count("\n") == 1


def test_it_does_not_go_with_what_speaks_of_the_node(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", "-S", HGX, "--container", "x", "--baseline", HGX]) == 2
    assert "--container and --baseline do not go together" in capsys.readouterr().err
    assert run(["verify", "-S", HGX, "--container", "/no/such"]) == 4
